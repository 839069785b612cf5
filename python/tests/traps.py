"""What runs on every rank: trainings under DDP beside the same under attach().

The two models start alike and see the same batches.  Under policy fixed:none:1:dense-ring Weir only
adds up in another order than Gloo, so gradients differ by rounding alone."""

from __future__ import annotations

import atexit
import contextlib
import copy
import datetime
import errno
import gc
import json
import logging
import os
import pickle
import random
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from common import refused, tried
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

import weir.torch

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # before torch 2.6
    from torch.distributed._composable.fsdp import (  # noqa: F401
        MixedPrecisionPolicy,
        fully_shard,
    )

EXACT = "fixed:none:1:dense-ring"
LOSSY = "fixed:topk:0.1:ag"


_store: list[dist.Store] = []


def rank() -> int:
    return dist.get_rank()


class Net(nn.Module):
    """Branches that a step may leave out, and a weight that is used twice."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.left = nn.Linear(16, 16)
        self.right = nn.Linear(16, 16)
        self.last = nn.Linear(16, 12)
        if shared:
            self.right.weight = self.left.weight

    def forward(self, x: torch.Tensor, way: str = "both") -> torch.Tensor:
        x = torch.relu(self.first(x))
        if way in ("both", "left"):
            x = x + torch.relu(self.left(x))
        if way in ("both", "right"):
            x = x + torch.relu(self.right(x))
        return self.last(x)


def batch(step: int, size: int = 8) -> torch.Tensor:
    return torch.randn(size, 12, generator=torch.Generator().manual_seed(1000 * step + rank()))


def losses_told(attached: Any) -> list[float]:
    """What the session is told from now on, as it is told."""
    told: list[float] = []
    report = attached.session.report_loss

    def listen(loss: float) -> None:
        told.append(loss)
        report(loss)

    attached.session.report_loss = listen
    return told


def pair(
    model: nn.Module, policy: str = EXACT, options: dict[str, Any] | None = None, **ddp: Any
) -> tuple[DDP, DDP, Any]:
    """Plain DDP, DDP with Weir, and what attach() returned.  Buckets hold a tensor or two."""
    ddp = {"bucket_cap_mb": 0.0005, **ddp}
    plain = DDP(copy.deepcopy(model), **ddp)
    ours = DDP(model, **ddp)
    return plain, ours, weir.torch.attach(ours, policy=policy, **(options or {}))


def alike(plain: nn.Module, ours: nn.Module, ulps: float = 4) -> float:
    """Are all gradients the same but for rounding?  Tells the largest difference, in units of the
    last place of the tensor's largest gradient."""
    worst = 0.0
    for (name, p), (_, q) in zip(plain.named_parameters(), ours.named_parameters()):
        assert (p.grad is None) == (q.grad is None), f"{name}: {p.grad} beside {q.grad}"
        if p.grad is None:
            continue
        unit = torch.finfo(p.dtype).eps * max(p.grad.abs().max().item(), 1e-30)
        worst = max(worst, (p.grad.double() - q.grad.double()).abs().max().item() / unit)
        assert worst <= ulps, f"{name} differs by {worst} units"
    return worst


def identical_on_all(model: nn.Module) -> None:
    flat = torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    for other in others:
        assert torch.equal(other, flat), "ranks hold different gradients"


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """Lines of the logger."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("weir").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("weir").removeHandler(handler)


def clear(*models: nn.Module) -> None:
    for model in models:
        model.zero_grad()


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    return model(batch(step)).square().mean()


def trained(steps: Iterable[int], *models: nn.Module, loss: Any = loss_of) -> Iterator[int]:
    """Each step's gradients in all of the models; tells the step once they are there."""
    for step in steps:
        clear(*models)
        for model in models:
            loss(model, step).backward()
        yield step


def stays_alike(model: nn.Module, steps: int, loss: Any = loss_of, **ddp: Any) -> float:
    """A model under Weir beside the same under plain DDP, step by step; as alike()."""
    plain, ours, attached = pair(model, **ddp)
    worst = 0.0
    for _ in trained(range(steps), plain, ours, loss=loss):
        worst = max(worst, alike(plain, ours))
        identical_on_all(ours)
    attached.close()
    return worst


# --- traps -------------------------------------------------------------------------------------


def buckets_rebuilt() -> float:
    """DDP rebuilds its buckets after the first step, in the order in which gradients came."""
    return stays_alike(Net(), 6)


def buckets_do_not_matter() -> None:
    """What is kept back belongs to parameters: one bucket or ten, rebuilt or not, the same bits.  Each
    parameter is submitted once a step."""
    model = Net()
    _, one, first = pair(copy.deepcopy(model), LOSSY, bucket_cap_mb=25)
    _, ten, second = pair(model, LOSSY)
    seen: list[int] = []
    submit = second.session.submit
    second.session.submit = lambda tensor, at: (seen.append(tensor), submit(tensor, at))
    for step in trained(range(6), one, ten):
        for (name, p), q in zip(one.named_parameters(), ten.parameters()):
            assert torch.equal(p.grad, q.grad), f"step {step}: {name}"
        assert sorted(seen) == list(range(8)), f"step {step}: {seen}"
        seen.clear()
    assert first.session.residual_digest == second.session.residual_digest
    first.close()
    second.close()


def hook_does_not_block() -> None:
    """Rank 0 computes its first layer's gradient, its last, before rank 1 has begun, without which
    nothing can be averaged: whoever waited in the hook would wait for ever."""
    _, ours, attached = pair(Net())
    for step in range(3):
        clear(ours)
        loss = ours(batch(step)).square().mean()
        if rank() == 1:
            _store[0].wait([f"computed {step}"], datetime.timedelta(seconds=30))
        if rank() == 0:
            ours.module.first.weight.register_hook(
                lambda gradient, step=step: _store[0].set(f"computed {step}", "yes")
            )
        loss.backward()
        identical_on_all(ours)
    attached.close()


def autocast() -> None:
    """Computed in 16 bits, gradients and what is exchanged in 32."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch(step)).float().square().mean()

    stays_alike(Net(), 4, loss)


def hundred_steps() -> float:
    """Parameters after 100 steps of SGD, beside plain DDP's: one rounding of the gradient a step."""
    plain, ours, attached = pair(Net())
    rate = 0.02
    drift = 0.0
    for _ in trained(range(100), plain, ours):
        largest = 0.0
        for model in (plain, ours):
            with torch.no_grad():
                for p in model.parameters():
                    largest = max(largest, p.grad.abs().max().item())
                    p -= rate * p.grad
        drift += torch.finfo(torch.float32).eps * max(rate * largest, 1.0)
    far = max((p - q).abs().max().item() for p, q in zip(plain.parameters(), ours.parameters()))
    attached.close()
    assert far <= drift, f"{far} after 100 steps; a rounding each is {drift}"
    return far


def accumulation() -> None:
    """Under no_sync gradients add up and nothing is exchanged."""
    plain, ours, attached = pair(Net())
    for step in range(0, 9, 3):
        clear(plain, ours)
        for model in (plain, ours):
            for micro in range(3):
                with model.no_sync() if micro < 2 else contextlib.nullcontext():
                    model(batch(step + micro)).square().mean().backward()
        alike(plain, ours)
        identical_on_all(ours)
    assert attached.info.step == 2, attached.info
    attached.close()


