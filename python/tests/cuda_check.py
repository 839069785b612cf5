"""weir.torch on a CUDA device: two ranks that share the one there is, over gloo, beside plain DDP.

    PYTHONPATH=python WEIR_LIBRARY=.../libweir.so WEIR_CUDA_LIBRARY=.../libweir_cuda.so.0 \\
        python3 python/tests/cuda_check.py [--seconds 170] [CASE ...]

A plain script, which takes torch and no more.  Cases run one after the other in the same two processes; after
one that fails, or takes longer than a case may, they are started anew.  Last comes a summary; exit
code 1 if a case has failed, 77 where there is no device.  With WEIR_TEST_DEVICE=1 and tests/emulate's
library it runs in host memory as if that were a device (emulated.py), which shows that the script
works."""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import json
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common

RANKS = 2
CASE_S = 45.0  # the longest that a case may take
START_S = 60.0  # and that processes may take to start
EXACT = "fixed:none:1:dense-ring"
LOSSY = "fixed:topk:0.1:ag"
LARGE = {
    "none": EXACT,
    "qsgd 4 bits": "fixed:qsgd:0.125:sra",
    "topk 0.01": "fixed:topk:0.01:ag",
    "powersgd 4": "fixed:powersgd:4:dense-ring",
}
EMULATED = bool(os.environ.get("WEIR_TEST_DEVICE"))

if "RANK" in os.environ:  # the parent has no need of torch
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    import weir.torch

    DEVICE = torch.device("cpu" if EMULATED else "cuda:0")

    class Net(nn.Module):
        """Branches that a step may leave out."""

        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.first = nn.Linear(24, width)
            self.left = nn.Linear(width, width)
            self.right = nn.Linear(width, width)
            self.last = nn.Linear(width, 24)

        def forward(self, x: torch.Tensor, way: str = "both") -> torch.Tensor:
            x = torch.relu(self.first(x))
            if way in ("both", "left"):
                x = x + torch.relu(self.left(x))
            if way in ("both", "right"):
                x = x + torch.relu(self.right(x))
            return self.last(x)

    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, bias=False)
            ).to(memory_format=torch.channels_last)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.reshape(-1, 3, 8, 8).to(memory_format=torch.channels_last)
            return self.layers(x)

    class Attention(nn.Module):
        """With tied embeddings."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.out = nn.Linear(32, 50, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            words = (x.abs() * 17).long() % 50
            return self.out(self.block(self.embedding(words)))

    class Late(torch.autograd.Function):
        """The gradient comes some milliseconds after it was queued."""

        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            busy(6)
            return gradient.clone()


# --- what cases are made of --------------------------------------------------------------------------


def rank() -> int:
    return dist.get_rank()


def busy(milliseconds: float) -> None:
    """Keep the current stream busy for about that long."""
    if not EMULATED:
        torch.cuda._sleep(int(1.5e6 * milliseconds))


@contextlib.contextmanager
def side_stream() -> Iterator[None]:
    """Another stream than the default one is current."""
    if EMULATED:
        yield
        return
    stream = torch.cuda.Stream(DEVICE)
    stream.wait_stream(torch.cuda.current_stream(DEVICE))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(DEVICE).wait_stream(stream)


def batch(step: int, size: int = 16) -> torch.Tensor:
    seed = torch.Generator().manual_seed(1000 * step + rank())
    return torch.randn(size, 24, generator=seed).to(DEVICE)


def wide_batch(step: int) -> torch.Tensor:
    seed = torch.Generator().manual_seed(1000 * step + rank())
    return torch.randn(4, 192, generator=seed).to(DEVICE)


def ddp(model: nn.Module, **options: Any) -> DDP:
    """Buckets hold a tensor or two."""
    options = {"bucket_cap_mb": 0.002, **options}
    return DDP(model.to(DEVICE), device_ids=None if EMULATED else [0], **options)


def pair(model: nn.Module, policy: str = EXACT, **options: Any) -> tuple[DDP, DDP, Any]:
    """Plain DDP, DDP with Weir, and what attach() returned."""
    about = {k: options.pop(k) for k in ("scaler",) if k in options}
    plain, ours = ddp(copy.deepcopy(model), **options), ddp(model, **options)
    return plain, ours, weir.torch.attach(ours, policy=policy, timeout_s=30, **about)


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    return model(batch(step)).square().mean()


def backward(*models: nn.Module, step: int, loss: Any = loss_of) -> None:
    for model in models:
        model.zero_grad()
        loss(model, step).backward()


def near(a: torch.Tensor, b: torch.Tensor, what: str, ulps: float = 8) -> None:
    unit = torch.finfo(a.dtype).eps * max(a.abs().max().item(), 1e-30)
    off = (a.double() - b.double()).abs().max().item()
    assert off <= ulps * unit, f"{what} is off by {off / unit:.1f} units of the last place"


def alike(plain: nn.Module, ours: nn.Module, ulps: float = 8) -> None:
    for (name, p), q in zip(plain.named_parameters(), ours.parameters()):
        assert (p.grad is None) == (q.grad is None), f"{name}: {p.grad} beside {q.grad}"
        if p.grad is not None:
            near(p.grad, q.grad, name, ulps)


def identical(tensors: Any, what: str = "gradients") -> None:
    """Both ranks hold the same bits."""
    flat = torch.cat([t.detach().float().flatten().cpu() for t in tensors if t is not None])
    others = [torch.empty_like(flat) for _ in range(RANKS)]
    dist.all_gather(others, flat)
    for other in others:
        assert torch.equal(other.view(torch.int32), flat.view(torch.int32)), f"ranks' {what} differ"


def grads(model: nn.Module) -> list[Any]:
    return [p.grad for p in model.parameters()]


# --- cases -------------------------------------------------------------------------------------------


def exact(model: str) -> None:
    """Gradients and, after 20 steps of SGD, parameters are plain DDP's but for rounding."""
    made, loss = {
        "net": (Net, loss_of),
        "convolutions": (Convolutions, lambda m, s: m(wide_batch(s)).square().mean()),
        "attention": (Attention, lambda m, s: m(batch(s)).square().mean()),
    }[model]
    plain, ours, attached = pair(made())
    settle = [torch.optim.SGD(m.parameters(), 0.05) for m in (plain, ours)]
    for step in range(20):
        backward(plain, ours, step=step, loss=loss)
        if step == 0:
            alike(plain, ours, 32)
        identical(grads(ours))
        for optimizer in settle:
            optimizer.step()
    for (name, p), q in zip(plain.named_parameters(), ours.parameters()):
        assert torch.allclose(p, q, rtol=1e-4, atol=1e-5), f"{name}: {(p - q).abs().max()}"
    assert attached.info.step == 19
    attached.close()


