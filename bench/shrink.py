"""What few bits take from Adam's steps, on a training that they do not disturb.

A model of bench/ddp_train.py is trained with exact gradients; beside it every plan, CODEC:BITS as of bench/harm.py, gets
the same gradients of four workers, rounds them and their sum as `sra` does, and an Adam of its own makes of that the step
it would take.  Printed are, of the steps until each of those shown: how long those are along the exact ones (1: as long),
and the cosine between the two.  Both differ from run to run in the fourth digit alone, where a loss differs by chance
in the second."""

import argparse
import sys

import torch
from ddp_train import Task, batches, images, text
from harm import CODECS, FIRST, WORKERS, exchange, number, parts, passes

RATES = (0.9, 0.99)


class Adam:
    """The direction of its steps."""

    def __init__(self, n):
        self.m, self.v, self.steps = torch.zeros(n), torch.zeros(n), 0

    def step(self, g):
        self.steps += 1
        self.m.lerp_(g, 1 - RATES[0])
        self.v.lerp_(g * g, 1 - RATES[1])
        m, v = (x / (1 - r**self.steps) for x, r in zip((self.m, self.v), RATES, strict=True))
        return m / (v.sqrt() + 1e-8)


class Beside:
    """A plan, of whose residual so much is fed, and what its steps have been beside the exact ones."""

    def __init__(self, plan, fed, n):
        codec, _, bits = plan.partition(":")
        self.name, self.fed = f"{plan}, {fed:g} fed", fed
        self.codec = CODECS[codec], number(bits)
        self.held = [torch.zeros(n) for _ in range(WORKERS + 1)]
        self.usual = torch.zeros(n)
        self.adam, self.along, self.exact, self.own = Adam(n), 0.0, 0.0, 0.0

    def step(self, at, each, exact):
        """`at`: of the training, whose first are sent as they are."""
        mean = exchange(each, self.codec if at >= FIRST else None, self.held, self.fed, self.usual)
        step = self.adam.step(mean)
        self.along += float(step @ exact)
        self.exact += float(exact @ exact)
        self.own += float(step @ step)

    def tell(self):
        length = self.along / self.exact
        cosine = self.along / (self.exact * self.own) ** 0.5
        self.along = self.exact = self.own = 0.0
        return f"{length:.4f}, {cosine:.4f}"


def main(argv):
    p = argparse.ArgumentParser(prog="bench/shrink.py", description=__doc__.splitlines()[0])
    p.add_argument("--model", default="gpt", choices=("gpt", "lstm", "vit"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--shown", default="100,200", help="steps, ascending")
    p.add_argument("--fed", default="1,0.5", help="shares of the residual in a step")
    p.add_argument(
        "plans",
        nargs="*",
        default=[*(f"companded:{b}" for b in ("5", "4", "3.5", "3")), "whitened:4"],
    )
    o = p.parse_args(argv)
    shown = [int(s) for s in o.shown.split(",")]
    torch.set_num_threads(1)
    torch.manual_seed(o.seed)
    task = Task(o.model)
    data, _ = text() if task.kind == "text" else images()
    model = task.model()
    weights = list(model.parameters())
    size = sum(w.numel() for w in weights)
    optimizer = task.optimizer(weights)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, task.factor)
    feeds = [batches(task, data, WORKERS, rank, o.seed) for rank in range(WORKERS)]
    exact = Adam(size)
    try:
        rows = [Beside(plan, float(f), size) for plan in o.plans for f in o.fed.split(",")]
    except (KeyError, ValueError):
        p.error("a plan is CODEC:BITS with codec " + ", ".join(CODECS))
    told = {row.name: [] for row in rows}
    for at in range(shown[-1]):
        each, _ = passes(task, model, weights, [next(feed) for feed in feeds])
        mean = sum(each) / WORKERS
        step = exact.step(mean)
        for row in rows:
            row.step(at, each, step)
        for w, part in zip(weights, parts(mean, weights), strict=True):
            w.grad = part.clone()
        task.clip(model)
        optimizer.step()
        schedule.step()
        if at + 1 in shown:
            for row in rows:
                told[row.name].append(row.tell())
    print(
        f"| {o.model}, seed {o.seed}: length, cosine |"
        + "".join(f" until step {s} |" for s in shown)
    )
    print("|" + "---|" * (1 + len(shown)))
    for name, cells in told.items():
        print(f"| {name} |" + "".join(f" {cell} |" for cell in cells))


if __name__ == "__main__":
    main(sys.argv[1:])
