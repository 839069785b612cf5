"""Step time of DistributedDataParallel on the loopback: plain over Gloo, and with weir.torch.attach().

torchrun --nproc-per-node 4 bench/ddp_loopback.py [--steps N] [--policy P] [--transport T]

Both models take turns, a step each, in one process, so that whatever else the machine does meets them
alike.  It prints medians, and the processor time that the hook takes on the autograd thread, a bucket.
"""

import argparse
import copy
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weir.torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--policy", default="fixed:none:1:dense-ring")
    parser.add_argument("--transport", default="tcp", help="tcp or auto (shared memory)")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    def linear(a: int, b: int) -> list[nn.Module]:
        return [nn.Linear(a, b), nn.ReLU()]

    net = nn.Sequential(
        *linear(784, 1024), *linear(1024, 1024), *linear(1024, 512), nn.Linear(512, 10)
    )
    plain = DistributedDataParallel(copy.deepcopy(net), bucket_cap_mb=2)
    ours = DistributedDataParallel(net, bucket_cap_mb=2)
    attached = weir.torch.attach(
        ours, policy=arguments.policy, transport=arguments.transport, overlap=False
    )
    hook, buckets = 0.0, 0
    inner = attached._hook

    def timed(bucket):
        nonlocal hook, buckets
        begin = time.thread_time()
        future = inner(bucket)
        hook += time.thread_time() - begin
        buckets += 1
        return future

    attached._hook = timed
    times: dict[str, list[float]] = {"plain": [], "weir": []}
    for step in range(arguments.steps + 20):
        x, y = torch.randn(32, 784), torch.randint(0, 10, (32,))
        for name, model in (("plain", plain), ("weir", ours)):
            model.zero_grad()
            dist.barrier()
            begin = time.perf_counter()
            nn.functional.cross_entropy(model(x), y).backward()
            if step >= 20:
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
