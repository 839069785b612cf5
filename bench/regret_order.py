#!/usr/bin/env python3
"""Whether the order of policies that bench/regret.sh found in virtual time holds on real links.

Cells of a folder of results, the least and the most regret of each workload, are trained again inside User-Mode
Linux, under policy weir, the best fixed policy, bf16 and 4 bits: real processes, TCP, htb and netem.  A policy's
time is that to the loss that the cell aims at; two policies keep their order when the faster one of virtual time is
the faster one there, too, or when they are within 5 % of each other in either.

    bench/regret_order.py [WEIR] RESULTS OUT [--cells mlp/1ms-30,gpt/c1] [--clock skip-idle]

What has been trained is left in OUT and not trained again.
"""

import argparse
import itertools
import json
import math
import pathlib
import shutil
import sys

import regret

CLOSE = 1.05
STEPS, CLOCK = 1000, "skip-idle"


def chosen(cells, names):
    """Those named, else each workload's least and most regret."""
    if names:
        by_name = {f"{c['workload']}/{c['network']}": c for c in cells}
        return [by_name[name] for name in names]
    found = []
    for workload in dict.fromkeys(c["workload"] for c in cells):
        of = sorted(
            (c for c in cells if c["workload"] == workload), key=lambda c: c["regret"] or math.inf
        )
        found += of[:1] + of[1:][-1:]
    return found


def seconds_to(rows, target):
    """Of steps.csv, by its own clock."""
    points = [
        (int(r["step"]) + 1, float(r["elapsed_s"]), float(r["test_loss"]))
        for r in rows
        if r["test_loss"]
    ]
    return regret.time_to(points, target)


def path_of(o, cell, name):
    """Trainings of another length, or by another clock, are others."""
    usual = (o.steps, o.clock) == (STEPS, CLOCK)
    kind = "" if usual else f"-{o.steps}-{o.clock}"
    return o.out / f"{cell['workload']}-{cell['network']}-{name}-s{cell['seed']}{kind}.json"


def train(o, cell, name):
    """One policy in one cell; what was taken there before is read again."""
    path = path_of(o, cell, name)
    if path.exists():
        return json.loads(path.read_text())
    policy = "weir" if name == "weir" else cell["fixed_plan"][name]
    text = regret.scenario(
        cell["workload"], regret.NETWORKS[cell["network"]], o.steps // regret.EPOCH
    )
    print(f"{cell['workload']} {cell['network']} {name}", file=sys.stderr, flush=True)
    rows, summary = regret.execute(
        o.weir, text, policy, cell["seed"], o.out / "work", ["uml", "--clock", o.clock]
    )
    shutil.rmtree(o.out / "work")
    taken = {
        "seconds": regret.finite(seconds_to(rows, cell["target"])),
        "elapsed_s": summary["elapsed_s"],
        "final_loss": summary["final_loss"],
    }
    regret.write(path, taken)
    return taken


def in_order(virtual, real):
    """Pairs of policies of which one gets there on both networks, and those that changed places."""
    pairs, swapped = 0, []
    for a, b in itertools.combinations(virtual, 2):
        if virtual[a] > virtual[b]:
            a, b = b, a
        if math.isinf(virtual[a]) or math.isinf(min(real[a], real[b])):
            continue
        pairs += 1
        far = virtual[b] > CLOSE * virtual[a] and real[a] > CLOSE * real[b]
        if far:
            swapped.append((a, b))
    return pairs, swapped


def row(o, cell):
    names = ["weir", *(n for n in (cell["best"], "qsgd4", "bf16") if n in cell["fixed_s"])]
    names = list(dict.fromkeys(names))
    never = math.inf
    virtual = {n: (cell["weir_s"] if n == "weir" else cell["fixed_s"][n]) or never for n in names}
    runs = {n: train(o, cell, n) for n in names}
    real = {n: runs[n]["seconds"] or never for n in names}
    pairs, swapped = in_order(virtual, real)
    text = ", ".join(
        f"`{n}` {virtual[n]:.1f} / {real[n]:.1f}" for n in sorted(names, key=virtual.get)
    )
    line = (
        f"| {cell['workload']} | {cell['network']} | {text} | {regret.ratio(cell['regret'])} / "
        f"{regret.ratio(regret.finite(real['weir'] / real[cell['best']]))} "
        f"| {pairs - len(swapped)} of {pairs} |"
    )
    return line, pairs, swapped


def parse(argv):
    p = argparse.ArgumentParser(
        prog="bench/regret_order.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "weir", nargs="?", default=str(regret.ROOT / "build-release/cli/weir"), help="the command"
    )
    p.add_argument("results", type=pathlib.Path, help="a folder that bench/regret.sh has filled")
    p.add_argument("out", type=pathlib.Path, help="folder for what is measured here")
    p.add_argument(
        "--cells",
        help="WORKLOAD/NETWORK, with commas; default: each workload's least and most regret",
    )
    p.add_argument("--clock", default=CLOCK, help="of User-Mode Linux (default: %(default)s)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=STEPS, help="as in RESULTS (default: %(default)s)")
    o = p.parse_args(argv)
    try:
        cells = json.loads((o.results / "cells.json").read_text())
    except FileNotFoundError:
        p.error(f"{o.results} has no cells.json; expected a folder that bench/regret.sh has filled")
    names = o.cells.split(",") if o.cells else []
    known = {f"{c['workload']}/{c['network']}" for c in cells if c["seed"] == o.seed}
    if not set(names) <= known or not known:
        p.error(f"--cells {o.cells}, --seed {o.seed}: expected some of {', '.join(sorted(known))}")
    o.cells = chosen([c for c in cells if c["seed"] == o.seed], names)
    return o


def main():
    o = parse(sys.argv[1:])
    try:
        rows = [row(o, cell) for cell in o.cells]
    except RuntimeError as error:
        sys.exit(f"bench/regret_order.py: {error}")
    except KeyboardInterrupt:
        sys.exit("bench/regret_order.py: interrupted; the same call goes on")
    print(
        "| | network | s to the loss, virtual time / User-Mode Linux | regret | order kept |\n|---|---|---|---|---|"
    )
    for line, _, _ in rows:
        print(line)
    swapped = sum(len(s) for _, _, s in rows)
    print(
        f"\n{sum(p for _, p, _ in rows) - swapped} of {sum(p for _, p, _ in rows)} pairs in order"
    )


if __name__ == "__main__":
    main()
