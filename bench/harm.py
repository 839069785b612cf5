"""What few bits do to a training that has no plateau: of bench/ddp_train.py or bench/unlike.py, by four workers in one process.

Their gradients are summed as `sra` sums them: every worker sends its gradient and what it has held back, rounded, and
the sum is rounded once more.  A plan is CODEC:BITS, or CODEC:BITS,STEP,CODEC:BITS with another from that step on; the
first is in force from step 5 on.  Printed are the means of 25 losses in every 150 steps, over fp32's, on the same batches."""

import argparse
import statistics
import sys

import torch
import unlike
from ddp_train import MODELS, Task, batches, images, text

WORKERS, BUCKET, FIRST, FEW, SHOWN, NEWEST = 4, 128, 5, 5, 150, 25


def buckets(e):
    return torch.cat([e, e.new_zeros(-e.numel() % BUCKET)]).view(-1, BUCKET)


def bf16(e, bits):
    return e.bfloat16().float()


def qsgd(e, bits):
    """kernels/qsgd.c: a grid from the smallest to the largest of a bucket."""
    x = buckets(e)
    low, high = x.min(1, True)[0], x.max(1, True)[0]
    width = (high - low) / (2**bits - 1)
    step = torch.where(width > 0, width, torch.ones_like(width))
    codes = ((x - low) / step + torch.rand_like(x)).floor().clamp(0, 2**bits - 1)
    return (low + codes * step).flatten()[: e.numel()]


def qsgd_l2(e, bits):
    """kernels/qsgd.c: a grid of both signs whose last value is the bucket's L2 norm, in steps of bfloat16."""
    x = buckets(e)
    top = 2 ** (bits - 1) - 1
    step = (x.norm(dim=1, keepdim=True) / top).clamp(min=1e-30).bfloat16().float()
    return ((x / step + torch.rand_like(x)).floor().clamp(-top, top) * step).flatten()[: e.numel()]


def dithered(e, bits):
    """kernels/dithered.c: an even grid, shifted at random and shifted back."""
    x = buckets(e)
    step = (x.norm(dim=1, keepdim=True) / (5 * 2 ** (bits - 4))).clamp(min=1e-30).bfloat16().float()
    shift = torch.rand_like(x) - 0.5
    return (((x / step + shift).round() - shift) * step).flatten()[: e.numel()]


def minifloat(e, bits):
    """kernels/minifloat.c: 4 bits of exponent, in units of the bucket's largest."""
    x = buckets(e)
    most = x.abs().max(1, True)[0].clamp(min=1e-30)
    size = (x / most).abs()
    unit = 2.0 ** (size.clamp(min=1e-30).log2().floor().clamp(-14, 0) - (bits - 5))
    drawn = ((size / unit + torch.rand_like(size)).floor() * unit).clamp(max=1)
    return (drawn * x.sign() * most).flatten()[: e.numel()]


def companded(e, bits):
    """kernels/companded.c: the nearest of squares, of which the bucket's largest is the last, in units of bfloat16."""
    x = buckets(e)
    top = (int(2**bits) - 1) // 2
    unit = (x.abs().max(1, True)[0].clamp(min=1e-30) / top**2).bfloat16().float()
    root = ((x / unit).abs() - 0.25).clamp(min=0).sqrt().add(0.5).floor().clamp(max=top)
    return (root**2 * x.sign() * unit).flatten()[: e.numel()]


def whitened(e, bits):
    """kernels/whitened.c: the nearest of an even grid, of elements in units of what they usually are."""
    x = buckets(e)
    top = 2 ** (bits - 1) - 1
    root = (x.square().sum(1, True) / BUCKET).sqrt()
    most = x.abs().max(1, True)[0]
    step = torch.maximum(0.7 * 2.0 ** (4 - bits) * root, most / top).clamp(min=1e-30)
    step = step.bfloat16().float()
    return ((x / step).round().clamp(-top, top) * step).flatten()[: e.numel()]


def units(usual):
    """To a power of two, and no less than a 256th of the largest of a bucket's; an eighth of it where nothing is known."""
    power = buckets(usual.clamp(min=1e-38).log2().div(2).round())
    most = power.max(1, True)[0]
    known = torch.maximum(power, most - 8)
    return 2.0 ** torch.where(buckets(usual) > 0, known, most - 3).flatten()[: usual.numel()]


