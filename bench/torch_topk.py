"""torch.topk of |g + r| on the CUDA device, beside the figures of bench_cuda.

Usage: torch_topk.py BENCH_CUDA.json, its output; exit code 77 without torch or a device."""

import json
import statistics
import sys
import time

try:
    import torch
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("torch_topk: skipped: no torch with a CUDA device here")
    sys.exit(77)

with open(sys.argv[1], encoding="utf-8") as file:
    bench = json.load(file)
n, k = bench["elements"], bench["kept"]
g = torch.randn(n, device="cuda")
r = torch.zeros(n, device="cuda")


def median_ms(work):
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


torch_ms = median_ms(lambda: torch.topk((g + r).abs(), k, sorted=False))
ours = next(
    row["ms"]
    for row in bench["results"]
    if row["operation"] == "ef_topk" and row["input"] == "gaussian"
)
print(
    json.dumps(
        {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(),
            "torch_topk_ms": round(torch_ms, 4),
            "ef_topk_ms": ours,
            "ratio": round(torch_ms / ours, 1),
            "wanted": 20,
        }
    )
)
