"""One rank of bench/rings.sh: an all-reduce of the demo's gradient by Gloo, and by Weir's dense ring and
halving, in turns, so that whatever else goes on meets all alike.  Seconds of the slowest rank, median."""

import json
import os
import secrets
import statistics
import sys
import time

import torch
import torch.distributed as dist

import weir

ELEMENTS = 1_068_810  # of scenarios/demo.ini's model
PAYLOAD = 1448 / 1514  # of a full packet of TCP


def contenders(rank, ranks):
    host = os.environ["MASTER_ADDR"]
    gradient = torch.zeros(ELEMENTS)
    secret = torch.tensor(list(secrets.token_bytes(16)), dtype=torch.uint8)
    dist.broadcast(secret, 0)  # broadcast_object_list takes numpy
    yield "gloo", lambda: dist.all_reduce(gradient)
    for number, policy in enumerate(("dense-ring", "dense-halving")):
        session = weir.Session(
            rank,
            ranks,
            policy=f"fixed:none:1:{policy}",
            transport="tcp",
            overlap=False,
            bind_address=host if rank == 0 else f"10.77.0.{rank + 1}",
            rendezvous=f"{host}:{7700 + number}",
            job_id=number + 1,
            secret=bytes(secret.tolist()).hex(),
            timeout_s=120,
        )
        session.register("gradient", ELEMENTS)
        session.start()
        yield policy, lambda session=session: session.average([gradient])


def main(rate, rounds):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    all_of_them = list(contenders(rank, ranks))
    seconds = {name: [] for name, _ in all_of_them}
    for turn in range(rounds + 1):
        for name, run in all_of_them:
            dist.barrier()
            begin = time.monotonic()
            run()
            took = torch.tensor([time.monotonic() - begin], dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if turn:  # the first connects
                seconds[name].append(float(took))
    bound = 2 * (ranks - 1) / ranks * 4 * ELEMENTS * 8e-6 / rate
    if rank == 0:
        print(
            json.dumps(
                {
                    "mbit_s": rate,
                    "ranks": ranks,
                    "rounds": rounds,
                    "bytes_over_rate_s": bound,
                    "with_headers_s": bound / PAYLOAD,
                    **{
                        name: {
                            "median_s": statistics.median(s),
                            "least_s": min(s),
                            "of_bytes_over_rate": bound / statistics.median(s),
                        }
                        for name, s in seconds.items()
                    },
                }
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