def same_bits(policy: str) -> dict[str, Any]:
    """What is lossy leaves the same bits on both ranks, and trains."""
    model = ddp(nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, 24)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    attached = weir.torch.attach(model, optimizer, policy=policy, timeout_s=30)
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        x = batch(step)
        loss = (model(x) - x).square().mean()
        loss.backward()
        identical(grads(model))
        optimizer.step()
        losses.append(loss.item())
        assert not attached.info.lost
    identical(model.parameters(), "parameters")
    told = {"plan": attached.info.plan, "first": losses[0], "last": losses[-1]}
    attached.close()
    assert losses[-1] < 0.8 * losses[0], told
    return told


def mass() -> None:
    """All gradients ever, once what is held back has come, are what parameters have got."""
    plain, ours, attached = pair(Net(), LOSSY)
    due = [torch.zeros_like(p) for p in plain.parameters()]
    got = [torch.zeros_like(p) for p in plain.parameters()]
    for step in range(60):
        silent = step >= 10
        if silent:
            backward(ours, step=step, loss=lambda m, s: m(batch(s)).mul(0).sum())
        else:
            backward(plain, ours, step=step)
            for total, p in zip(due, plain.parameters()):
                total += p.grad
        for total, p in zip(got, ours.parameters()):
            total += p.grad
    for a, b in zip(due, got):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5 * a.abs().max().item())
    attached.close()