def skipped_backward() -> None:
    """A forward pass without a backward one, and evaluation between steps."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        if step % 2:
            model(batch(step + 50))
        with torch.no_grad():
            model(batch(step + 60))
        return loss_of(model, step)

    stays_alike(Net(), 4, loss)


def unused_parameters() -> None:
    """A branch that some ranks, or all, leave out of a step."""
    plain, ours, attached = pair(Net(), find_unused_parameters=True)

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        way = ["both", "left", "left" if rank() else "both"][step % 3]
        return model(batch(step), way).square().mean()

    for step in trained(range(6), plain, ours, loss=loss):
        alike(plain, ours)
        if step % 3 == 1:
            assert ours.module.right.weight.grad is None, "no rank has used it"
    attached.close()


def unused_keep_their_mass() -> None:
    """What error feedback sends of a parameter that no rank uses is thrown away by DDP.  It is not
    lost: all gradients ever, less what is still held back, are what parameters have got."""
    plain, ours, attached = pair(Net(), LOSSY, find_unused_parameters=True)
    right = ours.module.right.weight
    due, got = torch.zeros_like(right), torch.zeros_like(right)

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(batch(step), "both" if step < 3 else "left").square().mean()

    for _ in trained(range(40), plain, ours, loss=loss):
        if right.grad is not None:
            got += right.grad
            due += plain.module.right.weight.grad
    # Once more, so that whatever is owed has come long since: a gradient of nothing.
    for _ in trained(range(40), ours, loss=lambda m, _: m(torch.zeros(8, 12)).mul(0).sum()):
        got += right.grad
    attached.close()
    assert due.abs().max() > 0
    assert torch.allclose(due, got, rtol=1e-4, atol=1e-6 * due.abs().max().item()), (
        f"off by {(due - got).abs().max().item()} of {due.abs().max().item()}"
    )


def unused_keep_their_mass_in_views() -> None:
    """Gradients that are views of the buckets, and are set to zeros, not to None, are kept by DDP whoever
    has used them: there, too, nothing counts twice."""
    plain, ours, attached = pair(
        Net(), LOSSY, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    right = ours.module.right.weight
    due, got = torch.zeros_like(right), torch.zeros_like(right)
    for step in range(60):
        for model in (plain, ours):
            model.zero_grad(set_to_none=False)
            loss = model(batch(step), "left" if 3 <= step < 20 else "both").square().mean()
            (loss if step < 20 else loss * 0).backward()
        due += plain.module.right.weight.grad
        got += right.grad
        assert not 3 <= step < 20 or not right.grad.any(), f"step {step}"
    attached.close()
    assert due.abs().max() > 0
    assert torch.allclose(due, got, rtol=1e-4, atol=1e-6 * due.abs().max().item()), (
        f"off by {(due - got).abs().max().item()} of {due.abs().max().item()}"
    )


def unused_keep_their_mass_under_a_scaler() -> None:
    """What DDP throws away follows the loss scale as residuals do, outlives a step that is lost, goes
    along in a saved state, and is put back with a trial."""
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    model = Net()
    plain = DDP(copy.deepcopy(model), find_unused_parameters=True)
    right = model.right.weight
    due, got = torch.zeros_like(right), torch.zeros_like(right)

    def attach() -> tuple[DDP, Any]:
        ours = DDP(model, find_unused_parameters=True)
        return ours, weir.torch.attach(ours, optimizer, policy=LOSSY, scaler=scaler)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ours, attached = attach()
    for step in range(60):
        clear(plain, model)
        way = "both" if step < 3 or step >= 20 else "left"
        x = batch(step)
        if step == 9 and rank() == 1:
            x[0, 0] = float("inf")
        loss = ours(x, way).square().mean()
        scaler.scale(loss if step < 20 else loss * 0).backward()
        assert attached.info.lost == (step == 9)
        scale = scaler.get_scale()
        if right.grad is not None:
            got += right.grad / scale
        if step < 3:
            plain(x, way).square().mean().backward()
            due += plain.module.right.weight.grad
        scaler.step(optimizer)
        scaler.update()
        kept = next(k for k in attached._parameters.values() if k.parameter is right)
        assert (kept.carry is not None) == (3 <= step < 20), f"step {step}"
        if step == 13:
            before = kept.carry.clone()
            attached._call(attached._keep)
            kept.carry *= 3
            attached._scale = 1.0
            attached._call(attached._put_back)
            assert torch.equal(kept.carry, before) and attached._scale == scale
        if step == 15:
            saved = attached.state_dict()
            attached.close()
            del ours
            ours, attached = attach()
            attached.load_state_dict(saved)
    attached.close()
    assert due.abs().max() > 0
    assert torch.allclose(due, got, rtol=1e-4, atol=1e-5 * due.abs().max().item()), (
        f"off by {(due - got).abs().max().item()} of {due.abs().max().item()}"
    )


def activation_checkpointing() -> None:
    """Layers that are computed again within the backward pass, which may call another one for that."""
    for reentrant in (False, True):

        class Again(Net):
            def forward(self, x: torch.Tensor, reentrant: bool = reentrant) -> torch.Tensor:
                x = torch.relu(self.first(x))
                for layer in (self.left, self.right):
                    x = checkpoint(layer, x, use_reentrant=reentrant)
                return self.last(x)

        plain, ours, attached = pair(Again())
        told = losses_told(attached)
        due = []
        for step in range(4):
            clear(plain, ours)
            loss_of(plain, step).backward()
            loss = loss_of(ours, step)
            loss.backward()
            due.append(loss.item())
            alike(plain, ours)
        assert told == due
        attached.close()


def static_graph() -> None:
    stays_alike(Net(), 5, lambda m, s: m(batch(s), "left").square().mean(), static_graph=True)


def bucket_view() -> None:
    """Gradients are views of the buckets; the average has to be left there."""
    plain, ours, attached = pair(Net(), gradient_as_bucket_view=True)
    for step in trained(range(5), plain, ours):
        alike(plain, ours)
        if step == 1:
            at = [p.grad.data_ptr() for p in ours.parameters()]
    assert len(set(at)) == len(at)
    attached.close()


def half_precision(dtype: str) -> float:
    """Parameters of 16 bits: the average is made in 32 and rounded once."""
    kind = getattr(torch, dtype)
    plain, ours, attached = pair(Net().to(kind))
    for _ in trained(range(5), plain, ours, loss=lambda m, s: m(batch(s).to(kind)).square().mean()):
        worst = alike(plain, ours)  # DDP rounds at every addition
        for p in ours.parameters():
            assert p.grad.dtype == kind
        identical_on_all(ours)
    attached.close()
    return worst


def lent_as_they_are(dtype: str) -> None:
    """Gradients of 16 bits are handed over where DDP has them, and the average, the mean of all ranks'
    own gradients rounded once, is there afterwards; so it is in a plain loop."""
    kind = getattr(torch, dtype)
    _, model, attached = pair(Net().to(kind), gradient_as_bucket_view=True)
    alone = copy.deepcopy(model.module)
    seen: list[int] = []
    submit = attached.session.submit
    attached.session.submit = lambda tensor, at: (seen.append(at), submit(tensor, at))
    for step in range(3):
        x = batch(step).to(kind)
        due = mean_of_all(alone, lambda m, x=x: m(x).square().mean())
        clear(model)
        seen.clear()
        model(x).square().mean().backward()
        lent = {p.grad.data_ptr() for p in model.parameters()}
        assert lent == set(seen), "a gradient was copied"
        for (name, p), mean in zip(model.named_parameters(), due):
            assert torch.equal(p.grad, mean), f"step {step}: {name}"
    attached.close()
    due = mean_of_all(alone, lambda m: m(batch(7).to(kind)).square().mean())
    weir.torch.average(alone, policy=EXACT)
    for p, mean in zip(alone.parameters(), due):
        assert torch.equal(p.grad, mean)


def mean_of_all(model: nn.Module, loss: Any) -> list[torch.Tensor]:
    """The mean of the ranks' gradients, by gloo as float32 and rounded once; the model keeps its own."""
    clear(model)
    loss(model).backward()
    means = []
    for p in model.parameters():
        if p.grad is None:
            continue
        every = [torch.empty(p.shape) for _ in range(dist.get_world_size())]
        dist.all_gather(every, p.grad.float())
        means.append((sum(every[1:], every[0]) * (1 / len(every))).to(p.dtype))
    return means


def other_gradients() -> None:
    """What would be rounded on its way out is refused, what is widened is not."""
    from weir.torch._ddp import lendable

    wide, half = torch.ones(4), torch.ones(4, dtype=torch.float16)
    assert lendable(wide, "float32") is wide and lendable(half, "float16") is half
    assert torch.equal(lendable(half, "float32"), wide)
    for gradient, dtype in ((wide, "float16"), (half, "bfloat16"), (wide.double(), "bfloat16")):
        with pytest.raises(
            TypeError, match=f"and its parameter {dtype}: the average would be rounded"
        ):
            lendable(gradient, dtype)


def mixed_dtypes() -> None:
    """Some parameters of 16 bits beside those of 32: DDP has buckets for each."""
    model = Net()
    model.left = model.left.to(torch.bfloat16)
    model.left.forward = lambda x, f=model.left.forward: f(x.to(torch.bfloat16)).float()
    plain = DDP(model)
    ours = DDP(copy.deepcopy(model))
    ours.module.left.forward = lambda x, m=ours.module.left: nn.functional.linear(
        x.to(torch.bfloat16), m.weight, m.bias
    ).float()
    attached = weir.torch.attach(ours, policy=EXACT)
    for _ in trained(range(3), plain, ours):
        alike(plain, ours)
    attached.close()


def channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())
    plain, ours, attached = pair(model.to(memory_format=torch.channels_last))

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(10 * step + rank()))
        return model(x.to(memory_format=torch.channels_last)).square().mean()

    for _ in trained(range(4), plain, ours, loss=loss):
        assert ours.module[2].weight.grad.is_contiguous(memory_format=torch.channels_last)
        alike(plain, ours)
    attached.close()


