"""What bench/regret.sh does: train, time for every network, and compare.

The losses of a fixed policy do not depend on the network.  So each is trained once a seed, where exchanges take their
bytes over 1 Gbit/s, and timed for every network from that: a step takes what computing and the codec take, and
A latencies and B bytes of its exchange.  A is from a few steps on a link with a latency of one second.
Policy weir is trained in every cell, and its steps' exchanges are as they were predicted there.

Computing, and a codec, take the median of all steps of a workload's runs that had it, so that what else the machine
does is not compared.
"""

import argparse
import csv
import datetime
import hashlib
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EPOCH = 50  # steps

# What is trained of every fixed policy.  On each network it is timed by the fastest of the algorithms below, which
# differ in the order of sums at most, or (sra) in that a sum is rounded once more, and so in the loss by chance alone.
POLICIES = {
    "fp32": "none:1:dense-halving",
    "bf16": "bf16:1:dense-halving",
    "minifloat8": "minifloat:0.25:sra:huffman",
    "qsgd8": "qsgd:0.25:sra:huffman",
    "qsgd4": "qsgd:0.125:sra:huffman",
    "qsgd3": "qsgd:0.09375:sra:huffman",
    "qsgd2": "qsgd:0.0625:sra:huffman",
    "companded5": "companded:0.15625:sra:huffman",
    "companded4": "companded:0.125:sra:huffman",
    "companded3.5": "companded:0.109375:sra:huffman",
    "companded3": "companded:0.09375:sra:huffman",
    "whitened4": "whitened:0.125:sra:huffman",
    "qsgd-l2.4": "qsgd-l2:0.125:sra:huffman",
    "dithered4": "dithered:0.125:sra:huffman",
    "powersgd1": "powersgd:1:dense-halving",
    "powersgd4": "powersgd:4:dense-halving",
    "powersgd16": "powersgd:16:dense-halving",
    "bilateral16": "bilateral:16:dense-halving",
    "topk.1": "topk:0.1:ag:auto-bf16",
    "topk.03": "topk:0.03:ag:auto-bf16",
    "topk.01": "topk:0.01:ag:auto-bf16",
    "topk.003": "topk:0.003:ag:auto-bf16",
    "topk.001": "topk:0.001:ag:auto-bf16",
    "star.1": "star:0.1:art-halving:auto-bf16",
    "star.01": "star:0.01:art-halving:auto-bf16",
    "var.01": "var:0.01:art-halving:auto-bf16",
    "nonzero4": "nonzero:0.125:ag:huffman",
    "nonzero3.5": "nonzero:0.109375:ag:huffman",
    "nonzero3": "nonzero:0.09375:ag:huffman",
    "nonzero2": "nonzero:0.0625:ag:huffman",
}
# Of a gradient without zeros these are companded's and qsgd's, gathered, which ALGORITHMS times.
SPARSE_ONLY = {"nonzero4", "nonzero3.5", "nonzero3", "nonzero2"}

# With 4 workers on links that are alike, nothing takes fewer bytes than halving and sra, and nothing takes fewer
# latencies than what goes straight to everybody.
ALGORITHMS = {
    "dense-halving": ["dense-doubling", "dense-direct"],
    "art-halving": ["art-doubling", "art-direct"],
    "sra": ["ag-direct:huffman"],
    "ag": ["ag-direct"],
}
LOW_RANK = {"powersgd", "bilateral"}
# Low rank's factors may travel rounded, too, which changes its loss by chance alone
# (docs/reference/performance.md, "Low rank in fewer bits").
FACTORS = [f"dense-{how}:auto-bf16" for how in ("halving", "doubling", "direct")] + [
    "dense-sra",
    "dense-sra:huffman",
    "dense-one-shot:huffman",
]

C1 = [(0.24, 1, 25), (0.48, 1, 1), (0.72, 50, 1), (1, 50, 25)]  # until, ms, Gbit/s before the scale
C2 = [(0.24, 1, 25), (0.4, 10, 10), (0.56, 50, 1), (0.72, 10, 10), (1, 1, 25)]
SCALE = 0.03  # of C1 and C2, as scenarios/demo.ini has it
NETWORKS = {
    f"{ms}ms-{mbit}": [(1, ms, mbit / 1e3)] for ms in (1, 10, 50) for mbit in (30, 100, 1000)
}
NETWORKS["5ms-100"] = [(1, 5, 0.1)]
NETWORKS["c1"] = [(to, ms, gbps * SCALE) for to, ms, gbps in C1]
NETWORKS["c2"] = [(to, ms, gbps * SCALE) for to, ms, gbps in C2]
HARM = 0.01  # of fp32's last loss: a fixed policy that ends higher is none that anyone should have chosen
TRACE = {
    "file": ROOT / "scenarios/traces/synthetic.down",
    "latency_ms": 20,
    "scale": 20,
    "slot_bytes": 1500,
}
NETWORKS["trace"] = None
TRAINED_ON = (1, 0.001, 1)

