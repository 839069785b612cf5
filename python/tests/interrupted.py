"""One rank of a training that nobody ends: for tests of Ctrl-C.  With a number as argument it makes so
many steps and ends by itself, closing nothing."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weir.torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10**9
dist.init_process_group(
    "gloo",
    store=dist.FileStore(os.environ["WEIR_TEST_STORE"], int(os.environ["WORLD_SIZE"])),
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
weir.torch.attach(model, optimizer)
batches = weir.torch.batches((torch.ones(4, 64) for _ in range(steps)), model, length=steps)
for step, batch in enumerate(batches):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    if step == 3:
        print("going", flush=True)