def scaler(policy: str) -> None:
    """Autocast and a GradScaler; one rank's loss is infinite in a step, which all skip."""
    kind = torch.bfloat16 if EMULATED else torch.float16
    scalers = [torch.amp.GradScaler(DEVICE.type, init_scale=64.0, growth_interval=3) for _ in "ab"]
    plain, ours, attached = pair(Net(), policy, scaler=scalers[1])
    settle = [torch.optim.SGD(m.parameters(), 0.05) for m in (plain, ours)]
    seen: list[float] = []
    report = attached.session.report_loss
    attached.session.report_loss = lambda loss: (seen.append(loss), report(loss))
    for step in range(12):
        x = batch(step)
        if step == 5 and rank() == 1:
            x[0, 0] = float("inf")
        before = [p.detach().clone() for p in ours.parameters()]
        for model, optimizer, scale in zip((plain, ours), settle, scalers):
            optimizer.zero_grad()
            with torch.autocast(DEVICE.type, dtype=kind):
                loss = model(x).float().square().mean()
            scale.scale(loss).backward()
            scale.step(optimizer)
            scale.update()
        assert scalers[0].get_scale() == scalers[1].get_scale(), f"step {step}"
        identical(ours.parameters(), "parameters")
        if step == 5:
            assert attached.info.lost
            for p, q in zip(ours.parameters(), before):
                assert torch.equal(p, q), "a step that was not finite has changed parameters"
        elif step != 5:
            assert abs(seen[-1] - loss.item()) <= 1e-3 * abs(loss.item()), (seen[-1], loss.item())
        if policy == EXACT:
            for (name, p), q in zip(plain.named_parameters(), ours.parameters()):
                assert torch.allclose(p, q, rtol=1e-2, atol=1e-3), f"step {step}: {name}"
    attached.close()


def accumulation() -> None:
    plain, ours, attached = pair(Net())
    for step in range(0, 9, 3):
        for model in (plain, ours):
            model.zero_grad()
            for micro in range(3):
                with model.no_sync() if micro < 2 else contextlib.nullcontext():
                    loss_of(model, step + micro).backward()
        alike(plain, ours, 16)
        identical(grads(ours))
    assert attached.info.step == 2
    attached.close()


def unused() -> None:
    """A branch that some ranks, or all, leave out of a step; and a static graph that leaves one out."""
    plain, ours, attached = pair(Net(), find_unused_parameters=True)
    for step in range(6):
        way = ["both", "left", "left" if rank() else "both"][step % 3]
        backward(plain, ours, step=step, loss=lambda m, s, w=way: m(batch(s), w).square().mean())
        alike(plain, ours)
        if step % 3 == 1:
            assert ours.module.right.weight.grad is None, "no rank has used it"
    attached.close()
    plain, ours, attached = pair(Net(), static_graph=True)
    for step in range(4):
        backward(plain, ours, step=step, loss=lambda m, s: m(batch(s), "left").square().mean())
        alike(plain, ours)
    attached.close()


def unused_mass() -> None:
    """What error feedback sends of a parameter that no rank uses is not lost."""
    plain, ours, attached = pair(Net(), LOSSY, find_unused_parameters=True)
    right = ours.module.right.weight
    due, got = torch.zeros_like(right), torch.zeros_like(right)
    for step in range(60):
        if step < 30:
            way = "both" if step < 3 else "left"
            backward(
                plain, ours, step=step, loss=lambda m, s, w=way: m(batch(s), w).square().mean()
            )
        else:
            backward(ours, step=step, loss=lambda m, s: m(batch(s)).mul(0).sum())
        if step < 30 and right.grad is not None:
            due += plain.module.right.weight.grad
        if right.grad is not None:
            got += right.grad
    assert due.abs().max() > 0
    assert torch.allclose(due, got, rtol=1e-4, atol=1e-5 * due.abs().max().item())
    attached.close()


def sixteen_bits(dtype: str) -> None:
    """Parameters of 16 bits: lent where DDP has them, averaged in 32, rounded once."""
    kind = getattr(torch, dtype)
    plain, ours, attached = pair(Net().to(kind), gradient_as_bucket_view=True)
    for step in range(5):
        backward(plain, ours, step=step, loss=lambda m, s: m(batch(s).to(kind)).square().mean())
        alike(plain, ours, 4)
        assert all(p.grad.dtype == kind for p in ours.parameters())
        identical(grads(ours))
    attached.close()