WORKLOADS = {"mlp": "demo", "gpt": "gpt", "cnn": "cnn", "recommender": "recommender"}
SPARSE = {"recommender"}  # gradients that are mostly zero


class Interrupted(Exception):
    pass


# --- scenarios ------------------------------------------------------------------------------------------------------


def training_section(workload, epochs):
    """The [training] of a scenario file, stretched to so many epochs of EPOCH steps."""
    lines, within = [], False
    for line in (ROOT / f"scenarios/{WORKLOADS[workload]}.ini").read_text().splitlines():
        if line.startswith("["):
            within = line == "[training]"
        elif within and "=" in line:
            lines.append([part.strip() for part in line.split("#")[0].split("=")])
    keys = dict(lines)
    decay = [
        max(1, round(int(e) * epochs / int(keys["epochs"])))
        for e in keys["decay_epochs"].split(",")
    ]
    keys |= {"epochs": epochs, "steps_per_epoch": EPOCH, "evaluate_every": min(2, epochs)}
    keys["decay_epochs"] = ", ".join(str(e) for e in decay)
    if epochs < 2:
        del keys["decay_epochs"], keys["decay_factor"]
    return "[training]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())


def network_section(phases, epochs):
    if phases is None:
        return (
            f"[trace]\nfile = {TRACE['file']}\nlatency_ms = {TRACE['latency_ms']}\ninterval_s = 1\nwindow_s = 1\n"
            f"slot_bytes = {TRACE['slot_bytes']}\n"
        )
    text, first = "", 1
    for i, (until, ms, gbps) in enumerate(phases):
        last = max(first, round(until * epochs))
        text += (
            f"[phase p{i}]\nepochs = {first}-{last}\nlatency_ms = {ms}\nbandwidth_gbps = {gbps:g}\n"
        )
        first = last + 1
    return text


def scenario(workload, phases, epochs, reports=True):
    scale = TRACE["scale"] if phases is None else 1
    return (
        f"[scenario]\nname = regret\nworkers = 4\nbandwidth_scale = {scale}\nseed = 1\ntimeout_s = 300\n"
        + training_section(workload, epochs)
        + ("" if reports else "report_loss = 0\n")
        + network_section(phases, epochs)
    )


# --- training -------------------------------------------------------------------------------------------------------


def execute(weir, text, policy, seed, work, network=("sim",)):
    """One run; its steps, as dictionaries, and its summary."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "regret.ini").write_text(text)
    call = [
        weir,
        "run",
        work / "regret.ini",
        "--network",
        *network,
        "--policy",
        policy,
        "--seed",
        str(seed),
        "--out",
        work / "out",
    ]
    done = subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{policy}: {done.stderr.strip().splitlines()[-1]}")
    with open(work / "out/steps.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, json.loads((work / "out/summary.json").read_text())


def plans_of(policy):
    """A fixed policy's plan by each of its algorithms, the one that is trained first."""
    trained = POLICIES[policy]
    codec, _, collective = trained.split(":")[:3]
    others = ALGORITHMS[collective] + (FACTORS if codec in LOW_RANK else [])
    plain = trained.removesuffix(":huffman")
    if collective == "ag" and plain != trained:
        others = [f"{other}:huffman" for other in others]
    return [trained] + [plain.replace(f":{collective}", f":{other}") for other in others]


def measure_terms(weir, workload, plan, work):
    """How many latencies and bytes a plan's exchange takes, from a few steps each on a link of 1 s and 100 Gbit/s and on
    the one that policies are trained on: the second step's, or where they are entropy-coded the mean of an epoch's.
    Steps that have gone over to another algorithm, as the link asks for, do not count."""
    steps = EPOCH if plan.endswith(":huffman") else 2
    head = (
        scenario(workload, NETWORKS["5ms-100"], 1)
        .split("[phase")[0]
        .replace(f"steps_per_epoch = {EPOCH}", f"steps_per_epoch = {steps}")
    )
    seconds = []
    for phase in ((1, 1000, 100), TRAINED_ON):
        rows, _ = execute(weir, head + network_section([phase], 1), plan, 1, work)
        same = [row for row in rows[1:] if row["plan"] == rows[0]["plan"]]
        seconds.append(statistics.mean(float(row["comm_ms"]) for row in same) / 1e3)
    latencies = round(seconds[0])
    if abs(seconds[0] - latencies) > 0.02:
        raise RuntimeError(
            f"{plan}: {seconds[0]} s in latencies of 1 s, expected a whole number and little more"
        )
    return {"plan": plan, "latencies": latencies, "bytes": bytes_of(seconds[1], latencies)}