def follow(usual, average):
    """The mean square of averages of late."""
    usual.copy_((usual + (average.square() - usual) / 16).bfloat16())


CODECS = {
    "bf16": bf16,
    "qsgd": qsgd,
    "qsgd-l2": qsgd_l2,
    "dithered": dithered,
    "minifloat": minifloat,
    "companded": companded,
    "whitened": whitened,
}


def number(text):
    """Of bits; half ones are companded's."""
    return int(text) if text.isdigit() else float(text)


def stages_of(plan):
    """[(step, codec, bits)], the latest first."""
    first, *rest = plan.split(",")
    stages = [
        (FIRST, first),
        *((int(step), which) for step, which in zip(rest[::2], rest[1::2], strict=True)),
    ]
    return [
        (step, CODECS[which.split(":")[0]], number(which.split(":")[1]))
        for step, which in reversed(stages)
    ]


def send(codec, g, held, fed, unit):
    """What is sent of g, of whose residual so much is fed; held becomes the next residual."""
    sent = codec[0]((g + fed * held) / unit, codec[1]) * unit
    held += g - sent
    return sent


def gradient(weights):
    return torch.cat([w.grad.flatten() for w in weights])


def exchange(gradients, codec, held, fed, usual):
    """The average of workers' gradients, sent as it is without a codec; held's last is the sum's."""
    sent = []
    unit = units(usual) if codec is not None and codec[0] is whitened else 1
    for rank in range(WORKERS + 1):
        g = gradients[rank] if rank < WORKERS else sum(sent) / WORKERS
        sent.append(g if codec is None else send(codec, g, held[rank], fed, unit))
    follow(usual, sent[-1])
    return sent[-1]


def passes(task, model, weights, batch):
    """Gradients and losses of the workers."""
    gradients, told = [], []
    for x, y in batch:
        model.zero_grad()
        loss = task.loss(model, x, y)
        loss.backward()
        told.append(loss.item())
        gradients.append(gradient(weights))
    return gradients, told


def parts(flat, weights):
    return [
        part.view_as(w)
        for w, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True)
    ]


def move(weights, by):
    with torch.no_grad():
        for w, part in zip(weights, parts(by, weights), strict=True):
            w += part


def muon(model):
    """Matrices by Muon, as it is meant to be used, and all else by AdamW."""
    matrices = {
        id(w): w
        for name, w in model.named_parameters()
        if w.dim() == 2 and not any(part in name for part in ("embedding", "place", "head"))
    }
    rest = [w for w in model.parameters() if id(w) not in matrices]
    return [
        torch.optim.Muon(list(matrices.values()), 0.01, weight_decay=0.05),
        torch.optim.AdamW(rest, 0.001, (0.9, 0.99), weight_decay=0.05),
    ]


OPTIMIZERS = {
    "muon": muon,
    "adafactor": lambda model: [torch.optim.Adafactor(model.parameters(), 0.01)],
    "adagrad": lambda model: [torch.optim.Adagrad(model.parameters(), 0.01)],
    "rmsprop": lambda model: [torch.optim.RMSprop(model.parameters(), 0.0007)],
    "adadelta": lambda model: [torch.optim.Adadelta(model.parameters(), 1.0)],
    "adamax": lambda model: [torch.optim.Adamax(model.parameters(), 0.002)],
    "nadam": lambda model: [torch.optim.NAdam(model.parameters(), 0.001)],
    "radam": lambda model: [torch.optim.RAdam(model.parameters(), 0.002)],
    "amsgrad": lambda model: [
        torch.optim.AdamW(model.parameters(), 0.001, (0.9, 0.99), weight_decay=0.05, amsgrad=True)
    ],
}


def own(task, data, rank):
    """A worker's part of data that are not alike: its classes of images, or its stretch of the text."""
    if task.kind == "text":
        return data.chunk(WORKERS)[rank]
    images, labels = data
    mine = labels * WORKERS // (int(labels.max()) + 1) == rank
    return images[mine], labels[mine]


def keep_in_bf16(weights, optimizers):
    """As model.bfloat16() has them: parameters, and what is kept of them."""
    with torch.no_grad():
        for w in weights:
            w.copy_(w.bfloat16())
        for one in optimizers:
            for kept in one.state.values():
                for part in kept.values():
                    if isinstance(part, torch.Tensor) and part.dim():
                        part.copy_(part.bfloat16())