def clipping() -> None:
    plain, ours, attached = pair(Net())
    settle = [torch.optim.AdamW(m.parameters(), 0.01, foreach=True) for m in (plain, ours)]
    for step in range(6):
        backward(plain, ours, step=step)
        norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.01).item() for m in (plain, ours)]
        assert abs(norms[0] - norms[1]) <= 1e-4 * norms[0], norms
        for optimizer in settle:
            optimizer.step()
    for p, q in zip(plain.parameters(), ours.parameters()):
        assert torch.allclose(p, q, rtol=1e-3, atol=1e-4)
    attached.close()


def saved() -> None:
    """A group that stopped after three steps goes on: the same bits as one that did not."""
    for policy, options in ((LOSSY, {}), (LOSSY, {"find_unused_parameters": True})):
        model = Net()
        again = copy.deepcopy(model)
        _, whole, attached = pair(model, policy, **options)
        due = []
        for step in range(6):
            backward(whole, step=step)
            if step == 2:
                state = attached.state_dict()
            due.append([g.clone() for g in grads(whole)])
        attached.close()
        _, more, attached = pair(again, policy, **options)
        attached.load_state_dict(state)
        for step in range(3, 6):
            backward(more, step=step)
            for p, q in zip(more.parameters(), due[step]):
                assert torch.equal(p.grad, q), f"step {step}"
            assert attached.info.step == step
        attached.close()