def bytes_of(seconds, latencies):
    """Of an exchange on the link that policies are trained on."""
    _, ms, gbps = TRAINED_ON
    return (seconds - latencies * ms / 1e3) * gbps * 125e6


def segments(rows):
    """From evaluation to evaluation: what each plan took part in."""
    found, use = [], {}
    for row in rows:
        of = use.setdefault(row["plan"], {"steps": 0, "tried": 0, "comm_ms": 0.0})
        of["tried" if int(row["trial"]) else "steps"] += 1
        of["comm_ms"] += float(row["comm_ms"])
        if row["test_loss"]:
            found.append(
                {
                    "step": int(row["step"]) + 1,
                    "loss": float(row["test_loss"]),
                    "accuracy": float(row["accuracy"]),
                    "plans": use,
                }
            )
            use = {}
    return found


def median_of(rows, column, plan=None):
    return statistics.median([float(r[column]) for r in rows if plan in (None, r["plan"])])


def train(weir, text, policy, seed, work):
    began = time.monotonic()
    rows, summary = execute(weir, text, policy, seed, work)
    plans = sorted({row["plan"] for row in rows})
    result = {
        "scenario": hashlib.sha256(text.replace(str(ROOT), "").encode()).hexdigest()[:16],
        "policy": policy,
        "seed": seed,
        "steps": sum(row["trial"] == "0" for row in rows),
        "final_loss": summary["final_loss"],
        "final_accuracy": summary["final_accuracy"],
        "compute_ms": median_of(rows, "compute_ms"),
        "compress_ms": {plan: median_of(rows, "compress_ms", plan) for plan in plans},
        "overhead_ms": sum(float(row["overhead_ms"]) for row in rows) / len(rows),
        "segments": segments(rows),
        "took_s": round(time.monotonic() - began, 1),
    }
    journal = (work / "out/decisions.jsonl").read_text().splitlines()
    result["switches"] = [
        {"step": d["step"], "trigger": d["trigger"], "choice": d["choice"]["plan"], "why": d["why"]}
        for d in map(json.loads, journal)
        if d["switched"]
    ]
    result["trials"] = [
        {
            "step": d["step"],
            **{
                k: round(v, 4) if isinstance(v, float) else v
                for k, v in d["trial"].items()
                if k != "samples"
            },
        }
        for d in map(json.loads, journal)
        if d["trigger"] == "trial"
    ]
    shutil.rmtree(work, ignore_errors=True)
    return result


# --- timing ---------------------------------------------------------------------------------------------------------