def shared_parameters() -> None:
    stays_alike(Net(shared=True), 4)


def frozen_parameters() -> None:
    model = Net()
    model.left.weight.requires_grad_(False)
    stays_alike(model, 3)


def frozen_later() -> None:
    """What DDP was made with counts: parameters that are frozen since, and trained again, are as under
    plain DDP; one that DDP leaves out is refused, as its gradient would never come."""
    model = Net()
    model.left.weight.requires_grad_(False)
    ours = DDP(model)
    model.left.weight.requires_grad_(True)
    with at_once(), refused(ValueError, "left.weight was frozen when DistributedDataParallel was"):
        weir.torch.attach(ours, policy=EXACT)
    plain, ours = (DDP(copy.deepcopy(model), find_unused_parameters=True) for _ in range(2))
    for m in (plain, ours):
        m.module.first.requires_grad_(False)
    attached = weir.torch.attach(ours, policy=EXACT)
    assert not ours.module.first.weight.requires_grad
    for step in range(4):
        clear(plain, ours)
        for m in (plain, ours):
            m.module.first.requires_grad_(step >= 2)
            loss_of(m, step).backward()
        alike(plain, ours)
        assert (ours.module.first.weight.grad is None) == (step < 2)
    attached.close()


def copied() -> None:
    """Copies of a model, deep or by pickle, are trained by plain DDP, and can be attached; the model's
    own steps go on as if there were none."""
    _, ours, attached = pair(Net(), find_unused_parameters=True)
    loss_of(ours, 0).backward()
    deep, pickled = copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))
    for step in trained(range(1, 3), deep, pickled, ours):
        alike(deep, ours)
        alike(pickled, ours)
        assert attached.info.step == step
    other = weir.torch.attach(deep, policy=EXACT)
    for step in trained(range(3, 5), deep, ours):
        alike(deep, ours)
        assert (attached.info.step, other.info.step) == (step, step - 3)
    other.close()
    attached.close()


def attached_twice() -> None:
    """DDP takes one hook, for good: a second one is refused before anything is begun."""
    model = Net()
    ours = DDP(model)
    attached = weir.torch.attach(ours, policy=EXACT)
    threads = threading.active_count()
    for why in ("the model is attached already", "wrap the module in a new one"):
        with refused(RuntimeError, why):
            weir.torch.attach(ours, policy=EXACT)
        assert threading.active_count() == threads
        attached.close()
        threads = threading.active_count()
    with refused(RuntimeError, "has been closed"):
        loss_of(ours, 0).backward()
    del ours, attached
    stays_alike(model, 2)


def forked_child(folder: str) -> None:
    """A child that was forked in the middle of a training, and ends as Python does, leaves the group
    and its record alone."""
    ours, alone = DDP(Net()), Net()
    attached = weir.torch.attach(ours, policy=EXACT, record=folder)
    for step in range(4):
        clear(ours, alone)
        for model in (ours, alone):
            loss_of(model, step).backward()
        assert weir.torch.average(alone, policy=EXACT).step == step
        if step == 1 and (child := os.fork()) == 0:
            signal.alarm(20)
            atexit._run_exitfuncs()
            attached.close()
            os._exit(0)
        if step == 2:
            assert os.waitpid(child, 0)[1] == 0
    attached.close()
    if rank() == 0:
        assert json.loads((Path(folder) / "summary.json").read_text())["steps"] == 4


def clipping() -> None:
    """Gradients are clipped after they are averaged; several parameter groups."""
    plain, ours, attached = pair(Net())
    norms = []
    for model in (plain, ours):
        groups = [
            {"params": model.module.first.parameters(), "lr": 0.1},
            {"params": [*model.module.left.parameters(), *model.module.right.parameters()]},
            {"params": model.module.last.parameters(), "weight_decay": 0.1},
        ]
        optimizer = torch.optim.SGD(groups, lr=0.01)
        for step in range(5):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01).item())
            optimizer.step()
    for p, q in zip(norms[:5], norms[5:]):
        assert abs(p - q) <= 1e-5 * p
    for p, q in zip(plain.parameters(), ours.parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-7)
    attached.close()


def doubted_after(
    change: Any,
    model: Any = Net,
    steps: int = 12,
    loss: Any = loss_of,
    scaler: Any = None,
    tells: bool = True,
    accumulates: Any = None,
    closure: bool = False,
    momentum: float = 0.9,
    options: dict[str, Any] | None = None,
    **ddp: Any,
) -> int | None:
    """The step of an SGD's before which Weir is told that what `change` makes of gradients is not
    proportional to averages; None: never."""
    ours = DDP(model(), bucket_cap_mb=0.0005, **ddp)
    optimizer = torch.optim.SGD(ours.parameters(), 0.01, momentum=momentum, weight_decay=0.01)
    given = {"scaler": scaler} if scaler is not None and tells else {}
    attached = weir.torch.attach(ours, optimizer, policy=EXACT, **given, **(options or {}))
    doubted: list[int] = []
    doubt = attached.session.doubt_update_rule
    attached.session.doubt_update_rule = lambda rule: (doubted.append(step), doubt(rule))

    def backward() -> None:
        optimizer.zero_grad()
        if accumulates is not None:
            with accumulates(ours):
                loss(ours, 100 + step).backward()
        found = loss(ours, step)
        (found if scaler is None else scaler.scale(found)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        change(ours, step)

    for step in range(steps + 1):  # the last begins, as it is then that doubts are told
        if closure and step < steps:
            optimizer.step(backward)
            continue
        backward()
        if step == steps:
            break
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    attached.close()
    assert len(doubted) <= 1, doubted
    return doubted[0] if doubted else None


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.to(memory_format=torch.channels_last))


def proportional() -> None:
    """What SGD makes of averages is proportional to them, whatever loop there is."""

    def as_they_are(model: nn.Module, step: int) -> None:
        pass

    def divided(model: nn.Module, step: int) -> None:
        for p in model.parameters():
            p.grad /= 3

    def skipped(model: nn.Module, step: int) -> None:
        if step % 3 == 1:
            model.zero_grad(set_to_none=False)

    def overflows(model: nn.Module, step: int) -> torch.Tensor:
        return loss_of(model, step) * (float("inf") if step == 4 and rank() == 1 else 1.0)

    def images(model: nn.Module, step: int) -> torch.Tensor:
        x = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(step))
        return model(x).square().mean()

    def half(model: nn.Module, step: int) -> torch.Tensor:
        return model(batch(step).bfloat16()).square().mean()

    def other_way(model: nn.Module, step: int) -> torch.Tensor:
        return model(batch(step), "left" if step % 2 else "both").square().mean()

    def tripling() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=16.0, growth_factor=3.0, growth_interval=2)

    def doubling() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)

    assert doubted_after(as_they_are) is None
    assert doubted_after(as_they_are, momentum=0, gradient_as_bucket_view=True) is None
    assert doubted_after(divided) is None
    assert doubted_after(skipped) is None
    assert doubted_after(as_they_are, loss=other_way, find_unused_parameters=True) is None
    assert doubted_after(as_they_are, model=Images, loss=images) is None
    assert doubted_after(as_they_are, model=lambda: Net().bfloat16(), loss=half) is None
    assert doubted_after(as_they_are, scaler=tripling(), loss=overflows) is None
    assert doubted_after(as_they_are, scaler=doubling(), loss=overflows, tells=False) is None
    for views in (False, True):
        ways = {"accumulates": contextlib.nullcontext, "gradient_as_bucket_view": views}
        assert doubted_after(as_they_are, **ways) is None
        ways["accumulates"] = lambda model: model.no_sync()
        assert doubted_after(as_they_are, **ways) is None
    assert doubted_after(as_they_are, closure=True) is None


