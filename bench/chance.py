"""What chance does to a training, and what a plan does beyond it.

Trainings that begin alike but for one step, whose gradient top-k cuts to another ratio in each, part as two orders of
batches do.  Each of them is trained with every plan from step 5 on, and with bfloat16: the mean of the losses' differences has an
error that tells what of them is chance, which single runs do not.  Runs that are there are not run again.
"""

import argparse
import hashlib
import json
import math
import pathlib
import statistics
import sys
import time

import regret

RATIOS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
NEWEST = 25  # losses at the end that are averaged


def policy_of(plan, ratio):
    return f"schedule:topk:{ratio}:ag;step=2:bf16:1:dense-ring;step=5:{plan}"


def train(o, plan, ratio, seed):
    epochs = o.steps // regret.EPOCH
    text = regret.scenario(o.workload, [regret.TRAINED_ON], epochs)
    of = hashlib.sha256(text.replace(str(regret.ROOT), "").encode()).hexdigest()[:16]
    path = pathlib.Path(o.out) / f"{o.workload}-{plan.replace(':', '_')}-{ratio}-s{seed}-{of}.json"
    if not path.exists():
        rows, summary = regret.execute(
            o.weir, text, policy_of(plan, ratio), seed, pathlib.Path(o.work) / "chance-work"
        )
        losses = [float(row["loss"]) for row in rows]
        regret.write(
            path, {"end": statistics.mean(losses[-NEWEST:]), "test": summary["final_loss"]}
        )
    return json.loads(path.read_text())


def mean_of(values):
    """And its error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return statistics.mean(values), error


def share_over(losses, reference):
    """Mean and error, in per cent."""
    return mean_of([100 * (a / b - 1) for a, b in zip(losses, reference)])


def told(ends, reference, late):
    """Of a plan's losses at the end and bfloat16's of the same beginnings: mean, largest, how many are late, and the mean
    difference with its error."""
    apart, error = mean_of([a - b for a, b in zip(ends, reference)])
    return {
        "runs": len(ends),
        "mean": statistics.mean(ends),
        "largest": max(ends),
        "late": sum(e > late for e in ends),
        "apart": apart,
        "error": error,
    }


def table(ends, tests, plans):
    """ends: the means of the last losses; tests: the last losses on the test data."""
    reference = ends[plans[0]]
    late = 1.1 * statistics.mean(reference)
    lines = [
        f"| plan from step 5 on | runs | loss, mean | largest | above {late:.2f} | over {plans[0]}'s | % | test loss, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for plan in plans:
        t = told(ends[plan], reference[: len(ends[plan])], late)
        over = f"{t['apart']:+.3f} ± {t['error']:.3f}"
        shares = [
            "{:+.2f} ± {:.2f}".format(*share_over(of[plan], of[plans[0]])) for of in (ends, tests)
        ]
        over = " | ".join((over, *shares) if plan != plans[0] else "–––")
        lines.append(
            f"| `{plan}` | {t['runs']} | {t['mean']:.3f} | {t['largest']:.3f} | {t['late']} | {over} |"
        )
    return "\n".join(lines)


def parse(argv):
    p = argparse.ArgumentParser(prog="bench/chance.py", description=__doc__.splitlines()[0])
    p.add_argument("weir", help="the command")
    p.add_argument("out", help="folder for results")
    p.add_argument("--workload", default="gpt", choices=regret.WORKLOADS)
    p.add_argument(
        "--plans", default="minifloat:0.25:sra,qsgd:0.25:sra,qsgd:0.125:sra", help="beside bfloat16"
    )
    p.add_argument("--seeds", default="1,2,3,4,5,6", help="whole numbers")
    p.add_argument(
        "--steps", type=int, default=300, help=f"of a training, a multiple of {regret.EPOCH}"
    )
    p.add_argument("--ratios", type=int, default=len(RATIOS), help="beginnings of each seed")
    p.add_argument("--work", default="/tmp", help="where runs are kept while they are under way")
    o = p.parse_args(argv)
    if o.steps < regret.EPOCH or o.steps % regret.EPOCH:
        p.error(f"--steps: {o.steps}; expected a multiple of {regret.EPOCH}")
    if not 1 <= o.ratios <= len(RATIOS):
        p.error(f"--ratios: {o.ratios}; expected 1 to {len(RATIOS)}")
    try:
        o.seeds = [int(s) for s in o.seeds.split(",")]
    except ValueError:
        p.error(f"--seeds: '{o.seeds}'; expected whole numbers with commas between")
    return o


def main(argv):
    o = parse(argv)
    plans = ["bf16:1:dense-halving", *(p.strip() for p in o.plans.split(","))]
    ends, tests = {plan: [] for plan in plans}, {plan: [] for plan in plans}
    todo = [(ratio, seed) for ratio in RATIOS[: o.ratios] for seed in o.seeds]
    began = time.monotonic()
    for i, (ratio, seed) in enumerate(todo):
        for plan in plans:
            trained = train(o, plan, ratio, seed)
            ends[plan].append(trained["end"])
            tests[plan].append(trained["test"])
        spent = time.monotonic() - began
        print(
            f"{i + 1} of {len(todo)} beginnings; {spent / (i + 1) * (len(todo) - i - 1) / 60:.0f} min left",
            file=sys.stderr,
        )
    print(table(ends, tests, plans))


if __name__ == "__main__":
    main(sys.argv[1:])
