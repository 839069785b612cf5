"""Tables of what was measured, as Markdown, out of the result files that bench/results keeps.

Usage: tables.py > docs/reference/measured.md.  Each folder of results has a README.md that says how and
when it was measured, and some of moo.json, collectives.json, tls.json (bench/links.sh) and kernels.json, as `weir bench` prints them,
of bench_cuda.json, torch_topk.json, bench_device.json and bench_rooms.json, which scripts/gpu-check.sh leaves, and of
cuda_check.json, which python/tests/cuda_check.py prints."""

import json
import pathlib

RESULTS = pathlib.Path(__file__).parent / "results"


def text(cell):
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def table(heads, rows):
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(map(text, row)) + " |")
    print()


def moo(told):
    print("### NSGA-II\n")
    table(
        ["problem", "hypervolume", "wanted", "ms", "slowest, ms"],
        [
            (
                name,
                f"{r['hypervolume']:.4f}",
                f"{r['wanted']:.2f}",
                1e3 * r["seconds"],
                1e3 * r["slowest_seconds"],
            )
            for name, r in told.items()
        ],
    )


def collectives(told):
    print(
        f"### {told['collective'].capitalize()} of {told['format']}, {told['ranks']} ranks, the fastest rows\n"
    )
    table(
        ["transport", "algorithm", "bytes", "µs", "bus, GB/s", "wrong"],
        [
            (r["transport"], r["algorithm"], r["size"], r["time_us"], r["busbw_gbs"], r["wrong"])
            for r in sorted(told["best"], key=lambda r: (r["transport"], r["size"]))
        ],
    )


def tls(told):
    for run in told:
        at = {(r["transport"], r["algorithm"], r["size"]): r for r in run["rows"]}
        where = f"links of {run['mbit_s']:.0f} Mbit/s" if "mbit_s" in run else "the loopback"
        print(
            f"### {run['collective'].capitalize()} of {run['format']}, {run['ranks']} ranks, {where}\n"
        )
        rows = []
        for (transport, algorithm, size), plain in at.items():
            sealed = at.get(("tls", algorithm, size))
            if transport == "tcp" and sealed:
                shown = [f"{r['time_us']:.0f} ({r['least_us']:.0f})" for r in (plain, sealed)]
                ratios = [f"{sealed[key] / plain[key]:.2f}" for key in ("time_us", "least_us")]
                rows.append((algorithm, size, *shown, f"{ratios[0]} ({ratios[1]})"))
        table(["algorithm", "bytes", "plain, µs (least)", "TLS, µs (least)", "TLS / plain"], rows)


def kernels(told):
    print(f"### Codecs on one core, {told['cpu']}, {told['elements']:.0f} floats: ratios\n")
    table(
        ["ratio", "measured", "at most"],
        [(r["name"], r["value"], r["bound"] or "") for r in told["ratios"]],
    )


def bench_cuda(told):
    print(
        f"### Operations on a device, {told['elements'] / 1e6:.0f} M floats, {told['kept'] / 1e6:g} M kept\n"
    )
    rows = [
        (r["operation"], r.get("input", ""), r["ms"], r["gbps"], r.get("share_of_copy", 1))
        for r in told["results"]
    ]
    table(["operation", "input", "ms", "GB/s", "of the copy's"], rows)


def torch_topk(told):
    print(
        f"`torch.topk` ({told['torch']}, {told['device']}): {told['torch_topk_ms']:.2f} ms; error feedback and top-k in one pass: "
        f"{told['ef_topk_ms']:.2f} ms, {told['ratio']:.1f} times as fast.\n"
    )


def bench_device(told):
    print(
        f"### A step on a device, alone in its group, {told['elements'] / 1e6:g} M elements in {told['tensors']} tensors\n"
    )
    rows = [(f"`{r['policy']}`", r["ms"], r["apart_ms"]) for r in told["steps"]]
    table(["policy", "ms", "tensors that lie apart, ms"], rows)
    rows = [
        (f"`{r['plan']}`", r["compress_ms"], r["priced_ms"], r["ratio"]) for r in told["codecs"]
    ]
    print(
        f"What steps count as compressing, and what it was foretold to take at a start, in {told['pricing_ms']:.0f} ms:\n"
    )
    table(["plan", "ms", "foretold, ms", "ratio"], rows)


def bench_rooms(told):
    print(
        f"### A step of two processes on one device, {told['elements'] / 1e6:g} M elements in {told['tensors']} tensors\n"
    )
    rows = [
        (f"`{r['policy']}`", r["host_ms"], r["rooms_ms"], r["host_ms"] / r["rooms_ms"])
        for r in told["steps"]
    ]
    table(["policy", "over the host (shm), ms", "messages stay on the device, ms", "ratio"], rows)


def cuda_check(told):
    speed = told["speed"]
    print(
        f"### PyTorch: steps of two ranks on one device over shared memory, {speed['none']['parameters'] / 1e6:.1f} M parameters\n"
    )
    plain = speed["plain DDP"]["median_ms"]
    rows = [
        (name, r["median_ms"], r["least_ms"], r["median_ms"] / plain) for name, r in speed.items()
    ]
    table(["exchange", "ms", "least", "of plain DDP's (Gloo)"], rows)


def main():
    print(
        "# Measured\n\nMade by `bench/tables.py` out of the result files in `bench/results`; a test holds it to them.\n"
    )
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        print(f"## {folder.name}\n\n{(folder / 'README.md').read_text(encoding='utf-8').strip()}\n")
        for show in (
            moo,
            collectives,
            tls,
            kernels,
            bench_cuda,
            torch_topk,
            bench_device,
            bench_rooms,
            cuda_check,
        ):
            path = folder / f"{show.__name__}.json"
            if path.exists():
                show(json.loads(path.read_text(encoding="utf-8")))


main()
