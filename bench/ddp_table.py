"""The cells of bench/ddp.sh as a table.

ddp_table.py OUT                    the tables, of OUT/cells; also makes OUT/ratios.json
ddp_table.py --cell FOLDER NETWORK  one cell, from what `weir emulate` left; NETWORK is MBIT_S:MS or C1
"""

import json
import pathlib
import statistics
import sys


def cell(folder, links):
    folder = pathlib.Path(folder)
    result = json.loads((folder / "result.json").read_text())
    told = json.loads((folder / "emulate.json").read_text())
    if ":" in links:
        result |= dict(zip(("mbit_s", "delay_ms"), map(float, links.split(":")), strict=True))
    else:
        result["schedule"] = links
    result |= {
        "network": told["network"],
        "sent_mb": [round(w["sent_bytes"] / 1e6, 3) for w in told["workers"]],
    }
    print(json.dumps(result, indent=1))


def place(c):
    """Where a training ran: what its link did, and what made it do so."""
    return c.get("schedule", ""), c.get("mbit_s", 0.0), c.get("delay_ms", 0.0), c["network"]


def links(c):
    return c.get("schedule") or f"{c['mbit_s']:g} Mbit/s, {c['delay_ms']:g} ms"


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
    print(
        "| method | seeds | s to target | steps | s a step | of the best PyTorch hook | last metric |"
    )
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


def last(cells):
    """Mean over seeds of the test metric after the last step; None: one of them stopped before."""
    return (
        statistics.mean(c["last_metric"] for c in cells)
        if all(c.get("finished") for c in cells)
        else None
    )


def best(table, wanted):
    """Of the methods that reached the target with every seed: the fastest, and its seconds."""
    for method, seconds, _ in table:
        if seconds and wanted(method):
            return method, seconds
    return None, None


def ratios(table):
    """Policy weir beside the best of PyTorch's hooks, beside the best fixed plan, and its last metric
    beside plain DDP's: a loss that is so much larger, an accuracy that is so much smaller.  None: not run."""
    found = {method: (seconds, cells) for method, seconds, cells in table}
    seconds, cells = found.get("weir", (None, []))
    told = {"weir_s": seconds, "seeds": len(cells)}
    for key, wanted in (("hook", lambda m: not own(m)), ("fixed", lambda m: m.startswith("weir:"))):
        told[f"best_{key}"], least = best(table, wanted)
        told[f"of_best_{key}"] = seconds / least if seconds and least else None
    theirs = last(found["fp32"][1]) if "fp32" in found else None
    ours = last(cells) if cells else None
    told["last_off"] = None
    if ours is not None and theirs is not None:
        told["last_off"] = (ours / theirs - 1) * (
            1 if cells[0]["model"].startswith(("gpt", "lstm")) else -1
        )
    return told


def shown(value, limit, form):
    return "–" if value is None else f"{value:{form}}{'' if value <= limit else ' (missed)'}"


def main(folder):
    cells = [
        json.loads(p.read_text()) for p in sorted(pathlib.Path(folder, "cells").glob("*.json"))
    ]
    places = {}
    for c in cells:
        places.setdefault((c["model"], *place(c)), []).append(c)
    every = []
    for _, these in sorted(places.items()):
        first = these[0]
        print(
            f"## {first['model']}, {links(first)} ({first['network']}), target {first['target']:g}, "
            f"torch {first['torch']}\n"
        )
        table = rows(these)
        show(table)
        print()
        every.append(
            {
                k: first[k]
                for k in ("model", "schedule", "mbit_s", "delay_ms", "network")
                if k in first
            }
            | ratios(table)
        )
    print("## Policy `weir` beside the others\n")
    print(
        "| cell | seeds | of the best hook | of the best fixed plan | last metric, worse than plain DDP's |"
    )
    print("|---|---|---|---|---|")
    for c in every:
        print(
            f"| {c['model']}, {links(c)} | {c['seeds']} "
            f"| {shown(c['of_best_hook'], 0.6 if c.get('mbit_s') == 30 else 1, '.2f')} `{c['best_hook'] or ''}` "
            f"| {shown(c['of_best_fixed'], 1.05, '.2f')} `{c['best_fixed'] or ''}` | {shown(c['last_off'], 0.01, '+.2%')} |"
        )
    path = pathlib.Path(folder, "ratios.json")
    path.with_suffix(".new").write_text(json.dumps(every, indent=1) + "\n")
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--cell":
        cell(*sys.argv[2:])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