def races(where: str) -> None:
    """Gradients come late, another stream is busy, averages are used and memory is taken at once."""
    width, steps = (16, 3) if EMULATED else (1024, 12)
    rate = width / 20  # so that every step changes weights by some tenth

    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = Late.apply(torch.tanh(layer(x)))
            return x

    model = Slow().to(DEVICE)
    alone = copy.deepcopy(model)
    seed = torch.Generator().manual_seed(5)
    inputs = [torch.randn(RANKS, 32, width, generator=seed).to(DEVICE) for _ in range(steps)]
    with side_stream() if where == "side" else contextlib.nullcontext():
        _, ours, attached = pair(model, bucket_cap_mb=0.5)
        optimizer = torch.optim.SGD(ours.parameters(), rate)
        other = None if EMULATED else torch.cuda.Stream(DEVICE)
        big = torch.randn(64 if EMULATED else 3000, 64 if EMULATED else 3000, device=DEVICE)
        for x in inputs:
            optimizer.zero_grad()  # frees gradients
            if other is not None:
                with torch.cuda.stream(other):
                    for _ in range(4):
                        big @ big
            busy(4)
            ours(x[rank()]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            junk = [torch.full((width, width), 1e9, device=DEVICE) for _ in range(8)]
            del junk
        attached.close()
        identical(ours.parameters(), "parameters")
    # By hand, without ranks: the mean of both ranks' gradients.
    settle = torch.optim.SGD(alone.parameters(), rate)
    for x in inputs:
        total = [torch.zeros_like(p) for p in alone.parameters()]
        for part in x:
            alone.zero_grad()
            alone(part).square().mean().backward()
            for t, p in zip(total, alone.parameters()):
                t += p.grad / RANKS
        for t, p in zip(total, alone.parameters()):
            p.grad = t
        settle.step()
    for (name, p), q in zip(alone.named_parameters(), ours.parameters()):
        off = (p - q).abs().max().item()
        assert off <= 1e-3 * p.abs().max().item(), f"{name} is off by {off}"


def loss_found() -> None:
    """The loss is where the backward pass begins, though a device's gradients come on another thread;
    a module that is computed again, by a backward pass within, does not hide it."""
    from torch.utils.checkpoint import checkpoint

    for again in (False, True):
        model = Net()
        if again:
            forward = model.left.forward
            model.left.forward = lambda x, f=forward: checkpoint(f, x, use_reentrant=True)
        ours = ddp(model)
        attached = weir.torch.attach(ours, policy=EXACT, timeout_s=30)
        seen: list[float] = []
        report = attached.session.report_loss
        attached.session.report_loss = lambda loss, s=seen, r=report: (s.append(loss), r(loss))
        due = []
        for step in range(4):
            ours.zero_grad()
            loss = loss_of(ours, step)
            due.append(loss.item())
            loss.backward()
        assert seen == torch.tensor(due).tolist(), (again, seen, due)
        attached.close()


def averaged() -> None:
    """weir.torch.average(), on the default stream and on another; some parameters are unused."""
    model = Net().to(DEVICE)
    plain = ddp(copy.deepcopy(model), find_unused_parameters=True)
    for step in range(6):
        way = "left" if rank() == 1 else "both"
        with side_stream() if step % 2 else contextlib.nullcontext():
            for m in (plain, model):
                m.zero_grad()
                loss = m(batch(step), way).square().mean()
                busy(3)
                loss.backward()
            info = weir.torch.average(model, loss=loss, policy=EXACT, timeout_s=30)
            alike(plain.module, model)
        assert info.step == step
        identical(grads(model))


def uneven_inputs() -> None:
    plain, ours, attached = pair(Net())
    for model in (plain, ours):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with model.join():
            for step in range(3 + rank()):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
    for (name, p), q in zip(plain.named_parameters(), ours.parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6), name
    attached.close()


def trials_leave_nothing() -> None:
    """A training with trials that are rolled back ends with the same bits as one without."""

    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 24)
            )
            self.register_buffer("passes", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.passes = self.passes + 1
            return self.layers(x) * (1 + 0.01 * self.passes + 0.01 * random.random())

    def end(trials: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = ddp(Drops())
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        attached = weir.torch.attach(model, optimizer, policy=EXACT, timeout_s=30)
        attached.session.begin = common.tried(attached, trials)
        torch.manual_seed(11 + rank())
        random.seed(11 + rank())
        for x in weir.torch.batches([batch(step) for step in range(20)], attached):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            busy(2)
            optimizer.step()
            x.zero_()
        moments = [v for s in optimizer.state.values() for v in s.values()]
        state = [t.detach().clone().cpu() for t in (*model.module.state_dict().values(), *moments)]
        attached.close()
        return state

    whole = end(())
    for trials in (((3, 5), (12, 4)), ((2, 1), (3, 11))):
        for at, (a, b) in enumerate(zip(whole, end(trials))):
            assert torch.equal(a, b), f"{at} of {len(whole)}: {a} beside {b}"


def shards() -> str:
    """FSDP2 inside of machines of one rank, attach() and average() between them."""
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return "left out: this torch has no fully_shard"
    model = Net().to(DEVICE)

    def sharded() -> Any:
        made = copy.deepcopy(model)
        fully_shard(made.left, mesh=mesh["inside"])
        return fully_shard(made, mesh=mesh["inside"])

    try:
        mesh = init_device_mesh(DEVICE.type, (RANKS, 1), mesh_dim_names=("between", "inside"))
        loss_of(sharded(), 0).backward()
    except Exception as error:
        return f"left out: torch's own fully_shard does not run over gloo here: {error}"
    plain = ddp(copy.deepcopy(model))
    mine, average = sharded(), sharded()
    between = mesh["between"].get_group()
    attached = weir.torch.attach(mine, group=between, policy=EXACT, timeout_s=30)
    for step in range(4):
        backward(plain, mine, average, step=step)
        weir.torch.average(average, group=between, policy=EXACT, timeout_s=30)
        for m in (mine, average):
            for (name, p), q in zip(plain.module.named_parameters(), m.parameters()):
                near(p.grad, q.grad.full_tensor(), name)
    attached.close()
    return "run"


def refusals() -> None:
    model = Net().to(DEVICE)
    wrapped = DDP(model)
    for key in ("device", "stream"):
        with common.refused(ValueError, f"{key}= is for Session"):
            weir.torch.attach(wrapped, **{key: 0})
    half = Net()
    half.left.to(DEVICE)
    with common.refused(TypeError, "on cuda:0"):
        weir.torch.average(half, policy=EXACT)


def sessions() -> None:
    """weir.Session with tensors, addresses and whatever has the CUDA array interface."""

    class Array:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor, self.__cuda_array_interface__ = tensor, tensor.__cuda_array_interface__

    stream = torch.cuda.Stream(DEVICE)
    with weir.Session(device=0, stream=stream, policy="fixed:topk:0.5:ag") as session:
        session.register("w", 4)
        session.start()
        with torch.cuda.stream(stream):
            w = torch.tensor([1.0, 4.0, 3.0, 2.0], device=DEVICE)
            for lent, due in ((w, [0, 4, 3, 0]), (w.data_ptr(), None), (Array(w), None)):
                w.copy_(torch.tensor([1.0, 4.0, 3.0, 2.0]))
                session.average([lent])
                assert due is None or w.tolist() == due, w
        with common.refused(ValueError, "memory of the host"):
            session.begin()
            session.submit(0, torch.zeros(4))
    with weir.Session() as session:
        session.register("w", 4)
        session.start()
        session.begin()
        for lent in (w, Array(w)):
            with common.refused(TypeError, "host memory"):
                session.submit(0, lent)


def speed(policy: str | None) -> dict[str, Any]:
    """Milliseconds of a step, of some 50 million parameters; None: plain DDP."""
    width, layers, warm, steps = (64, 2, 1, 2) if EMULATED else (2048, 12, 3, 10)
    torch.manual_seed(1)
    stack = (part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))
    model = ddp(nn.Sequential(*stack), bucket_cap_mb=25)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    attached = policy and weir.torch.attach(model, optimizer, policy=policy, timeout_s=30)
    x = torch.randn(64, width, device=DEVICE)
    times, infos = [], []
    for step in range(warm + steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if not EMULATED:
            torch.cuda.synchronize()
        if step >= warm:
            times.append(1e3 * (time.perf_counter() - begin))
            infos.append(attached.info if attached else None)
    told = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "median_ms": round(statistics.median(times), 2),
        "least_ms": round(min(times), 2),
    }
    if attached:
        told["plan"], told["transport"] = infos[-1].plan, attached.session.transport
        told["wire_bytes"] = infos[-1].wire_bytes
        for name in ("compute_s", "compress_s", "comm_s", "overhead_s"):
            value = 1e3 * statistics.median(getattr(info, name) for info in infos)
            told[name[:-1] + "ms"] = round(value, 2)
        attached.close()
    return told


CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((f"exact {m}", "exact", {"model": m}) for m in ("net", "convolutions", "attention")),
    *((f"same bits {name}", "same_bits", {"policy": p}) for name, p in list(LARGE.items())[1:]),
    ("same bits weir", "same_bits", {"policy": "weir"}),
    ("mass", "mass", {}),
    ("races default", "races", {"where": "default"}),
    ("races side", "races", {"where": "side"}),
    ("scaler exact", "scaler", {"policy": EXACT}),
    ("scaler topk", "scaler", {"policy": LOSSY}),
    ("accumulation", "accumulation", {}),
    ("unused", "unused", {}),
    ("unused mass", "unused_mass", {}),
    *((d, "sixteen_bits", {"dtype": d}) for d in ("bfloat16", "float16")),
    ("clipping", "clipping", {}),
    ("saved", "saved", {}),
    ("loss found", "loss_found", {}),
    ("averaged", "averaged", {}),
    ("uneven inputs", "uneven_inputs", {}),
    ("trials", "trials_leave_nothing", {}),
    ("shards", "shards", {}),
    *(() if EMULATED else (("refusals", "refusals", {}), ("sessions", "sessions", {}))),
    ("speed plain DDP", "speed", {"policy": None}),
    *((f"speed {name}", "speed", {"policy": p}) for name, p in LARGE.items()),
]