def not_proportional() -> None:
    """... unless something between changes them by more than a number."""

    def by_norm(model: nn.Module, step: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    def later(model: nn.Module, step: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1e9 if step < 6 else 0.01)

    def by_value(model: nn.Module, step: int) -> None:
        nn.utils.clip_grad_value_(model.parameters(), 0.02)

    def one_layer(model: nn.Module, step: int) -> None:
        model.module.left.weight.grad *= 0.5

    def half(model: nn.Module, step: int) -> torch.Tensor:
        return model(batch(step).bfloat16()).square().mean()

    # The first step tells of a factor, the second that it is another.
    for views in (False, True):
        assert doubted_after(by_norm, gradient_as_bucket_view=views) == 2
        assert doubted_after(by_value, gradient_as_bucket_view=views) == 1
    assert doubted_after(later) == 7
    assert doubted_after(one_layer) == 1
    assert doubted_after(later, model=lambda: Net().bfloat16(), loss=half) == 7
    assert doubted_after(later, closure=True) == 7
    assert doubted_after(later, accumulates=lambda model: model.no_sync()) == 7
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    assert doubted_after(later, scaler=scaler) == 7
    # Who says so is believed.
    assert doubted_after(by_norm, options={"update_rule": "sgd"}) is None


def told_of_thrown(
    passes: Any,
    steps: int = 9,
    made: Any = torch.optim.SGD,
    two: bool = False,
    unused: bool = False,
    **options: Any,
) -> tuple[list[tuple[int, str]], int]:
    """What update_rule is doubted to be and before which step, and how many warnings of averages that are thrown
    away there are; `passes` is a step of the loop."""
    ours = DDP(Net(), find_unused_parameters=unused)
    optimizer = made(list(ours.parameters())[two:], 0.01)
    first = [made([next(ours.parameters())], 0.01)] if two else []
    attached = weir.torch.attach(ours, optimizer, policy=EXACT, also=first, **options)
    optimizer.other = first[0] if two else None
    doubted: list[tuple[int, str]] = []
    doubt = attached.session.doubt_update_rule
    attached.session.doubt_update_rule = lambda rule: (doubted.append((step, rule)), doubt(rule))
    with heard() as lines:
        for step in range(steps):
            passes(ours, optimizer, step)
    attached.close()
    return doubted, sum("under model.no_sync()" in line for line in lines)


def thrown_away() -> None:
    """Averages that no optimizer takes are noticed, as what few bits have held back goes with them, and only these."""

    def away(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, step).backward()
        optimizer.zero_grad()

    def kept(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()

    def sam(model: nn.Module, optimizer: Any, step: int) -> None:
        away(model, optimizer, 100 + step)
        kept(model, optimizer, step)

    def sam_of_zeros(model: nn.Module, optimizer: Any, step: int) -> None:
        for batch_of in (100 + step, step):
            loss_of(model, batch_of).backward()
            if batch_of == step:
                optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    def sam_between(model: nn.Module, optimizer: Any, step: int) -> None:
        for batch_of in (100 + step, step):
            loss = loss_of(model, batch_of)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()

    def between(model: nn.Module, optimizer: Any, step: int) -> None:
        loss = loss_of(model, step)
        optimizer.zero_grad(set_to_none=bool(step % 2))
        loss.backward()
        optimizer.step()

    def local(model: nn.Module, optimizer: Any, step: int) -> None:
        with model.no_sync():
            away(model, optimizer, 100 + step)
        kept(model, optimizer, step)

    def at_times(model: nn.Module, optimizer: Any, step: int) -> None:
        (away if step % 25 == 0 else kept)(model, optimizer, step)

    def accumulates(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, 100 + step).backward()
        kept(model, optimizer, step)

    def overflows(model: nn.Module, optimizer: Any, step: int) -> None:
        if step > 0:
            (loss_of(model, 100 + step) * float("inf")).backward()
            optimizer.zero_grad()
        kept(model, optimizer, step)

    def closure(model: nn.Module, optimizer: Any, step: int) -> None:
        def again() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        optimizer.step(again)

    def in_turn(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, step).backward()
        (optimizer if step % 2 else optimizer.other).step()
        model.zero_grad()

    def both_in_turn(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, step).backward()
        turn = optimizer if step % 2 else optimizer.other
        turn.step()
        turn.zero_grad()

    def toggled(model: nn.Module, optimizer: Any, step: int) -> None:
        turn = optimizer if step % 2 else optimizer.other
        mine = {id(p) for group in turn.param_groups for p in group["params"]}
        for p in model.parameters():
            p.requires_grad_(id(p) in mine)
        loss_of(model, step).backward()
        turn.step()
        turn.zero_grad()

    def never(model: nn.Module, optimizer: Any, step: int) -> None:
        loss_of(model, step).backward()
        for p in model.parameters():
            p.data -= 0.01 * p.grad
        optimizer.zero_grad()

    # Until a step was taken nobody knows; then the third that is thrown away, in step 3, is one too many.
    warns = rank() == 0
    assert told_of_thrown(sam) == ([(3, "unknown")], warns)
    assert told_of_thrown(sam, made=torch.optim.AdamW) == ([(3, "unknown")], warns)
    assert told_of_thrown(sam, update_rule="sgd") == ([], warns)
    assert told_of_thrown(sam, loss="report") == ([(3, "unknown")], warns)
    assert told_of_thrown(sam_of_zeros) == ([(3, "unknown")], warns)
    assert told_of_thrown(sam_between) == ([(4, "unknown")], warns)  # step 3 has begun by then
    assert told_of_thrown(between) == ([], 0)
    assert told_of_thrown(local) == ([], 0)
    assert told_of_thrown(at_times, 60) == ([], 0)
    assert told_of_thrown(accumulates) == ([], 0)
    assert told_of_thrown(overflows) == ([], 0)
    assert told_of_thrown(closure, made=torch.optim.LBFGS) == ([], 0)
    # Both are known to step from step 1 on: those of steps 2, 3 and 4.
    assert told_of_thrown(in_turn, two=True) == ([(4, "unknown")], warns)
    assert told_of_thrown(both_in_turn, two=True) == ([], 0)
    assert told_of_thrown(toggled, two=True, unused=True) == ([], 0)
    assert told_of_thrown(never) == ([], 0)


def whose_rule_is_known() -> None:
    """What few bits do under an optimizer is known of torch's own alone, and where these have all of
    the model's parameters."""
    from weir.torch._update_rule import update_rule

    def rule(*optimizers: Any) -> Any:
        return update_rule(optimizers[0], optimizers[1:], parameters)

    class Mine(torch.optim.AdamW):
        pass

    model = Net()
    parameters = list(model.parameters())
    first, rest = parameters[:1], parameters[1:]
    SGD, AdamW = torch.optim.SGD, torch.optim.AdamW
    assert rule(SGD(parameters, 0.1)) == rule(SGD(parameters, 0.1), torch.Generator()) == "sgd"
    assert rule(AdamW(parameters)) == rule(torch.optim.RMSprop(parameters)) == "adaptive"
    assert rule(AdamW(first), AdamW(rest)) == rule(None, SGD(parameters, 0.1)) == "adaptive"
    assert rule(SGD(first, 0.1), AdamW(rest)) == rule(SGD(first, 0.1), SGD(rest, 0.1)) == "adaptive"
    for optimizer in (None, SGD(first, 0.1), Mine(parameters), torch.optim.LBFGS(parameters)):
        assert rule(optimizer) == "unknown"
    assert rule(Mine(first), AdamW(rest)) == rule(AdamW(first), torch.Generator()) == "unknown"
    if hasattr(torch.optim, "Muon"):
        matrices = [p for p in parameters if p.dim() == 2]
        vectors = [p for p in parameters if p.dim() != 2]
        assert rule(torch.optim.Muon(matrices), AdamW(vectors)) == "unknown"
    attached = weir.torch.attach(DDP(model))
    assert attached.session.plan.startswith("bf16"), attached.session.plan
    attached.close()
    attached = weir.torch.attach(DDP(model), AdamW(parameters))
    assert attached.session.plan.startswith("companded"), attached.session.plan
    attached.close()


def doubt_is_answered(of: str, folder: str) -> None:
    """Policy weir leaves what it sends under SGD alone: where gradients are clipped, and where averages of another
    backward pass are thrown away, after which 16 bits are sent."""
    ours = DDP(Net())
    optimizer = torch.optim.SGD(ours.parameters(), 0.01)
    attached = weir.torch.attach(ours, optimizer, record=folder)
    with heard() as lines:
        plans, known = [], None  # a step by which there is a plan for the network
        while known is None or len(plans) < known + 40:
            late = known is not None and len(plans) >= known + 20
            if late and of == "thrown":
                loss_of(ours, 1000 + len(plans)).backward()
            optimizer.zero_grad()
            loss_of(ours, len(plans)).backward()
            clips = late and of == "clipped"
            nn.utils.clip_grad_norm_(ours.parameters(), 0.01 if clips else 1e9)
            optimizer.step()
            plans.append(attached.info.plan)
            assert len(plans) < 1000, attached.info.bandwidth_bytes_s
            if known is None and attached.info.bandwidth_bytes_s > 0:
                known = len(plans)
        attached.close()
        assert plans[0].startswith("qsgd"), plans[0]
        left = {plan.split(":")[0] for plan in plans[-5:]}
        exact = {"none", "bf16", "fp16"}
        assert "qsgd" not in left and (of == "clipped" or left <= exact), plans[known:]
    said, why = {
        "clipped": ("clipped, say", "not proportional to averages"),
        "thrown": ("under model.no_sync()", "averages are thrown away"),
    }[of]
    assert sum(said in line for line in lines) == (rank() == 0), lines
    if rank() == 0:
        journal = (Path(folder) / "decisions.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in journal]
        found = [d["step"] for d in told if why in d["why"]]
        assert len(found) == 1 and known + 20 <= found[0] < known + 60, found


def not_finite() -> None:
    """One rank's gradient overflows: all ranks must see it, as a GradScaler looks on its own, and
    the residual must be what it was."""
    plain, ours, attached = pair(Net(), LOSSY)
    for step in range(6):
        clear(plain, ours)
        x = batch(step)
        if step == 3:
            before = attached.session.residual_digest
        if step == 3 and rank() == 1:
            x[0, 0] = float("inf")
        ours(x).square().mean().backward()
        if step == 3:
            assert attached.info.lost
            assert attached.session.residual_digest == before
            for p in ours.parameters():
                assert p.grad.isnan().all()
        else:
            assert not attached.info.lost
            for p in ours.parameters():
                assert p.grad.isfinite().all()
    attached.close()


def grad_scaler() -> None:
    """What is kept back carries the loss scale; it has to follow when that changes, and an infinite
    step must not touch it.  All gradients ever, unscaled, are what parameters have got."""
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    plain, ours, attached = pair(Net(), LOSSY, {"scaler": scaler})
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.0)
    due = [torch.zeros_like(p) for p in ours.parameters()]
    got = [torch.zeros_like(p) for p in ours.parameters()]
    scales = []
    for step in range(60):
        clear(plain, ours)
        scales.append(scaler.get_scale())
        x = batch(step)
        infinite = step == 5
        if infinite and rank() == 1:
            x[0, 0] = float("inf")
        silent = step >= 20  # what is owed has come long since, then
        loss = ours(x).square().mean() if not silent else ours(x).mul(0).sum()
        scaler.scale(loss).backward()
        if not silent and not infinite:
            plain(x).square().mean().backward()
            for total, p in zip(due, plain.parameters()):
                total += p.grad
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if infinite:
            assert attached.info.lost and scaler.get_scale() == scales[-1] / 2
        else:
            for total, p in zip(got, ours.parameters()):
                total += p.grad
    attached.close()
    assert len(set(scales)) > 3
    for a, b in zip(due, got):
        worst = a.abs().max().item()
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5 * worst), (a - b).abs().max() / worst


def in_evaluation_mode() -> None:
    """A model may be trained in the mode of evaluation, as where nothing is to be dropped: the scale is
    followed all the same, and a second step within a batch seen."""
    models, attached, scalers, seen = [], [], [], []
    for training in (True, False):
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        torch.manual_seed(3)
        _, ours, one = pair(Net(), LOSSY, {"scaler": scaler})
        models.append(ours.train(training))
        attached.append(one)
        scalers.append(scaler)
    for step in range(12):
        clear(*models)
        for model, scaler in zip(models, scalers):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        for p, q in zip(models[0].parameters(), models[1].parameters()):
            assert torch.equal(p.grad, q.grad), f"step {step}"
    for one in attached:
        one.close()
    model = DDP(Net()).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = weir.torch.attach(model, optimizer)
    for x in weir.torch.batches([batch(step) for step in range(3)], model):
        for _ in range(2):
            model(x).square().mean().backward()
        seen.append(one.steps_within_batches)
    one.close()
    assert seen == [True] * 3


def saved_and_restored() -> None:
    """A group that stopped after three steps goes on: the same bits as one that did not."""
    _, whole, attached = pair(Net(), LOSSY)
    grads = []
    for step in trained(range(6), whole):
        if step == 2:
            saved = attached.state_dict()
        grads.append([p.grad.clone() for p in whole.parameters()])
    attached.close()
    torch.manual_seed(7)
    _, again, attached = pair(Net(), LOSSY)
    attached.load_state_dict(saved)
    for step in trained(range(3, 6), again):
        for p, due in zip(again.parameters(), grads[step]):
            assert torch.equal(p.grad, due), f"step {step}"
        assert attached.info.step == step
    first: list[Any] = [saved]
    dist.broadcast_object_list(first)  # as where rank 0 alone has saved what every rank has
    with refused(ValueError, "rank 0 has saved is loaded by rank 0 and by rank 1"):
        attached.load_state_dict(first[0])
    with refused(ValueError, "format 7"):
        attached.load_state_dict({"format": 7})
    with refused(ValueError, "rank 0 is to load one of the states"):
        attached.load_state_dict([] if rank() == 0 else [saved])
    attached.close()


def scalars_written() -> dict[str, int]:
    """Rank 0 writes what TensorBoard shows."""

    class Writer:
        def __init__(self) -> None:
            self.scalars: dict[str, list[float]] = {}
            self.text: list[str] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.scalars.setdefault(name, []).append(value)

        def add_text(self, name: str, text: str, step: int) -> None:
            self.text.append(text)
            if len(self.text) == 2:
                raise OSError(errno.ENOSPC, "no space is left")

    writer = Writer()
    _, ours, attached = pair(Net(), LOSSY, {"writer": writer})
    for _ in trained(range(3), ours):
        pass
    attached._written = None  # as if the plan had changed; which ends the writing, and nothing else
    for _ in trained(range(3, 5), ours):
        pass
    assert attached.info.step == 4
    attached.close()
    if rank() == 0:
        assert writer.scalars["weir/ratio"] == [0.1] * 4
        assert all(b > 0 for b in writer.scalars["weir/wire_mb"])
        assert writer.text == ["topk:0.1:ag"] * 2
        # What is not measured yet is no zero.
        assert all(b > 0 for b in writer.scalars.get("weir/bandwidth_mbit_s", []))
    else:
        assert not writer.scalars
    return {name: len(values) for name, values in writer.scalars.items()}


def uneven_inputs() -> None:
    """DDP's join(): ranks that have run out of batches take part with zeros."""
    plain, ours, attached = pair(Net())
    for model in (plain, ours):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with model.join():
            for step in range(3 + rank()):
                optimizer.zero_grad()
                model(batch(step)).square().mean().backward()
                optimizer.step()
    for (name, p), (_, q) in zip(plain.named_parameters(), ours.named_parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6), f"{name}: {(p - q).abs().max()}"
    with refused(RuntimeError, "divide_by_initial_world_size=False"):
        with ours.join(divide_by_initial_world_size=False):
            ours(batch(0))
    attached.close()


def two_models() -> None:
    """Two models that are attached take turns, as in adversarial training; report() wants to know
    which one."""
    a_plain, a_ours, a = pair(Net())
    b_plain, b_ours, b = pair(Net())
    for step in range(3):
        clear(a_plain, a_ours, b_plain, b_ours)
        for model in (a_plain, a_ours, b_plain, b_ours):
            loss = model(batch(step)).square().mean()
            if model is a_ours:
                a.report(loss)
            loss.backward()
        alike(a_plain, a_ours)
        alike(b_plain, b_ours)
    with refused(RuntimeError, "2 models"):
        weir.torch.report(1.0)
    a.close()
    b.close()


def killed_rank() -> list[Any]:
    """Rank 2 dies in its third step; the others say who, at once, though the time-out is long."""
    import time

    _, ours, attached = pair(Net())
    for _ in trained(range(2), ours):
        pass
    begin = time.monotonic()
    try:
        if rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        clear(ours)
        ours(batch(2)).square().mean().backward()
    except RuntimeError as error:
        told = str(error)
    try:
        ours(batch(3))
    except weir.GroupLostError as error:
        again = str(error)
    return [told, again, time.monotonic() - begin]


def adversarial() -> None:
    """The generator's step goes through the discriminator under no_sync(), whose gradients of that are
    thrown away: each model has one step a batch, and the gradients of plain DDP."""
    a_plain, a_ours, a = pair(Net())
    b_plain, b_ours, b = pair(Net())
    for step in range(3):
        clear(a_plain, a_ours, b_plain, b_ours)
        for makes, judges in ((a_plain, b_plain), (a_ours, b_ours)):
            made = makes(batch(step))
            judges(made.detach()).square().mean().backward()
        alike(b_plain, b_ours)
        for makes, judges in ((a_plain, b_plain), (a_ours, b_ours)):
            with judges.no_sync():
                judges(makes(batch(step))).square().mean().backward()
        alike(a_plain, a_ours)
        assert (a.info.step, b.info.step) == (step, step)
    a.close()
    b.close()


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """What would wait for ever ends the process."""
    signal.alarm(30)
    try:
        yield
    finally:
        signal.alarm(0)


def closed() -> None:
    """After close() whatever needs the session says so, and does not wait for it."""
    _, ours, attached = pair(Net(), find_unused_parameters=True)
    held = iter(weir.torch.batches([batch(0), batch(1)], attached))
    ours(next(held)).square().mean().backward()
    attached.close()
    attached.close()
    for work in (
        attached.state_dict,
        lambda: attached.load_state_dict([]),
        lambda: next(held),
        lambda: loss_of(ours, 1).backward(),
    ):
        with at_once(), refused(RuntimeError, "has been closed"):
            work()
    assert not any(p._post_accumulate_grad_hooks for p in ours.parameters())


def gradient_that_cannot_be_lent() -> None:
    """What goes wrong before a bucket is lent ends its backward pass, too."""
    _, ours, attached = pair(Net())
    lendable = weir.torch._ddp.lendable
    weir.torch._ddp.lendable = lambda gradient, dtype: {}[dtype]
    try:
        with at_once(), refused(RuntimeError, "float32"):
            loss_of(ours, 0).backward()
    finally:
        weir.torch._ddp.lendable = lendable
    attached.close()


def dropped() -> None:
    """A model that goes without close() takes with it the thread, the session and what is wrapped."""
    original = torch.autograd.backward
    threads = threading.active_count()

    def train() -> tuple[Any, Any, Any]:
        ours, plain = DDP(Net(), find_unused_parameters=True), Net()
        optimizer = torch.optim.SGD(ours.parameters(), 0.1)
        attached = weir.torch.attach(ours, optimizer)
        for _ in trained(range(2), ours):
            optimizer.step()
        loss_of(plain, 0).backward()
        weir.torch.average(plain, policy=EXACT)
        averaged = weir.torch._average._sessions[plain].session
        assert torch.autograd.backward is not original
        return attached.session, averaged, weakref.ref(attached)

    of_attached, of_average, attached = train()
    gc.collect()
    assert attached() is None
    assert torch.autograd.backward is original
    with at_once():
        while of_attached._session or threading.active_count() > threads:
            pass
    assert not of_average._session


class Outer(nn.Module):
    """As trainers and torch.compile() wrap a model, and perhaps something more."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)


class Forwards(torch.optim.Optimizer):
    """An optimizer that only calls another, as trainers hand out: what a torch.optim.Optimizer has for
    itself, such as hooks, this has not."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)


class Averages(Forwards):
    """One that has a state of its own, and does something itself."""

    state = property(lambda self: {})


class Steps:
    """A scheduler that only calls another."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, sparse=True)


def without_reducer() -> DDP:
    """Whose gradients torch itself exchanges, one by one."""
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        return DDP(Net())


def wrong_model() -> None:
    for wrong, kind, words in (
        (lambda: weir.torch.attach(Net()), TypeError, "average"),
        (lambda: weir.torch.attach(DDP(Net()), policy="paper"), ValueError, "trials"),
        (lambda: weir.torch.attach(DDP(Net()), polisy="weir"), weir.UsageError, "polisy"),
        (lambda: weir.torch.attach(DDP(Net().double())), TypeError, "float64"),
        (lambda: weir.torch.attach(DDP(Net()), [1, 2]), TypeError, "also=[opt2]"),
        (
            lambda: weir.torch.attach(DDP(Net()), Averages(torch.optim.SGD(Net().parameters()))),
            TypeError,
            "optimizer is a Averages",
        ),
        (lambda: weir.torch.attach(Outer(DDP(Net()), DDP(Net()))), TypeError, "not Outer"),
        (lambda: weir.torch.attach(Outer(DDP(Net()), Net())), TypeError, "not Outer"),
        (lambda: weir.torch.attach(without_reducer()), RuntimeError, "'ddp_optimizer'"),
        (lambda: weir.torch.attach(DDP(Words())), TypeError, "words is an Embedding with sparse="),
        (lambda: weir.torch.average(Words()), TypeError, "words is an Embedding with sparse="),
        (lambda: weir.torch.report(1.0), RuntimeError, "no model is attached; weir.torch.attach"),
        (lambda: weir.torch.batches([], DDP(Net())), RuntimeError, "the model is not attached; "),
    ):
        with refused(kind, words):
            wrong()
    model = DDP(Net())
    attached = weir.torch.attach(model, policy=LOSSY)
    with refused(RuntimeError, "the model is attached already"):
        weir.torch.attach(model, policy=LOSSY)
    attached.close()
    with refused(RuntimeError, "wrap the module in a new one"):
        weir.torch.attach(model, policy=LOSSY)


def loss_found() -> None:
    """The loss is where the backward pass begins, which no line has to tell."""
    original = torch.autograd.backward

    def told(work: Any, scaler: Any = None, **options: Any) -> list[float]:
        model = DDP(Net())
        attached = weir.torch.attach(model, policy=EXACT, scaler=scaler, **options)
        seen: list[float] = []
        report = attached.session.report_loss
        attached.session.report_loss = lambda loss: (seen.append(loss), report(loss))
        for step in range(3):
            clear(model)
            work(model, step)
        attached.close()
        assert torch.autograd.backward is original
        return seen

    due: list[float] = []

    def loss(model: Any, step: int) -> torch.Tensor:
        found = model(batch(step)).square().mean()
        due.append(found.item())
        return found

    def near(seen: list[float], wanted: list[float]) -> None:
        assert seen == torch.tensor(wanted).tolist(), (seen, wanted)
        due.clear()

    near(told(lambda m, s: loss(m, s).backward()), due)
    near(told(lambda m, s: torch.autograd.backward([loss(m, s)])), due)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    near(told(lambda m, s: scaler.scale(loss(m, s)).backward(), scaler=scaler), due)

    def two_backwards(model: Any, step: int) -> None:
        penalty = torch.ones(1, requires_grad=True)
        (9 * penalty).backward()
        with model.no_sync():
            loss(model, step).backward()
        loss(model, step + 10).backward()

    near(told(two_backwards), due[1::2])

    def reported(model: Any, step: int) -> None:
        found = loss(model, step)
        weir.torch.report(0.5)
        found.backward()

    near(told(reported), [0.5] * 3)
    # A scaler's halvings are no progress: a loss that an unknown one has scaled is not taken.
    unknown = torch.amp.GradScaler("cpu", init_scale=4.0)
    near(told(lambda m, s: unknown.scale(loss(m, s)).backward()), [])
    disabled = torch.amp.GradScaler("cpu", enabled=False)
    for given in (None, disabled):
        near(told(lambda m, s: disabled.scale(loss(m, s)).backward(), scaler=given), due)
    near(told(lambda m, s: loss(m, s).backward(), loss="report"), [])
    near(told(lambda m, s: torch.autograd.backward([m(batch(s)).sum(), m(batch(s)).sum()])), [])


def report_drawn(folder: str, command: str) -> None:
    """A recorded training has a report, drawn by the command `weir`; without it the error says so."""
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached = weir.torch.attach(model, optimizer, record=folder)
    for x in weir.torch.batches([batch(step) for step in range(20)], model):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    os.environ["WEIR_COMMAND"] = command
    path = weir.torch.report_html(folder)
    attached.close()
    dist.barrier()
    others = dist.new_group([1, 2])  # rank 0 is in no such training
    if rank() != 0:
        assert path is None
        model = DDP(nn.Linear(12, 12), process_group=others)
        attached = weir.torch.attach(model, policy=EXACT, record=folder + "-others")
        for step in range(3):
            model(batch(step)).sum().backward()
        attached.close()
        path = weir.torch.report_html(folder + "-others")
        assert (path is not None) == (rank() == 1)
        return
    assert path is not None and "PyTorch" in path.read_text()
    summary = json.loads((path.parent / "summary.json").read_text())
    assert (summary["steps"], summary["workers"], summary["policy"]) == (20, 3, "weir")
    assert summary["network"] == "shm"  # what `auto` has come to on one machine
    rows = (path.parent / "steps.csv").read_text().splitlines()
    names = rows[0].split(",")
    told = [dict(zip(names, row.split(","))) for row in rows[1:]]
    assert [int(row["step"]) for row in told] == list(range(20))
    assert sum(int(row["wire_bytes"]) for row in told) == summary["wire_bytes"] > 0
    assert all(float(row["loss"]) > 0 for row in told)
    assert (path.parent / "decisions.jsonl").exists()
    assert not list(path.parent.glob(".*"))
    os.environ["WEIR_COMMAND"], search = "", os.environ["PATH"]
    os.environ["PATH"] = ""
    try:
        with refused(RuntimeError, "WEIR_COMMAND"):
            weir.torch.report_html(folder)
    finally:
        os.environ["PATH"] = search


class Noisy:
    """Batches that need random numbers of every kind as they are drawn, and their numbers."""

    def __init__(self, epochs: int, length: int) -> None:
        self.length, self.epoch = length, 0
        self.epochs = epochs

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        self.epoch += 1
        for number in range(self.length):
            x = batch(number + 100 * self.epoch) + 0.1 * torch.randn(8, 12)
            yield number, x + 0.1 * random.random() + 0.1 * float(numpy.random.rand())


class Drops(nn.Module):
    """Dropout and running statistics; and a count that every forward pass replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 12)
        )
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes = self.passes + 1
        noise = random.random() + float(numpy.random.rand())
        return self.layers(x) * (1 + 0.01 * self.passes + 0.01 * noise)


