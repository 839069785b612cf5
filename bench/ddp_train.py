"""One rank of a training under DistributedDataParallel, until a target is reached: for bench/ddp.sh.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the launcher.  Rank 0 writes RESULT: one JSON
object with the method, the seconds and steps to the target, and the test metric along the way.  The
clock stops while the model is tested.  Models, data and settings of mlp, cnn and gpt are those of
scenarios/demo.ini, cnn.ini and gpt.ini; lstm and vit are trained nowhere else, and nothing was tuned to them.
lstm-clipped is lstm by SGD without momentum, whose gradients are clipped in nearly all steps."""

import argparse
import contextlib
import gzip
import itertools
import json
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
CONTEXT = 64
MODELS = ("mlp", "cnn", "gpt", "lstm", "lstm-clipped", "vit")


# --- data: a batch for (step, rank), and the test set ---------------------------------------------


def images():
    def read(name, head):
        raw = bytearray(gzip.decompress((IMAGES / name).read_bytes()))
        return torch.frombuffer(raw, dtype=torch.uint8)[head:]

    def pair(kind):
        x = read(f"{kind}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
        return (x - 0.2860) / 0.3530, read(f"{kind}-labels-idx1-ubyte.gz", 8).long()

    return pair("train"), pair("t10k")


def text():
    train, test = [], []
    for path in sorted(FORTUNES.iterdir()):
        if path.suffix or path.is_symlink() or not path.is_file():
            continue
        raw = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
        cut = len(raw) - len(raw) // 50
        train.append(raw[:cut])
        test.append(raw[cut:])
    train, test = torch.cat(train), torch.cat(test)
    starts = torch.arange(0, len(test) - CONTEXT - 1, CONTEXT)[:200]
    windows = torch.stack([test[s : s + CONTEXT + 1] for s in starts])
    return train, (windows[:, :-1], windows[:, 1:])


def batches(task, data, ranks, rank, seed):
    """For ever; no two ranks see the same samples in a step."""
    chance = torch.Generator().manual_seed(seed)
    if task.kind == "text":
        while True:
            starts = torch.randint(len(data) - CONTEXT - 1, (ranks, task.batch), generator=chance)
            windows = torch.stack([data[s : s + CONTEXT + 1] for s in starts[rank].tolist()])
            yield windows[:, :-1], windows[:, 1:]
    x, y = data
    while True:
        order = torch.randperm(len(y), generator=chance)
        for at in range(0, len(order) - ranks * task.batch + 1, ranks * task.batch):
            mine = order[at + rank * task.batch : at + (rank + 1) * task.batch]
            yield x[mine], y[mine]


# --- models ---------------------------------------------------------------------------------------


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 1024),
        nn.ReLU(),
        nn.Linear(1024, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def cnn(channels=24):
    layers, inputs = [], 1
    for outputs in (channels, 2 * channels, 4 * channels):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(1, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * 16, 10))