def train(o, seed, stages):
    torch.manual_seed(seed)
    task = unlike.Unlike(o.model) if o.model in unlike.MODELS else Task(o.model)
    task.falls = o.falls
    data, _ = text() if task.kind == "text" else images()
    model = task.model()
    weights = [w for w in model.parameters() if w.requires_grad]
    optimizers = OPTIMIZERS[o.optimizer](model) if o.optimizer else [task.optimizer(weights)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(one, task.factor) for one in optimizers]
    feeds = [
        batches(task, own(task, data, rank), 1, 0, seed + 1000 * rank)
        if o.apart
        else batches(task, data, WORKERS, rank, seed)
        for rank in range(WORKERS)
    ]
    held = [
        torch.zeros(sum(w.numel() for w in weights)) for _ in range(WORKERS + 1)
    ]  # the last: of the sum
    usual = torch.zeros_like(held[0])
    losses = []
    for step in range(o.steps):
        codec = next(((f, bits) for at, f, bits in stages if step >= at), None)
        fed = o.fed if codec is not None and codec[1] < FEW else 1
        batch = [next(feed) for feed in feeds]
        if o.half:
            keep_in_bf16(weights, optimizers)
        gradients, told = passes(task, model, weights, batch)
        if o.half:
            gradients = [bf16(g, 16) for g in gradients]
        average = exchange(gradients, codec, held, fed, usual)
        if reach := getattr(task, "reach", None):  # what is averaged says where gradients are taken
            by = reach / average.norm() * average
            move(weights, by)
            gradients, _ = passes(task, model, weights, batch)
            move(weights, -by)
            average = exchange(gradients, codec, held, fed, usual)
        if o.half:
            average = bf16(average, 16)
        for w, part in zip(weights, parts(average, weights), strict=True):
            w.grad = part.clone()
        task.clip(model)
        for each in (*optimizers, *schedules):
            each.step()
        losses.append(statistics.mean(told))
    return [statistics.mean(losses[to - NEWEST : to]) for to in range(SHOWN, o.steps + 1, SHOWN)]


def main(argv):
    p = argparse.ArgumentParser(prog="bench/harm.py", description=__doc__.splitlines()[0])
    p.add_argument("--model", default="lstm", choices=(*MODELS, *unlike.MODELS))
    p.add_argument("--optimizer", choices=OPTIMIZERS, help="the model's own without")
    p.add_argument("--seeds", default="1,2", help="whole numbers")
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--falls", type=int, default=800, help="the step from which on the rate is low")
    p.add_argument(
        "--half", action="store_true", help="parameters, gradients and moments are bfloat16"
    )
    p.add_argument(
        "--apart",
        action="store_true",
        help="workers have classes, or a stretch of text, of their own",
    )
    p.add_argument(
        "--fed",
        type=float,
        default=1,
        help="of the residual in a step of fewer than 5 bits; 0.5 as under Adam",
    )
    p.add_argument(
        "plans",
        nargs="*",
        default=["bf16:16", "minifloat:8", "minifloat:8,150,qsgd:4", "qsgd:5", "qsgd:4"],
    )
    o = p.parse_args(argv)
    try:
        stages = {plan: stages_of(plan) for plan in o.plans}
        seeds = [int(s) for s in o.seeds.split(",")]
    except (KeyError, ValueError, IndexError):
        p.error(
            "a plan is CODEC:BITS with codec bf16, qsgd, qsgd-l2, dithered, minifloat, companded or whitened, or CODEC:BITS,STEP,CODEC:BITS; seeds are whole numbers"
        )
    torch.set_num_threads(1)
    print(
        "| model | seed | from step 5 on |"
        + "".join(f" {to} |" for to in range(SHOWN, o.steps + 1, SHOWN))
    )
    print("|" + "---|" * (3 + o.steps // SHOWN))
    for seed in seeds:
        fp32 = train(o, seed, [])
        print(
            f"| {o.model} | {seed} | fp32 |" + "".join(f" {loss:.4f} |" for loss in fp32),
            flush=True,
        )
        for plan in o.plans:
            over = [
                a - b
                for a, b in zip(
                    train(o, seed, stages[plan]),
                    fp32,
                    strict=True,
                )
            ]
            print(
                f"| {o.model} | {seed} | {plan} |" + "".join(f" {loss:+.4f} |" for loss in over),
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
