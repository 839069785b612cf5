"""Policy weir on trainings that nothing was tuned to, by SGD and AdamW, beside fp32 and bf16, in virtual time.

    bench/untouched.py WEIR OUT [--trainings cnn-small,gpt] [--networks 1ms-30] [--seeds 1,2] [--policies weir,qsgd-l2.4]

What has been trained is left in OUT and not trained again.  Networks and policies are those of bench/regret.py.
Each column tells a last loss over fp32's and, where bf16 is among the policies, the whole training's time over its."""

import argparse
import itertools
import json
import pathlib
import sys
import time

import regret

TRAININGS = {
    "cnn-small": {
        "model": "cnn",
        "channels": 16,
        "batch": 16,
        "learning_rate": 0.02,
        "momentum": 0.9,
        "weight_decay": 0.0001,
        "decay_factor": 0.1,
        "decay_epochs": 24,
        "epochs": 30,
    },
    "cnn-large": {  # hardly any noise but that of rounding: few workers, large batches
        "workers": 2,
        "model": "cnn",
        "channels": 16,
        "batch": 128,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "rate_warmup_steps": 30,
        "decay_factor": 0.1,
        "decay_epochs": 7,
        "epochs": 9,
    },
    "cnn-plain": {  # neither momentum nor a learning rate that falls
        "model": "cnn",
        "channels": 24,
        "batch": 64,
        "learning_rate": 0.1,
        "momentum": 0,
        "weight_decay": 0.0005,
        "rate_warmup_steps": 100,
        "epochs": 24,
    },
    "mlp-warm": {
        "model": "mlp",
        "batch": 32,
        "learning_rate": 0.03,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "rate_warmup_steps": 100,
        "decay_factor": 0.1,
        "decay_epochs": 24,
        "epochs": 30,
    },
    "gpt": {
        "model": "gpt",
        "layers": 2,
        "channels": 96,
        "context": 64,
        "batch": 4,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0,
        "rate_warmup_steps": 50,
        "decay_factor": 0.3,
        "decay_epochs": 25,
        "epochs": 30,
    },
    "recommender": {
        "model": "recommender",
        "channels": 16,
        "batch": 64,
        "learning_rate": 0.5,
        "momentum": 0.9,
        "weight_decay": 0,
        "rate_warmup_steps": 50,
        "decay_factor": 0.3,
        "decay_epochs": 25,
        "epochs": 30,
    },
}
# As cnn-large and recommender are: hardly any noise but that of rounding.
TRAININGS["recommender-large"] = TRAININGS["recommender"] | {
    "workers": 2,
    "batch": 512,
    "learning_rate": 1.0,
    "decay_epochs": 13,
    "epochs": 16,
}
ADAM = {
    "workers": 2,
    "optimizer": "adamw",
    "batch": 128,
    "weight_decay": 0.01,
    "rate_warmup_steps": 50,
    "decay_factor": 0.1,
    "decay_epochs": 10,
    "epochs": 12,
}
TRAININGS["cnn-adam"] = ADAM | {"model": "cnn", "channels": 16, "learning_rate": 0.002}
TRAININGS["mlp-adam"] = ADAM | {"model": "mlp", "learning_rate": 0.0005}
TRAININGS["gpt-adam"] = ADAM | {
    "model": "gpt",
    "layers": 2,
    "channels": 96,
    "context": 64,
    "batch": 16,
    "learning_rate": 0.002,
    "decay_factor": 0.3,
    "decay_epochs": 16,
    "epochs": 20,
}
POLICIES = {"weir": "weir"} | {name: f"fixed:{plan}" for name, plan in regret.POLICIES.items()}


def scenario(training, network):
    keys = {"optimizer": "sgd"} | TRAININGS[training]
    keys |= {
        "steps_per_epoch": regret.EPOCH,
        "evaluate_every": 2,
    }
    workers = keys.pop("workers", 4)
    return (
        f"[scenario]\nname = untouched\nworkers = {workers}\nseed = 1\ntimeout_s = 300\n[training]\n"
        + "".join(f"{key} = {value}\n" for key, value in keys.items())
        + regret.network_section(regret.NETWORKS[network], keys["epochs"])
    )


def file_of(o, training, network, seed, name):
    return o.out / f"{training}-{network}-{name}-s{seed}.json"


def seconds(run):
    """Of the whole training, as regret.py times policy weir."""
    taken = {plan: ms / 1e3 for plan, ms in run["compress_ms"].items()}
    points, _ = regret.time_weir(run, run["compute_ms"] / 1e3, taken)
    return points[-1][1]


def main():
    own = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own.add_argument("weir", type=pathlib.Path)
    own.add_argument("out", type=pathlib.Path)
    for name, default in (
        ("trainings", ",".join(TRAININGS)),
        ("networks", "1ms-30"),
        ("seeds", "1"),
        ("policies", "bf16,weir"),
    ):
        own.add_argument(f"--{name}", default=default)
    o = own.parse_args()
    chosen = {"trainings": TRAININGS, "networks": regret.NETWORKS, "policies": POLICIES}
    for name, known in chosen.items():
        unknown = set(getattr(o, name).split(",")) - set(known)
        if unknown:
            own.error(f"--{name} '{min(unknown)}'; expected some of {', '.join(known)}")
    if not all(seed.isdigit() for seed in o.seeds.split(",")):
        own.error(f"--seeds '{o.seeds}'; expected whole numbers")
    o.out.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in o.seeds.split(",")]
    cells = list(itertools.product(o.trainings.split(","), o.networks.split(","), seeds))
    policies = o.policies.split(",")
    names = ["fp32", *(name for name in policies if name != "fp32")]
    files = [file_of(o, *cell, name) for cell in cells for name in names]
    untrained = [path for path in files if not path.exists()]
    began = time.monotonic()
    print(f"| training | network | seed | loss over fp32's: {' | '.join(names[1:])} | methods |")
    print(f"|---|---|---|{'---|' * len(names)}")
    for training, network, seed in cells:
        runs = {}
        for name in names:
            path = file_of(o, training, network, seed, name)
            if not path.exists():
                at = untrained.index(path)
                left = (time.monotonic() - began) * (len(untrained) - at) / at if at else 0
                eta = f" (ETA {left / 60:.0f} min)" if at else ""
                print(f"{at + 1} of {len(untrained)}: {path.stem}{eta}", file=sys.stderr)
                text = scenario(training, network)
                work = o.out / f"work-{path.stem}"
                run = regret.train(o.weir, text, POLICIES[name], seed, work)
                regret.write(path, run)
            runs[name] = json.loads(path.read_text())
        over = [100 * (runs[name]["final_loss"] / runs["fp32"]["final_loss"] - 1) for name in names]
        shown = ", ".join(
            f"{s['choice']} from {s['step']} on"
            for s in runs.get("weir", {}).get("switches", [])
            if s["trigger"] == "trial" and ": it holds the loss" in s["why"]
        )
        shares = " | ".join(
            f"{loss:+.2f} %"
            + (f" in {seconds(run) / seconds(runs['bf16']):.2f}" if "bf16" in runs else "")
            for loss, run in zip(over[1:], (runs[name] for name in names[1:]), strict=True)
        )
        print(f"| {training} | {network} | {seed} | {shares} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
