"""One machine of bench/paths.sh: its ranks, processes that average by each of several plans in turns.  Milliseconds
of the slowest rank of this machine, medians; the first two rounds connect and do not count."""

import json
import multiprocessing
import os
import statistics
import sys
import time

import numpy as np

import weir

TOGETHER_S = 0.1


def rank(local, each, elements, plans, rounds, results):
    machine, machines = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["WEIR_HOST"] = f"machine-{machine}"

    def join(number, plan, elements):
        session = weir.Session(
            machine * each + local,
            machines * each,
            policy=f"fixed:{plan}",
            overlap=False,
            bind_address=f"10.77.0.{machine + 1}",
            rendezvous=f"{os.environ['MASTER_ADDR']}:{7700 + number}",
            job_id=number + 1,
            timeout_s=120,
        )
        session.register("gradient", elements)
        session.start()
        return session

    meeting = join(0, "none:1:dense-tree", 1)  # a turn begins when all have ended the one before
    sessions = [join(number, plan, elements) for number, plan in enumerate(plans, 1)]
    gradient = np.random.default_rng(local).standard_normal(elements).astype(np.float32)
    took = {plan: [] for plan in plans}
    for turn in range(rounds + 2):
        for plan, session in zip(plans, sessions, strict=True):
            buffer = gradient.copy()
            meeting.average([np.zeros(1, np.float32)])
            begin = (time.monotonic() // TOGETHER_S + 1) * TOGETHER_S  # all have one clock
            time.sleep(max(0.0, begin - time.monotonic()))
            session.average([buffer])
            if turn > 1:
                took[plan].append(time.monotonic() - begin)
    results.put(took)


def main(each, rounds, elements, plans):
    results = multiprocessing.Queue()
    ranks = [
        multiprocessing.Process(target=rank, args=(r, each, elements, plans, rounds, results))
        for r in range(each)
    ]
    for process in ranks:
        process.start()
    all_of_them = [results.get(timeout=240) for _ in ranks]
    for process in ranks:
        process.join()
    slowest = {
        plan: statistics.median(max(times) for times in zip(*(t[plan] for t in all_of_them)))
        for plan in plans
    }
    if os.environ["RANK"] == "0":
        print(json.dumps({plan: round(1e3 * s, 1) for plan, s in slowest.items()}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