class Block(nn.Module):
    def __init__(self, width, heads, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.near, self.far = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.mix(self.near(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.narrow(nn.functional.gelu(self.wide(self.far(x))))


class Gpt(nn.Module):
    def __init__(self, layers=2, width=96):
        super().__init__()
        self.embedding, self.place = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        for table in (self.embedding, self.place):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, width // 32) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.embedding(x) + self.place.weight[: x.shape[1]]
        return self.norm(self.blocks(h)) @ self.embedding.weight.T


class Lstm(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.embedding = nn.Embedding(256, 64)
        self.layers = nn.LSTM(64, width, 2, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))[0])


class Vit(nn.Module):
    """Patches of 4 by 4 pixels; their mean is what is classified."""

    def __init__(self, layers=3, width=96):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.place = nn.Parameter(0.02 * torch.randn(49, width))
        self.blocks = nn.Sequential(
            *(Block(width, width // 32, causal=False) for _ in range(layers))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.blocks(h).mean(1))


class Task:
    """What is trained: the metric is the test set's accuracy of images, its loss of text."""

    def __init__(self, name):
        kind = name.removesuffix("-clipped")
        self.kind = "text" if kind in ("gpt", "lstm") else "images"
        self.model = {"mlp": mlp, "cnn": cnn, "gpt": Gpt, "lstm": Lstm, "vit": Vit}[kind]
        self.batch = {"mlp": 64, "cnn": 32, "gpt": 4, "lstm": 8, "vit": 16}[kind]
        self.steps = 300 if name == "mlp" else 1000
        self.every = 12 if name == "mlp" else 50
        self.target = {
            "mlp": 0.857,
            "cnn": 0.84,
            "gpt": 2.60,
            "lstm": 2.32,
            "lstm-clipped": 2.40,
            "vit": 0.80,
        }[name]
        self.name, self.falls = name, 800

    def optimizer(self, parameters):
        if self.name in ("gpt", "vit"):
            rate = 0.002 if self.name == "gpt" else 0.001
            return torch.optim.AdamW(parameters, rate, (0.9, 0.99), weight_decay=0.05)
        if self.name == "lstm":
            return torch.optim.Adam(parameters, 0.003)
        if self.name == "lstm-clipped":
            return torch.optim.SGD(parameters, 2.0)
        rate, momentum = (0.1, 0.8) if self.name == "mlp" else (0.05, 0.9)
        return torch.optim.SGD(parameters, rate, momentum, weight_decay=5e-4)

    def factor(self, step):
        """Of the learning rate."""
        if self.name == "mlp":
            return 0.1 if step >= 210 else 1.0
        return min(1.0, (step + 1) / 50) * (0.3 if self.name == "gpt" else 0.1) ** (
            step >= self.falls
        )

    def clip(self, model):
        """As recurrent nets are trained."""
        if self.name.startswith("lstm"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0 if self.name == "lstm" else 0.25)

    def loss(self, model, x, y):
        return cross_entropy(model(x).flatten(0, -2), y.flatten())

    def metric(self, model, x, y):
        with torch.no_grad():
            if self.kind == "text":
                return float(self.loss(model, x, y))
            # A thousand at a time: for all at once User-Mode Linux has no memory.
            right = [
                (model(a).argmax(-1) == b).sum()
                for a, b in zip(x.split(1000), y.split(1000), strict=True)
            ]
            return float(sum(right)) / len(y)

    def reached(self, metric):
        return metric <= self.target if self.kind == "text" else metric >= self.target


# --- methods --------------------------------------------------------------------------------------


def no_trial():
    return False


def prepare(method, model, optimizer, schedule, steps):
    """What is called after every step, to ask whether the step is a trial's, and to name the plan in
    force."""
    name, *settings = method.split(":")
    if name in ("weir", "undamped"):
        import weir.torch

        policy = ":".join(settings)
        options = {"policy": policy} if policy else {"steps": steps}
        if name == "undamped":
            options["update_rule"] = "sgd"
        attached = weir.torch.attach(model, optimizer, scheduler=schedule, **options)
        return (lambda: None), (lambda: attached.trial), lambda: attached.session.plan
    if name in ("fp16", "bf16"):
        model.register_comm_hook(None, getattr(default_hooks, f"{name}_compress_hook"))
    elif name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=int(settings[0]),
            start_powerSGD_iter=int(settings[1]),
            min_compression_rate=1,
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name == "local":
        return local(model, int(settings[0]), int(settings[1])), no_trial, lambda: method
    elif name != "fp32":
        raise SystemExit(f"unknown method {method}")
    return (lambda: None), no_trial, lambda: method


def local(model, period, warmup):
    """Post-local SGD with every rank a machine of its own: nothing is averaged but parameters."""
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    alone = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
    model.register_comm_hook(
        hook.PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=warmup),
        hook.post_localSGD_hook,
    )
    averager = PeriodicModelAverager(period=period, warmup_steps=warmup)
    return lambda: averager.average_parameters(model.parameters())


# --- training -------------------------------------------------------------------------------------


def train(options):
    task = Task(options.model)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    data, test = images() if task.kind == "images" else text()
    # PowerSGD's hook reduces a bucket's second factor when the first has come: over Gloo, two buckets
    # may do so in another order on each rank, and meet each other's messages.  So it gets one.
    buckets = {"bucket_cap_mb": 1024} if options.method.startswith("powersgd") else {}
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True, **buckets)
    optimizer = task.optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, task.factor)
    steps = options.steps or task.steps
    if steps < task.every:
        raise SystemExit(
            f"--steps {steps}: expected {task.every} or more, after which it is tested"
        )
    stepped, in_trial, plan = prepare(options.method, model, optimizer, schedule, steps)
    source = itertools.islice(batches(task, data, ranks, rank, options.seed), steps)
    if options.method.startswith(("weir", "undamped")):
        import weir.torch

        source = weir.torch.batches(source, model, length=steps)
    curve, plans, reached, elapsed = [], [], None, 0.0
    dist.barrier()
    begin = time.monotonic()
    step = trial_steps = 0
    for x, y in source:
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(model, x, y)
        loss.backward()
        task.clip(model)
        optimizer.step()
        schedule.step()
        stepped()
        trial_steps += in_trial()
        step += not in_trial()
        if in_trial() or step % task.every:
            continue
        elapsed += time.monotonic() - begin
        told = torch.zeros(2, dtype=torch.float64)
        if rank == 0:
            metric = task.metric(model.module, *test)
            curve.append([elapsed, step, metric])
            if not plans or plans[-1][1] != plan():
                plans.append([step, plan()])
            print(f"{elapsed:8.1f} s  step {step:5d}  {metric:.4f}  {plan()}", flush=True)
            if reached is None and task.reached(metric):
                reached = [elapsed, step]
            over = math.isnan(metric) or elapsed > options.limit or (reached and not options.whole)
            told[0] = bool(over)
        dist.broadcast(told, 0)
        if told[0]:
            break
        begin = time.monotonic()
    if rank == 0 and options.result:
        result = {
            "model": options.model,
            "method": options.method,
            "seed": options.seed,
            "torch": torch.__version__,
            "target": task.target,
            "time_to_target_s": reached[0] if reached else None,
            "steps_to_target": reached[1] if reached else None,
            "elapsed_s": elapsed,
            "whole": options.whole,
            "finished": curve[-1][1] == steps,
            "steps": curve[-1][1],
            "trial_steps": trial_steps,
            "last_metric": curve[-1][2],
            "plans": plans,
            "curve": curve,
        }
        path = pathlib.Path(options.result)
        path.with_suffix(".tmp").write_text(json.dumps(result) + "\n")
        path.with_suffix(".tmp").rename(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument(
        "--method",
        required=True,
        help="fp32, fp16, bf16, powersgd:RANK:START, local:PERIOD:WARMUP, weir[:POLICY], or "
        "undamped:POLICY, which feeds all of what rounding leaves, as under SGD",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds of training")
    parser.add_argument("--whole", action="store_true", help="go on after the target")
    parser.add_argument("--result")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo")
    with contextlib.suppress(KeyboardInterrupt):
        train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