# --- the two processes, and who starts them ----------------------------------------------------------


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed goes elsewhere
    about: dict[str, Any] = {"torch": torch.__version__}
    if EMULATED:
        import emulated

        emulated.install()
        about["device"] = "emulated"
    elif not torch.cuda.is_available():
        print(json.dumps({"none": "torch finds no CUDA device"}), file=answers, flush=True)
        return
    else:
        torch.cuda.set_device(DEVICE)
        about["device"] = torch.cuda.get_device_name(DEVICE)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = False
    store = dist.FileStore(os.environ["WEIR_TEST_STORE"], RANKS)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=int(os.environ["RANK"]),
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=CASE_S),
    )
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        torch.manual_seed(7)
        try:
            answer = {"result": globals()[name](**arguments)}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


class Pair:
    """The two processes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        environment = {
            "GLOO_SOCKET_IFNAME": "lo",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "OMP_NUM_THREADS": "2",
            **os.environ,
            "WEIR_TEST_STORE": str(Path(self._folder.name) / "store"),
        }
        self._workers = [
            subprocess.Popen(
                [sys.executable, __file__],
                env={**environment, "RANK": str(r)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for r in range(RANKS)
        ]

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """A line of each.  Once one has failed the other gets two more seconds, as it may wait for it."""
        end = time.monotonic() + seconds
        told: list[dict[str, Any] | None] = [None] * RANKS
        while None in told and time.monotonic() < end:
            waiting = {self._workers[r].stdout: r for r in range(RANKS) if told[r] is None}
            for stream in select.select(list(waiting), [], [], max(0.0, end - time.monotonic()))[0]:
                line = stream.readline()
                told[waiting[stream]] = json.loads(line) if line else {"error": "the process ended"}
                if "error" in told[waiting[stream]]:
                    end = min(end, time.monotonic() + 2)
        return [t or {"error": "no answer in time"} for t in told]

    def ask(self, name: str, arguments: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
        for worker in self._workers:
            with contextlib.suppress(OSError):  # one that has ended does not answer either
                worker.stdin.write(json.dumps([name, arguments]) + "\n")
                worker.stdin.flush()
        return self.answers(seconds)

    def stop(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()
        self._folder.cleanup()


def started(told: list[dict[str, Any]]) -> Pair | str:
    """The processes, and what they tell of themselves; or why there are none."""
    made = Pair()
    told[:] = made.answers(START_S)
    why = next(
        (str(t.get("error") or t["none"]) for t in told if "error" in t or "none" in t), None
    )
    if why is None:
        return made
    made.stop()
    return why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=170.0, help="no case begins after that")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="by the beginning of its name")
    wanted = parser.parse_args()
    begin = time.monotonic()
    about: list[dict[str, Any]] = []
    processes = started(about)
    if isinstance(processes, str):
        print(f"cuda_check: {'skipped' if 'none' in about[0] else 'failed'}: {processes}")
        return 77 if "none" in about[0] else 1
    told: dict[str, str] = {}
    speeds: dict[str, Any] = {}
    for name, function, arguments in CASES:
        if wanted.cases and not any(name.startswith(c) for c in wanted.cases):
            continue
        if time.monotonic() - begin > wanted.seconds:
            told[name] = "left out: no time"
            continue
        if isinstance(processes, str):
            processes = started(about)
        if isinstance(processes, str):
            told[name] = f"FAILED: the processes do not start: {processes}"
            continue
        at = time.monotonic()
        answers = processes.ask(function, arguments, CASE_S)
        errors = [f"rank {r}: {a['error']}" for r, a in enumerate(answers) if "error" in a]
        if errors:
            processes.stop()
            processes = "stopped"
            # The cause, rather than what followed from it on the other rank.
            lines = [e.strip().splitlines()[-1] for e in errors]
            told[name] = "FAILED: " + " | ".join(lines)
            print("\n".join(errors), flush=True)
        else:
            result = answers[0]["result"]
            left = isinstance(result, str) and result.startswith("left out")
            told[name] = result if left else "ok"
            if function == "speed":
                speeds[name.removeprefix("speed ")] = result
            elif result is not None:
                print(f"{name}: {json.dumps(result)}")
        print(f"{name}: {told[name]} ({time.monotonic() - at:.1f} s)", flush=True)
    if not isinstance(processes, str):
        processes.stop()
    print(json.dumps({**about[0], "speed": speeds}))
    failed = [name for name, word in told.items() if word.startswith("FAILED")]
    print(f"\n== {about[0].get('device')}, torch {about[0].get('torch')}")
    for name, word in told.items():
        if word != "ok":
            print(f"  {name}: {word[:300]}")
    good = sum(word == "ok" for word in told.values())
    print(f"== {good} of {len(told)} ok, {len(failed)} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    if "RANK" in os.environ:
        serve()
    else:
        sys.exit(main())
