"""What methods end a training with, beside each other: whole trainings of bench/ddp_train.py over the loopback, whose
losses depend on no network, one after the other in the same processes.

    torchrun --nproc-per-node 4 bench/ddp_pairs.py OUT --model gpt --seeds 1-10 fp32 weir:fixed:companded:0.15625:sra ...

A training that OUT has is not run again.  Rank 0 prints, for each method beside every one named before it, by how many
per cent its test loss is higher (of images: by how many points its accuracy is lower), in the mean over seeds with the
error of that.  Trainings part by chance as soon as their first steps differ at all, bf16's from fp32's as well; methods
that are the same in the first steps (policy schedule:PLAN;step=150:PLAN) part late, and tell the most of each other."""

import argparse
import gc
import json
import math
import pathlib
import statistics

import ddp_train
import torch
import torch.distributed as dist


def file_of(options, method, seed):
    name = method.replace(":", "_").replace(";", "+")
    return pathlib.Path(options.out) / f"{options.model}-{name}-{seed}.json"


def there(path):
    """Rank 0's answer, for all."""
    yes = torch.tensor([path.exists()], dtype=torch.int32)
    dist.broadcast(yes, 0)
    return bool(yes)


def train(options, method, seed):
    path = file_of(options, method, seed)
    if there(path):
        return
    if dist.get_rank() == 0:
        print(f"== {options.model}, seed {seed}: {method}", flush=True)
    ddp_train.train(
        argparse.Namespace(
            model=options.model,
            method=method,
            seed=seed,
            steps=options.steps,
            limit=math.inf,
            whole=True,
            result=str(path),
        )
    )
    gc.collect()  # what the method held of the model


def metrics(options, method, seed):
    """By step."""
    curve = json.loads(file_of(options, method, seed).read_text())["curve"]
    return {step: metric for _, step, metric in curve}


def worse(task, a, b, step):
    return 100 * ((a[step] / b[step] - 1) if task.kind == "text" else b[step] - a[step])


def tell(options):
    task = ddp_train.Task(options.model)
    last = options.steps or task.steps
    shown = sorted({max(1, int(last * x) // task.every) * task.every for x in (0.5, 0.9, 1)})
    unit = "% of the loss" if task.kind == "text" else "points of accuracy"
    print(f"| method | beside | {unit}, step " + " | ".join(map(str, shown)) + " | least, most |")
    print("|" + "---|" * (3 + len(shown)))
    for k, method in enumerate(options.methods):
        for other in options.methods[:k]:
            each = [
                [
                    worse(task, metrics(options, method, s), metrics(options, other, s), step)
                    for s in options.seeds
                ]
                for step in shown
            ]
            means = [
                f"{statistics.mean(v):+.2f}"
                + (f" ± {statistics.stdev(v) / math.sqrt(len(v)):.2f}" if len(v) > 1 else "")
                for v in each
            ]
            print(
                f"| `{method}` | `{other}` | "
                + " | ".join(means)
                + f" | {min(each[-1]):+.2f}, {max(each[-1]):+.2f} |",
                flush=True,
            )


def seeds_of(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main():
    parser = argparse.ArgumentParser(
        prog="bench/ddp_pairs.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", metavar="OUT", help="folder, one JSON file a training")
    parser.add_argument("--model", choices=ddp_train.MODELS, default="gpt")
    parser.add_argument("--seeds", type=seeds_of, default="1-3", help="FIRST-LAST")
    parser.add_argument("--steps", type=int, default=0, help="0: as many as the model takes")
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="as of bench/ddp_train.py")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for method in options.methods:
            train(options, method, seed)
    if dist.get_rank() == 0:
        tell(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