def seed_all() -> None:
    torch.manual_seed(11 + rank())
    random.seed(11 + rank())
    numpy.random.seed(11 + rank())


class Course:
    """A training with all that a trial has to put back."""

    def __init__(self, network: Any = Drops) -> None:
        torch.manual_seed(3)
        self.model = DDP(network())
        self.optimizer = self.made_optimizer()
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        self.average = torch.optim.swa_utils.AveragedModel(self.model.module)
        self.given = (self.model, self.optimizer)
        seed_all()

    def made_optimizer(self) -> Any:
        return torch.optim.AdamW(self.model.parameters(), 0.01)

    def step(self, x: torch.Tensor, number: int = 0) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()
        self.schedule.step()
        self.average.update_parameters(self.model.module)

    def state(self) -> list[Any]:
        held = getattr(self.optimizer, "optim", self.optimizer).state
        moments = [v for s in held.values() for v in s.values()]
        return [
            *(t.clone() for t in self.model.module.state_dict().values()),
            *(t.clone() for t in self.average.state_dict().values()),
            *(m.clone() for m in moments),
            torch.get_rng_state(),
            torch.from_numpy(numpy.random.get_state()[1].astype("int64")),
            torch.tensor(random.getstate()[1]),
            torch.tensor([self.schedule.last_epoch, self.optimizer.param_groups[0]["lr"]]),
        ]