class Trace:
    """As lab/trace.c reads it: slots of the second that begins with an interval."""

    def __init__(self):
        stamps = [int(line) for line in TRACE["file"].read_text().split()]
        seconds = max(1, math.ceil(stamps[-1] / 1e3))
        slots = [0] * seconds
        for ms in stamps:
            if ms < 1000 * seconds:
                slots[ms // 1000] += 1
        self.rates = [max(1, n) * TRACE["slot_bytes"] * TRACE["scale"] for n in slots]

    def seconds(self, begins, latencies, size):
        """The latencies first, then the bytes at the rates that they meet."""
        at = begins + latencies * TRACE["latency_ms"] / 1e3
        while size > 0:
            second = math.floor(at)
            rate = self.rates[second % len(self.rates)]
            took = min(size / rate, second + 1 - at)
            size = size - took * rate if took < size / rate else 0
            at += took
        return at - begins


def link_at(name, epochs, trace):
    """(step, elapsed, latencies, bytes) -> s of an exchange that begins then."""
    phases = NETWORKS[name]
    if phases is None:
        return lambda step, *exchange: trace.seconds(*exchange)
    ends = [round(until * epochs) * EPOCH for until, _, _ in phases]
    ends[-1] = math.inf

    def seconds(step, elapsed, latencies, size):
        _, ms, gbps = phases[next(i for i, end in enumerate(ends) if step < end)]
        return latencies * ms / 1e3 + size / (gbps * 1e9 / 8)

    return seconds


def time_fixed(run, trained, terms, compute_s, compress_s, link):
    """[(step, s, loss)] of a fixed plan on a network: what the plan that was trained sent, by another's terms."""
    elapsed, step, points = 0.0, 0, []
    for part in run["segments"]:
        count = part["step"] - step
        comm_s = sum(plan["comm_ms"] for plan in part["plans"].values()) / 1e3
        of_bytes = (
            bytes_of(comm_s / count, trained["latencies"]) * terms["bytes"] / trained["bytes"]
        )
        for at in range(step, part["step"]):
            elapsed += compute_s + compress_s
            elapsed += link(at, elapsed, terms["latencies"], of_bytes)
        step = part["step"]
        points.append((step, elapsed, part["loss"]))
    return points


def time_weir(run, compute_s, compress_s):
    elapsed = tried = 0.0
    points = []
    for part in run["segments"]:
        for plan, use in part["plans"].items():
            count = use["steps"] + use["tried"]
            spent = (
                count * (compute_s + compress_s[plan] + run["overhead_ms"] / 1e3)
                + use["comm_ms"] / 1e3
            )
            elapsed += spent
            tried += spent * use["tried"] / count
        points.append((part["step"], elapsed, part["loss"]))
    return points, tried / elapsed


def loss_at(points, step):
    before = (0, 0.0, points[0][2])
    for point in points:
        if point[0] >= step:
            share = (step - before[0]) / (point[0] - before[0])
            return before[2] + share * (point[2] - before[2])
        before = point
    return points[-1][2]


def time_to(points, target):
    """s until the line through the evaluations is at the target; infinite if never."""
    if points[0][2] <= target:
        return points[0][1]
    for before, after in zip(points, points[1:]):
        if after[2] <= target:
            share = (before[2] - target) / (before[2] - after[2])
            return before[1] + share * (after[1] - before[1])
    return math.inf


# --- cells ----------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, options):
        self.o = options
        self.epochs = options.steps // EPOCH
        self.out = pathlib.Path(options.out)
        self.work = pathlib.Path(options.work) / "regret-work"
        self.began, self.done, self.total = time.monotonic(), 0, 0

    def path(self, workload, name, seed):
        return self.out / "runs" / f"{workload}-{name}-s{seed}-{self.o.steps}.json"

    def policies(self, workload):
        return [name for name in self.o.policies if workload in SPARSE or name not in SPARSE_ONLY]

    def jobs(self):
        o = self.o
        for seed in o.seeds:
            for workload in o.workloads:
                for name in self.policies(workload):
                    yield workload, name, POLICIES[name], [TRAINED_ON], seed
                for kind in ("weir", "unreported") if o.unreported else ("weir",):
                    for network in o.networks:
                        yield workload, f"{kind}-{network}", "weir", NETWORKS[network], seed

    def load(self, path, text):
        try:
            run = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        digest = hashlib.sha256(text.replace(str(ROOT), "").encode()).hexdigest()[:16]
        return run if run["scenario"] == digest else None

    def train_all(self):
        todo = []
        for workload, name, policy, phases, seed in self.jobs():
            text = scenario(workload, phases, self.epochs, not name.startswith("unreported"))
            if self.load(self.path(workload, name, seed), text) is None:
                todo.append((workload, name, policy, text, seed))
        for i, (workload, name, policy, text, seed) in enumerate(todo):
            spent = time.monotonic() - self.began
            left = (
                f"{spent / i * (len(todo) - i) / 60:.0f} min left"
                if i
                else "time left is not known yet"
            )
            print(
                f"{i + 1} of {len(todo)}: {workload} {name} seed {seed}; {left}",
                file=sys.stderr,
                flush=True,
            )
            run = train(self.o.weir, text, policy, seed, self.work)
            write(self.path(workload, name, seed), run)

    def terms_of(self, workload, plan):
        path = self.out / "terms" / f"{workload}-{plan.replace(':', '_')}.json"
        if not path.exists():
            print(f"latencies and bytes of {workload} {plan}", file=sys.stderr, flush=True)
            write(path, measure_terms(self.o.weir, workload, plan, self.work))
        return json.loads(path.read_text())

    def runs_of(self, workload, seed):
        found = {}
        for of, name, _, phases, at in self.jobs():
            if (of, at) == (workload, seed):
                text = scenario(of, phases, self.epochs, not name.startswith("unreported"))
                found[name] = self.load(self.path(of, name, at), text)
        return found

    def cells(self):
        trace = Trace()
        for workload in self.o.workloads:
            every = [self.runs_of(workload, seed) for seed in self.o.seeds]
            runs = [run for of in every for run in of.values() if run]
            if not runs:
                continue
            compute_s = statistics.median(run["compute_ms"] for run in runs) / 1e3
            taken = {}
            for run in runs:
                for plan, ms in run["compress_ms"].items():
                    taken.setdefault(plan, []).append(ms / 1e3)
            compress_s = {plan: statistics.median(s) for plan, s in taken.items()}
            for seed, of in zip(self.o.seeds, every):
                for network in self.o.networks:
                    missing = [
                        name
                        for name in (*self.policies(workload), f"weir-{network}")
                        if of[name] is None
                    ]
                    if missing:
                        print(
                            f"left out: {workload} {network} seed {seed}, without {missing[0]}",
                            file=sys.stderr,
                        )
                        continue
                    yield self.cell(workload, seed, network, of, compute_s, compress_s, trace)

    def cell(self, workload, seed, network, of, compute_s, compress_s, trace):
        link = link_at(network, self.epochs, trace)
        timed, fastest = {}, {}
        for name in self.policies(workload):
            taken = compress_s[next(iter(of[name]["compress_ms"]))]
            terms = [self.terms_of(workload, plan) for plan in plans_of(name)]
            trained = self.terms_of(workload, of[name]["policy"])
            by_plan = {
                t["plan"]: time_fixed(of[name], trained, t, compute_s, taken, link) for t in terms
            }
            fastest[name] = min(by_plan, key=lambda plan: by_plan[plan][-1][1])
            timed[name] = by_plan[fastest[name]]
        dense, bf16 = timed["fp32"], of["bf16"]
        target, dense_loss = loss_at(dense, 0.75 * self.o.steps), of["fp32"]["final_loss"]
        reached = {plan: time_to(p, target) for plan, p in timed.items()}
        best = min(reached, key=reached.get)
        harmless = [plan for plan in reached if of[plan]["final_loss"] <= (1 + HARM) * dense_loss]

        def against(run):
            points, share = time_weir(run, compute_s, compress_s)
            mine, final = time_to(points, target), run["final_loss"]
            return {
                "weir_s": finite(mine),
                "regret": finite(mine / reached[best]),
                "over_harmless": finite(mine / min(reached[plan] for plan in harmless)),
                "over_bf16": finite(mine / reached["bf16"])
                if math.isfinite(reached["bf16"])
                else None,
                "over_fp32": finite(mine / reached["fp32"]),
                "end_over_best": points[-1][1] / timed[best][-1][1],
                "end_over_bf16": points[-1][1] / timed["bf16"][-1][1],
                "harm": final / dense_loss - 1,
                "harm_bf16": final / bf16["final_loss"] - 1,
                "accuracy_points": 100 * (run["final_accuracy"] - of["fp32"]["final_accuracy"]),
                "trials": share,
            }

        cell = {
            "workload": workload,
            "network": network,
            "seed": seed,
            "target": target,
            "best": best,
            "best_s": reached[best],
            "best_harmless": min(harmless, key=reached.get),
        } | against(of[f"weir-{network}"])
        if self.o.unreported and of[f"unreported-{network}"] is not None:
            cell["unreported"] = against(of[f"unreported-{network}"])
        return cell | {
            "fixed_s": {plan: finite(s) for plan, s in reached.items()},
            "fixed_plan": fastest,
        }


def finite(x):
    return x if math.isfinite(x) else None


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, separators=(",", ":")) + "\n")
    part.rename(path)


