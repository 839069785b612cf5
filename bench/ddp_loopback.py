"""Step time of DistributedDataParallel on one machine: plain over Gloo, and with weir.torch.attach().

torchrun --nproc-per-node 4 bench/ddp_loopback.py [--steps N] [--width N] [--policy P] [--transport T] [--tls HOW]

Both models take turns, a step each, in one process, so that whatever else the machine does meets them
alike.  It prints medians, and the processor time that the hook takes on the autograd thread, a bucket.
"""

import argparse
import copy
import json
import statistics
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weir.torch

FIRST = 20  # steps that do not count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=1024, help="of the MLP's hidden layers")
    parser.add_argument("--policy", default="fixed:none:1:dense-ring")
    parser.add_argument("--transport", default="tcp", help="tcp or auto (shared memory)")
    parser.add_argument(
        "--tls", default="off", help="off, as Gloo's messages are plain text, or auto"
    )
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, width = dist.get_rank(), arguments.width
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sizes = [784, width, width, width // 2]
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(sizes[-1], 10))
    plain = DistributedDataParallel(copy.deepcopy(net), bucket_cap_mb=2)
    ours = DistributedDataParallel(net, bucket_cap_mb=2)
    optimizers = {model: torch.optim.SGD(model.parameters(), lr=0.01) for model in (plain, ours)}
    attached = weir.torch.attach(
        ours,
        optimizers[ours],
        policy=arguments.policy,
        transport=arguments.transport,
        tls=arguments.tls,
        trials="off",
    )
    hook, buckets = 0.0, 0
    state = ours._comm_hooks[0][1]  # DDP keeps what it calls the hook with
    inner = state.work

    def timed(bucket):
        nonlocal hook, buckets
        begin = time.thread_time()
        future = inner(bucket)
        hook += time.thread_time() - begin
        buckets += 1
        return future

    state.work = timed
    times: dict[str, list[float]] = {"plain": [], "weir": []}
    for step in range(arguments.steps + FIRST):
        x, y = torch.randn(32, 784), torch.randint(0, 10, (32,))
        for name, model in (("plain", plain), ("weir", ours)):
            optimizers[model].zero_grad()
            dist.barrier()
            begin = time.perf_counter()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizers[model].step()
            if step >= FIRST:
                times[name].append(time.perf_counter() - begin)
    if rank == 0:
        medians = {name: 1e3 * statistics.median(t) for name, t in times.items()}
        print(
            json.dumps(
                {
                    "workers": dist.get_world_size(),
                    "megabytes": sum(4e-6 * p.numel() for p in net.parameters()),
                    "transport": attached.session.transport,
                    "plan": attached.session.plan,
                    "steps": arguments.steps,
                    "plain_ms": round(medians["plain"], 2),
                    "weir_ms": round(medians["weir"], 2),
                    "ratio": round(medians["weir"] / medians["plain"], 3),
                    "hook_us_a_bucket": round(1e6 * hook / buckets, 1),
                }
            )
        )
    attached.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
