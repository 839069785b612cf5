#!/usr/bin/env bash
# bench/regret.sh, chance.py, untouched.py and regret_order.py: what they refuse, and their arithmetic by hand.  (Training is what it is for, and takes hours.)
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
refuses() { expect 2 "$1" "$source/bench/regret.sh" "${@:2}"; }

refuses "'zip' is none of mlp, gpt" --workloads mlp,zip
refuses "'2ms' is none of" --networks 2ms
refuses 'fp32 and bf16 must be among them' --policies bf16
refuses 'expected whole numbers' --seeds 1,x
refuses 'expected a multiple of 100' --steps 150
expect 2 'expected a multiple of 50' python3 "$source/bench/chance.py" weir "$work" --steps 70
expect 2 'expected 1 to 6' python3 "$source/bench/chance.py" weir "$work" --ratios 7
expect 2 'expected whole numbers' python3 "$source/bench/chance.py" weir "$work" --seeds 1,x
for wrong in '--trainings no' '--networks 2ms' '--seeds x'; do
  # shellcheck disable=SC2086
  expect 2 "^untouched.py: error: ${wrong% *} '${wrong#* }'; expected" python3 "$source/bench/untouched.py" weir "$work" $wrong
done
expect 2 'no cells.json' "$source/bench/regret_order.py" "$work" "$work/out"

PYTHONDONTWRITEBYTECODE=1 python3 - "$source/bench" <<'PY' || fail "the arithmetic"
import math, sys
sys.path.insert(0, sys.argv[1])
import regret

def near(got, want):
    assert math.isclose(got, want, rel_tol=1e-9), (got, want)

# Steps of 10 ms of computing and 5 of the codec, 2 latencies and 1e6 bytes: over 1 Gbit/s and 1 us, 8.002 ms.
part = {"steps": 100, "tried": 0, "comm_ms": 100 * 8.002}
run = {"segments": [{"step": 100, "loss": 3.0, "plans": {"p": part}}, {"step": 200, "loss": 2.0, "plans": {"p": part}}]}
terms, fewer = {"latencies": 2, "bytes": 4e6}, {"latencies": 1, "bytes": 8e6}
def link(step, elapsed, latencies, size):
    return latencies * 0.05 + size / 1e7 if step < 100 else latencies * 0.001 + size / 1e8
points = regret.time_fixed(run, terms, fewer, 0.010, 0.005, link)  # half of the latencies, twice the bytes
near(points[0][1], 100 * (0.015 + 0.05 + 0.2))
points = regret.time_fixed(run, terms, terms, 0.010, 0.005, link)
near(points[0][1], 100 * (0.015 + 0.1 + 0.1))
near(points[1][1], points[0][1] + 100 * (0.015 + 0.002 + 0.01))
# 1000 bytes/s in the first second, 4000 in the next, and again: 20 ms before the bytes begin.
trace = object.__new__(regret.Trace)
trace.rates = [1000, 4000]
near(trace.seconds(0.5, 1, 280), 0.3)
near(trace.seconds(0.5, 1, 480 + 2000), 0.5 + 0.5)
near(trace.seconds(3.5, 0, 2000 + 1000 + 400), 0.5 + 1 + 0.1)
near(trace.seconds(0.5, 2, 0), 0.04)
assert regret.plans_of("topk.1") == ["topk:0.1:ag:auto-bf16", "topk:0.1:ag-direct:auto-bf16"]

# Half of the way from 3.0 to 2.0; before the first evaluation; never.
near(regret.time_to(points, 2.5), (points[0][1] + points[1][1]) / 2)
near(regret.time_to(points, 3.5), points[0][1])
assert regret.time_to(points, 1.9) == math.inf
near(regret.loss_at(points, 150), 2.5)

# 90 steps and 10 that were rolled back: 100 * (10 + 5 + 1) ms and 2000 ms on the wire, a tenth of it trials.
use = {"p": {"steps": 90, "tried": 10, "comm_ms": 2000.0}}
points, share = regret.time_weir({"segments": [{"step": 90, "loss": 1.0, "plans": use}], "overhead_ms": 1.0}, 0.010,
                                 {"p": 0.005})
near(points[0][1], 3.6)
near(share, 0.1)