def same(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    for at, (left, right) in enumerate(zip(a, b)):
        assert torch.equal(left, right), f"{at} of {len(a)}: {left} beside {right}"


def trials_leave_nothing(kind: Any = Course) -> int:
    """A training with trials that are rolled back ends with the same bits as one without."""
    ends = []
    for trials in ((), ((3, 5), (12, 4)), ((2, 1), (3, 11), (17, 2))):
        course = kind()
        attached = weir.torch.attach(
            *course.given, scheduler=course.schedule, also=[course.average], policy=EXACT
        )
        attached.session.begin = tried(attached, trials)
        loader, counted, drawn = Noisy(2, 13), [], 0
        for _ in range(loader.epochs):
            for number, x in weir.torch.batches(loader, attached):
                drawn += 1
                given = x.clone()
                course.step(x, number)
                x.zero_()  # what a loop does to its batch is its own business
                if not attached.trial:
                    counted.append((number, given))
        assert [n for n, _ in counted] == [*range(13)] * 2
        assert drawn == 26 + sum(length for _, length in trials)
        assert not attached._checkpoint._tensors, "a checkpoint is kept after its trial"
        ends.append([*course.state(), *(x for _, x in counted)])
        attached.close()
    same(ends[0], ends[1])
    same(ends[0], ends[2])
    return len(ends[0])


def left_within_a_trial() -> None:
    """close() puts back what the trial under way has changed."""
    course = Course()
    attached = weir.torch.attach(
        *course.given, scheduler=course.schedule, also=[course.average], policy=EXACT
    )
    attached.session.begin = tried(attached, ((2, 5),))
    for number, x in weir.torch.batches(Noisy(1, 9), attached):
        if number == 2:
            kept = course.state()
        if number == 4:
            break
        course.step(x)
    assert attached.trial
    attached.close()
    assert not attached.trial
    random_numbers = len(kept) - 4  # which the batches bring
    same(kept[:random_numbers] + kept[-1:], course.state()[:random_numbers] + course.state()[-1:])


def trials_of_a_sharded_optimizer() -> None:
    """ZeroRedundancyOptimizer's momenta are those of an optimizer of its own."""

    class Sharded(Course):
        def made_optimizer(self) -> Any:
            from torch.distributed.optim import ZeroRedundancyOptimizer

            return ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=0.01)

    trials_leave_nothing(Sharded)