def ratio(x):
    return "never" if x is None else f"{x:.2f}"


def worst(values):
    """None stands for never."""
    return None if None in values else max(values)


def summary(title, of):
    """Of cells, or of what they say without a loss; means are of those that come to the target."""
    regrets, harmless = (
        [c[key] for c in of if c[key] is not None] or [math.inf]
        for key in ("regret", "over_harmless")
    )
    never = sum(c["regret"] is None for c in of)
    return (
        f"{title}: {len(of)} cells{f', {never} of which never come to the target' if never else ''}; regret mean {statistics.mean(regrets):.3f}, worst {max(regrets):.3f}, among harmless ones "
        f"{statistics.mean(harmless):.3f}, {max(harmless):.3f}; over bf16 at most {ratio(worst([c['over_bf16'] for c in of]))}, "
        f"over fp32 {ratio(worst([c['over_fp32'] for c in of]))}; loss over fp32's at most {100 * max(c['harm'] for c in of):+.2f} %, "
        f"accuracy {min(c['accuracy_points'] for c in of):+.2f} points; trials at most {100 * max(c['trials'] for c in of):.1f} %"
    )


def table(cells):
    head = [
        "workload",
        "network",
        "seed",
        "best fixed policy",
        "it, s",
        "best harmless",
        "`weir`, s",
        "regret",
        "among harmless",
        "over bf16",
        "whole run over best's",
        "loss over fp32's, %",
        "over bf16's, %",
        "accuracy, points",
        "trials, %",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for c in cells:
        lines.append(
            "| "
            + " | ".join(
                [
                    c["workload"],
                    c["network"],
                    str(c["seed"]),
                    f"`{c['best']}`",
                    f"{c['best_s']:.1f}",
                    f"`{c['best_harmless']}`",
                    "never" if c["weir_s"] is None else f"{c['weir_s']:.1f}",
                    ratio(c["regret"]),
                    ratio(c["over_harmless"]),
                    ratio(c["over_bf16"]),
                    f"{c['end_over_best']:.2f}",
                    f"{100 * c['harm']:+.2f}",
                    f"{100 * c['harm_bf16']:+.2f}",
                    f"{c['accuracy_points']:+.2f}",
                    f"{100 * c['trials']:.1f}",
                ]
            )
            + " |"
        )
    for workload in dict.fromkeys(c["workload"] for c in cells):
        of = [c for c in cells if c["workload"] == workload]
        lines += ["", summary(workload, of)]
        unreported = [c["unreported"] for c in of if "unreported" in c]
        if unreported:
            lines += ["", summary(f"{workload}, no loss reported", unreported)]
    return "\n".join(lines) + "\n"


def parse(argv):
    today = datetime.date.today().isoformat()
    p = argparse.ArgumentParser(
        prog="bench/regret.sh",
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument(
        "weir", nargs="?", default=str(ROOT / "build-release/cli/weir"), help="the command"
    )
    p.add_argument(
        "out",
        nargs="?",
        default=str(ROOT / f"bench/results/{today}-regret"),
        help="folder for results",
    )
    p.add_argument("--workloads", default=",".join(WORKLOADS), help="of " + ", ".join(WORKLOADS))
    p.add_argument(
        "--networks",
        default=",".join(n for n in NETWORKS if n != "5ms-100"),
        help="of " + ", ".join(NETWORKS),
    )
    p.add_argument(
        "--policies",
        default=",".join(POLICIES),
        help="fixed policies; fp32 and bf16 must be among them",
    )
    p.add_argument("--seeds", default="1,2,3", help="whole numbers")
    p.add_argument(
        "--steps", type=int, default=1000, help=f"of a training, a multiple of {2 * EPOCH}"
    )
    p.add_argument("--work", default="/tmp", help="where runs are kept while they are under way")
    p.add_argument(
        "--unreported", action="store_true", help="policy weir also where no loss is reported"
    )
    p.add_argument("--table", action="store_true", help="train nothing: the table of what is there")
    o = p.parse_args(argv)
    for name, known in (("workloads", WORKLOADS), ("networks", NETWORKS), ("policies", POLICIES)):
        chosen = [n.strip() for n in getattr(o, name).split(",")]
        for n in chosen:
            if n not in known:
                p.error(f"--{name}: '{n}' is none of {', '.join(known)}")
        setattr(o, name, chosen)
    if not {"fp32", "bf16"} <= set(o.policies):
        p.error("--policies: fp32 and bf16 must be among them")
    try:
        o.seeds = [int(s) for s in o.seeds.split(",")]
    except ValueError:
        p.error(f"--seeds: expected whole numbers with commas, not '{o.seeds}'")
    if o.steps < 2 * EPOCH or o.steps % (2 * EPOCH):
        p.error(f"--steps: expected a multiple of {2 * EPOCH}")
    return o


def main():
    bench = Bench(parse(sys.argv[1:]))
    try:
        if not bench.o.table:
            bench.train_all()
        cells = list(bench.cells())
    except RuntimeError as error:
        sys.exit(f"bench/regret.sh: {error}")
    except KeyboardInterrupt:
        sys.exit("bench/regret.sh: interrupted; the same call goes on")
    write(bench.out / "cells.json", cells)
    (bench.out / "table.md").write_text(table(cells))
    print(table(cells), end="")


if __name__ == "__main__":
    main()
