"""The cells of bench/ddp.sh as a table.

    ddp_table.py OUT                      the table, of OUT/cells
    ddp_table.py --cell FOLDER RATE DELAY  one cell, from what `weir emulate` left
"""

import json
import pathlib
import statistics
import sys


def cell(folder, rate, delay):
    folder = pathlib.Path(folder)
    result = json.loads((folder / "result.json").read_text())
    told = json.loads((folder / "emulate.json").read_text())
    result |= {
        "mbit_s": float(rate),
        "delay_ms": float(delay),
        "network": told["network"],
        "sent_mb": [round(w["sent_bytes"] / 1e6, 3) for w in told["workers"]],
    }
    print(json.dumps(result, indent=1))


def own(method):
    return method.startswith("weir")


def time_of(cells):
    """Mean over seeds; None: one of them never got there."""
    times = [c["time_to_target_s"] for c in cells]
    return None if None in times else statistics.mean(times)


def rows(cells):
    """By method, sorted by time."""
    methods = {}
    for c in cells:
        methods.setdefault(c["method"], []).append(c)
    table = [(m, time_of(found), found) for m, found in methods.items()]
    return sorted(table, key=lambda row: (row[1] is None, row[1] or 0))


def show(table):
    theirs = [t for m, t, _ in table if t and not own(m)]
    print("| method | seeds | s to target | steps | s a step | of the best PyTorch hook | last metric |")
    print("|---|---|---|---|---|---|---|")
    for method, seconds, found in table:
        steps = [c["steps_to_target"] for c in found if c["steps_to_target"]]
        each = statistics.mean(c["elapsed_s"] / c["steps"] for c in found)
        last = statistics.mean(c["last_metric"] for c in found)
        print(
            f"| `{method}` | {len(found)} | {f'{seconds:.1f}' if seconds else 'not reached'} "
            f"| {round(statistics.mean(steps)) if steps else '–'} | {each:.3f} "
            f"| {f'{seconds / min(theirs):.2f}' if seconds and theirs else '–'} | {last:.4f} |"
        )


def main(folder):
    cells = [json.loads(p.read_text()) for p in sorted(pathlib.Path(folder, "cells").glob("*.json"))]
    places = sorted({(c["model"], c["mbit_s"], c["delay_ms"], c["network"]) for c in cells})
    for model, rate, delay, network in places:
        these = [c for c in cells if (c["model"], c["mbit_s"], c["delay_ms"], c["network"]) == (model, rate, delay, network)]
        target = these[0]["target"]
        print(f"## {model}, {rate:g} Mbit/s, {delay:g} ms ({network}), target {target:g}, torch {these[0]['torch']}\n")
        show(rows(these))
        print()


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--cell":
        cell(*sys.argv[2:])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