# Phases of 20 epochs as C1 has them, and the trace's first second: slots of 1500 bytes, 20 times as many.
link = regret.link_at("c1", 20, None)
assert [link(s, 0, 1, 0) for s in (0, 249, 250, 499, 500, 699, 700, 999)] == [.001, .001, .001, .001, .05, .05, .05, .05]
near(link(0, 0, 0, 25e9 * 0.03 / 8), 1)
near(link(250, 0, 2, 1e9 * 0.03 / 8), 1.002)
trace = regret.Trace()
slots = sum(int(line) < 1000 for line in regret.TRACE["file"].read_text().split())
near(trace.seconds(0.5, 0, slots * 1500 * 20 / 4), 0.25)
near(trace.seconds(0.5 + len(trace.rates), 0, slots * 1500 * 20 / 4), 0.25)

# Differences of 1, 2 and 6: a mean of 3 and a deviation of the square root of 7, so an error of that of 7/3.
import chance
got = chance.told([3.0, 4.0, 8.0], [2.0, 2.0, 2.0], 3.5)
near(got["apart"], 3.0)
near(got["error"], math.sqrt(7 / 3))
assert (got["runs"], got["mean"], got["largest"], got["late"]) == (3, 5.0, 8.0, 2)
# 50 and 75 %, whose mean is 62.5 and the error of it 12.5; on the test data 10 and 30 %.
rows = chance.table({"a": [2.0, 4.0], "b": [3.0, 7.0]}, {"a": [1.0, 2.0], "b": [1.1, 2.6]}, ["a", "b"]).splitlines()
assert rows[2] == "| `a` | 2 | 3.000 | 4.000 | 1 | – | – | – |", rows  # 4 is above 3.3
assert rows[3] == "| `b` | 2 | 5.000 | 7.000 | 1 | +2.000 ± 1.000 | +62.50 ± 12.50 | +20.00 ± 10.00 |", rows

# Of three pairs one changes places by more than 5 % in both; one that never comes to the loss is the slowest.
import regret_order
virtual, real = {"a": 1.0, "b": 1.04, "c": 2.0}, {"a": 3.0, "b": 2.0, "c": 2.9}
assert regret_order.in_order(virtual, real) == (3, [])  # a and c within 5 % there, a and b here
assert regret_order.in_order(virtual, real | {"c": 2.0}) == (3, [("a", "c")])
assert regret_order.in_order({"a": 1.0, "b": math.inf}, {"a": math.inf, "b": 9.0}) == (1, [("a", "b")])
# Of two that never come there nobody knows the order.
assert regret_order.in_order({"a": math.inf, "b": math.inf}, {"a": 1.0, "b": 2.0}) == (0, [])
assert regret_order.in_order({"a": 1.0, "b": 2.0}, {"a": math.inf, "b": math.inf}) == (0, [])
cells = [{"workload": w, "network": n, "regret": r} for w, n, r in
         (("mlp", "c1", 2.0), ("mlp", "c2", None), ("mlp", "trace", 1.5), ("gpt", "c1", 1.2))]
assert [(c["workload"], c["network"]) for c in regret_order.chosen(cells, [])] == [
    ("mlp", "trace"), ("mlp", "c2"), ("gpt", "c1")]
# By another clock it is another training.
import pathlib, types
where = [regret_order.path_of(types.SimpleNamespace(out=pathlib.Path("o"), steps=1000, clock=clock), cells[0] | {"seed": 1}, "bf16").name
         for clock in ("skip-idle", "real")]
assert where == ["mlp-c1-bf16-s1.json", "mlp-c1-bf16-s1-1000-real.json"], where
# Where weir never came to the loss there is a row all the same, and no qsgd4 where it was left out.
regret_order.train = lambda o, cell, name: {"seconds": {"weir": None, "fp32": 3.0, "bf16": 1.5}[name]}
never = {"workload": "mlp", "network": "c2", "regret": None, "best": "bf16", "weir_s": None,
         "fixed_s": {"fp32": 4.0, "bf16": 2.0}}
line, pairs, swapped = regret_order.row(None, never)
assert line == "| mlp | c2 | `bf16` 2.0 / 1.5, `weir` inf / inf | never / never | 1 of 1 |", line
PY