def trials_amid_accumulation() -> None:
    """Every second batch has an optimizer's step, and the first one's average is in the gradients
    when a trial begins."""

    class Accumulates(Course):
        def step(self, x: torch.Tensor, number: int = 0) -> None:
            self.model(x).square().mean().backward()
            if number % 2:
                self.optimizer.step()
                self.optimizer.zero_grad()

        def state(self) -> list[Any]:
            return [*super().state(), *(p.grad for p in self.model.parameters())]

    trials_leave_nothing(Accumulates)


class Teacher(Drops):
    """Frozen: what never changes, and what the model changes by itself, in a way of which torch
    knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.still, self.follows = (nn.Parameter(torch.ones(12), False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.follows.data.mul_(0.9).add_(self.layers[0].bias.mean(), alpha=0.1)
        return super().forward(x) * self.still * self.follows


def trials_of_frozen_parameters() -> None:
    """Frozen parameters are copied where they change."""

    class Taught(Course):
        def __init__(self) -> None:
            super().__init__(Teacher)

    trials_leave_nothing(Taught)
    course = Taught()
    attached = weir.torch.attach(*course.given, policy=EXACT)
    course.step(batch(0))
    attached._call(attached._keep)
    held = [id(tensor) for tensor, _ in attached._checkpoint._tensors]
    module = course.model.module
    assert id(module.follows) in held and id(module.still) not in held
    attached.close()


def several_passes() -> None:
    """A loop that has several backward passes a batch, as SAM's, has no trials, and rank 0 says so
    once."""
    with heard() as told:
        model = DDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        attached = weir.torch.attach(model, optimizer)
        rooms: list[int] = []
        set_room = attached.session.set_room
        attached.session.set_room = lambda steps: (rooms.append(steps), set_room(steps))
        for _ in range(2):
            for x in weir.torch.batches([batch(step) for step in range(4)], model):
                for _ in range(2):
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                    optimizer.step()
        attached.close()
    assert rooms == [3] + [0] * 15, rooms
    said = [line for line in told if "no trials" in line]
    assert len(said) == (rank() == 0) and all("within a batch" in line for line in said), said


def trials_of_the_session() -> list[int]:
    """Trials that the library makes, of policy paper, which makes them at once: each puts back
    everything, residuals too, and begins with the same batch."""
    course = Course()
    attached = weir.torch._ddp.Attached(
        course.model,
        course.optimizer,
        course.schedule,
        None,
        [course.average],
        "auto",
        None,
        None,
        {"policy": "paper", "nonfinite": "keep"},
    )

    def state(x: torch.Tensor) -> list[Any]:
        digest = attached._call(lambda: attached.session.residual_digest)
        return [*course.state(), x, torch.tensor([digest >> 32, digest & 0xFFFFFFFF])]

    counted, kept, began, back, last = [], [], -1, 0, False
    for number, x in weir.torch.batches(Noisy(1, 100), attached):
        if attached.trial and not last:
            began, kept = number, state(x.clone())
        elif last and number == began:
            back += 1
            same(kept, state(x.clone()))
        last = attached.trial
        if not last:
            counted.append(number)
        course.step(x)
        identical_on_all(course.model)
    assert back > 0 and counted == list(range(100))
    few = 31 * batch(0).nbytes  # less than a trial takes
    for number, x in weir.torch.batches(Noisy(1, 100), attached, hold=few):
        assert not attached.trial, number
        course.step(x)
    attached.close()
    return [back, began]


Plateau = torch.optim.lr_scheduler.ReduceLROnPlateau


def Exponential(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


class Wrapped(Course):
    """What a trainer hands out instead of the model, the optimizer and the scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer, self.schedule = Forwards(self.optimizer), Steps(self.schedule)
        self.given = (Outer(Outer(self.model)), self.optimizer)


def trials_under_wrappers() -> None:
    """They put back what is behind them, and hooks are where they run."""
    trials_leave_nothing(Wrapped)
    course = Wrapped()
    plateau = Plateau(course.optimizer.optimizer)
    attached = weir.torch.attach(*course.given, scheduler=Steps(plateau), policy=EXACT)
    assert not attached._has_plateau()
    assert weir.torch._ddp.the_attached(course.given[0]) is attached
    assert attached._options["update_rule"] == "adaptive"
    course.step(batch(0))
    attached._failure = RuntimeError("a rank is lost")
    with refused(RuntimeError, "a rank is lost"):
        course.optimizer.step()
    attached._failure = None
    attached.close()
    model = DDP(Net())
    optimizer = Forwards(torch.optim.SGD(model.parameters(), 0.1))
    attached = weir.torch.attach(model, optimizer, policy=EXACT)
    assert attached._options["update_rule"] == "sgd"
    attached.close()


def compiled() -> None:
    """torch.compile() of the module, of DDP, and what it returns handed to attach() and batches()."""
    for way in ("module", "ddp", "handed over"):
        torch._dynamo.reset()
        module = Net()
        plain = DDP(copy.deepcopy(module))
        if way == "module":
            module = torch.compile(module, backend="eager")
        model = DDP(module)
        called = model if way == "module" else torch.compile(model, backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        attached = weir.torch.attach(model if way == "ddp" else called, optimizer, policy=EXACT)
        told = losses_told(attached)
        due = []
        for step, x in enumerate(weir.torch.batches([batch(s) for s in range(4)], called)):
            clear(plain, model)
            plain(x).square().mean().backward()
            loss = called(x).square().mean()
            due.append(loss.item())
            loss.backward()
            alike(plain, model)
            identical_on_all(model)
            assert attached.info.step == step
        assert told == due
        attached.close()


def zipped(found: list[Any], model: Any) -> Iterator[Any]:
    pairs = [weir.torch.batches(found, model) for _ in range(2)]
    return (x for x, _ in zip(*pairs))


def trials_without_memory() -> None:
    """A rank that cannot copy what a trial would change: there is none, on no rank, and nothing else
    happens.  The session's trial is gone through without the loop."""
    with heard() as told:
        course = Course()
        attached = weir.torch._ddp.Attached(
            course.model, course.optimizer, course.schedule, None, [course.average], "auto", None, None,
            {"policy": "paper", "nonfinite": "keep"},
        )  # fmt: skip
        attached._may_try, attached._said = True, False  # as policy weir has it
        asked: list[float] = []

        def full(spare: float) -> None:
            asked.append(spare)
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        if rank() == 1:
            attached._checkpoint._take = full
        for step, (_, x) in enumerate(weir.torch.batches(Noisy(1, 60), attached)):
            assert not attached.trial and (attached.info is None or not attached.info.trial)
            course.step(x)
            assert attached.info.step == step
            identical_on_all(course.model)
        assert attached._no_copy == (
            "rank 1 could not copy what they change (DefaultCPUAllocator: can't allocate memory)"
        )
        assert len(asked) == (rank() == 1)
        attached.close()
    said = [line for line in told if "no trials" in line]
    assert len(said) == (rank() == 0) and all("rank 1 could not" in line for line in said), said


def trials_are_off() -> None:
    """Rank 0 says why, once, unless a policy, a risk or a budget without trials was asked for."""
    no_copy = threading.Lock()  # which nobody can copy

    def steps(
        wraps: Any,
        given: bool = True,
        schedule: Any = None,
        beside: bool = False,
        **options: Any,
    ) -> str:
        told.clear()
        other = weir.torch.attach(DDP(Net()), policy=EXACT) if beside else None
        model = DDP(nn.Linear(12, 12))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = schedule(optimizer) if schedule else None
        if schedule is Plateau:  # of another optimizer, which does not matter
            Plateau(torch.optim.SGD(model.parameters(), 0.1))
        attached = weir.torch.attach(model, optimizer if given else None, **options)
        assert attached._options["update_rule"] == ("sgd" if given else "unknown")
        for x in wraps([batch(0), batch(1)], attached):
            model(x).sum().backward()
        attached.close()
        del scheduler
        if other is not None:
            other.close()
        return "; ".join(line for line in told if "no trials" in line)

    with heard() as told:
        zero = rank() == 0
        for words, options in (
            ("weir.torch.batches(loader)", {"wraps": lambda found, _: found}),
            ("length=", {"wraps": lambda found, _: weir.torch.batches(iter(found))}),
            ("no optimizer", {"wraps": weir.torch.batches, "given": False}),
            ("a scheduler;", {"wraps": weir.torch.batches, "schedule": Exponential}),
            ("ReduceLROnPlateau;", {"wraps": weir.torch.batches, "schedule": Plateau}),
            ("two batches() at once", {"wraps": zipped}),
            ("another model", {"wraps": weir.torch.batches, "beside": True}),
            (
                "as a batch cannot be copied",
                {
                    "wraps": lambda found, _: (
                        x for x, _ in weir.torch.batches([(found[0], no_copy)])
                    )
                },
            ),
            (
                "as on rank 1 a batch cannot be copied",
                {
                    "wraps": lambda found, _: (
                        x
                        for x, _ in weir.torch.batches([(found[0], no_copy if rank() == 1 else 0)])
                    )
                },
            ),
        ):
            said = steps(**options)
            assert said.count("no trials") == zero and (words in said) == zero, said
        for options in ({"risk": "safe"}, {"policy": EXACT}, {"trials": "off"}):
            assert steps(lambda found, _: found, **options) == ""
        assert steps(weir.torch.batches) == ""


def plain_loop() -> None:
    """weir.torch.average(), without DDP."""
    torch.manual_seed(3)
    model = Net()
    plain = DDP(copy.deepcopy(model), find_unused_parameters=True)
    for step in range(4):
        clear(plain, model)
        way = "left" if rank() == 1 else "both"
        for m in (plain, model):
            m(batch(step), way).square().mean().backward()
        info = weir.torch.average(model, policy=EXACT)
        assert info.step == step and info.plan == "none:1:dense-ring"
        alike(plain.module, model)
        identical_on_all(model)
    clear(model)
    x = batch(4)
    x[0, 0] = float("inf") if rank() == 1 else 0.0
    model(x).square().mean().backward()
    assert weir.torch.average(model, policy=EXACT).lost
    assert all(p.grad.isnan().all() for p in model.parameters())
    with refused(ValueError, "scalars"):
        weir.torch.average(model, loss=torch.ones(2), policy=EXACT)
    assert weir.torch.average(model, policy=EXACT).step == 4
    with heard() as told:
        model = Net().double()
        due = mean_of_all(model, lambda m: m(batch(5).double()).square().mean())
        weir.torch.average(model, policy=EXACT)
    for p, mean in zip(model.parameters(), due):
        assert torch.allclose(p.grad, mean, rtol=1e-5, atol=1e-8)
    said = [line for line in told if "float64 are averaged as float32" in line]
    assert len(said) == (rank() == 0), told


def unfrozen_later() -> None:
    """Gradients of parameters that were frozen at the first call of average() are averaged."""
    model = Net()
    model.left.requires_grad_(False)
    for step in range(4):
        if step == 2:
            model.left.requires_grad_(True)
        due = mean_of_all(model, lambda m, step=step: loss_of(m, step))
        info = weir.torch.average(model, policy=EXACT)
        assert info.step == step % 2
        for p, mean in zip((p for p in model.parameters() if p.requires_grad), due):
            assert torch.allclose(p.grad, mean, rtol=1e-5, atol=1e-8), f"step {step}"


def fsdp_shards() -> None:
    """FSDP2 inside of machines (here of one rank each), Weir between them."""
    from torch.distributed.device_mesh import init_device_mesh

    model = Net()
    plain = DDP(copy.deepcopy(model))
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("between", "inside"))
    fully_shard(model.left, mesh=mesh["inside"])
    fully_shard(model, mesh=mesh["inside"])
    for step in range(3):
        clear(plain, model)
        for m in (plain, model):
            m(batch(step)).square().mean().backward()
        info = weir.torch.average(model, group=mesh.get_group("between"), policy=EXACT)
        assert info.step == step
        for (name, p), (_, q) in zip(plain.module.named_parameters(), model.named_parameters()):
            assert torch.allclose(p.grad, q.grad.full_tensor(), rtol=1e-5, atol=1e-8), name


def main(functions: dict[str, Any]) -> None:
    _store.append(dist.FileStore(os.environ["WEIR_TEST_STORE"], int(os.environ["WORLD_SIZE"])))
    dist.init_process_group(
        "gloo",
        store=_store[0],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=60),  # one rank's failure is not waited for
    )
    if os.environ.get("WEIR_TEST_DEVICE"):
        import emulated

        emulated.install()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed goes elsewhere
    for line in sys.stdin:
        name, arguments = json.loads(line)
        torch.manual_seed(7)
        try:
            answer = {"result": functions[name](**arguments)}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(globals())
