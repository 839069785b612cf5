"""Loops without DistributedDataParallel: the gradients are averaged after the backward pass."""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import Any

import torch

from .._native import TYPES
from ..session import Session, StepInfo
from . import _device
from ._ddp import lendable, name_of, refuse_sparse
from ._fsdp import like
from ._meet import open_session
from ._wrapped import local

logger = logging.getLogger("weir")
_sessions: weakref.WeakKeyDictionary[torch.nn.Module, _Averager] = weakref.WeakKeyDictionary()


class _Averager:
    def __init__(self, model: torch.nn.Module, group: Any, options: dict[str, Any]) -> None:
        options.setdefault("nonfinite", "keep")
        options.setdefault("trial_budget", 0)
        self.group, self.options = group, options
        refuse_sparse(model)
        self.parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad][::-1]
        self._known = {id(p) for _, p in self.parameters}
        self.place = _device.place_of(((n, local(p).device) for n, p in self.parameters), options)
        self.dtypes: list[str] = []
        with self.place.here():
            self.session: Session = open_session(group, {**options, **self.place.options()})
            self._start()
        # By close(), or when the model has been dropped.
        self._leave = weakref.finalize(self, _leave, self.session, self.place)
        self._leave.atexit = False
        atexit.register(_close, weakref.ref(self))

    def knows(self, model: torch.nn.Module) -> bool:
        """All that are trained now; some may have been frozen when it began."""
        return all(id(p) in self._known for p in model.parameters() if p.requires_grad)

    def close(self) -> None:
        self._leave()

    def _start(self) -> None:
        others = sorted({name_of(p.dtype) for _, p in self.parameters} - TYPES.keys())
        if others and self.session.rank == 0:
            logger.warning("gradients of %s are averaged as float32", " and ".join(others))
        try:
            for name, p in self.parameters:
                if not p.is_floating_point():
                    raise TypeError(f"parameter {name} is {p.dtype}; no such numbers are exchanged")
                dtype = name_of(p.dtype)
                self.dtypes.append(dtype if dtype in TYPES else "float32")
                self.session.register(name, tuple(local(p).shape), self.dtypes[-1])
            self.session.start()
        except BaseException:
            self.session.close()
            raise

    def step(self, loss: float | torch.Tensor | None) -> StepInfo:
        with self.place.here():
            return self._step(loss)

    def _step(self, loss: float | torch.Tensor | None) -> StepInfo:
        held = []  # what is submitted, by parameter
        for number, (_, p) in enumerate(self.parameters):
            shard = local(p.detach())
            grad = None if p.grad is None else local(p.grad)
            if grad is None:
                dtype = getattr(torch, self.dtypes[number])
                lent = torch.zeros(shard.numel(), dtype=dtype, device=shard.device)
            else:
                lent = lendable(grad.detach(), self.dtypes[number])
            held.append((p, grad, lent))
        told = None if loss is None else float(loss)
        self.session.begin()  # now that nothing can be refused, which would leave the step open
        self.place.arrive(self.place.mark())
        try:
            for number, (_, _, lent) in enumerate(held):
                self.session.submit(number, lent.data_ptr() if lent.numel() else 0)
            if told is not None:
                self.session.report_loss(told)
            info = self.session.end()
        finally:
            self.place.join()
        for p, grad, lent in held:
            if grad is not None:
                if lent.data_ptr() != grad.data_ptr():
                    grad.copy_(lent)
            elif lent.any():  # another rank's loss has it, or error feedback still owes it
                p.grad = like(p, lent.view(local(p).shape).to(p.dtype))
        return info


def _leave(session: Session, place: _device.Host) -> None:
    with place.here():
        session.close()


def _close(reference: weakref.ref[_Averager]) -> None:
    averager = reference()
    if averager is not None:
        averager.close()


def average(
    model: torch.nn.Module,
    *,
    loss: float | torch.Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> StepInfo:
    """Replace the gradients of a model by their averages over all ranks, after the backward pass.

    All ranks of the process group `group` (None: the default one) call it, every step.  The first
    call makes the session; `options` are those of attach().  A call with parameters that were frozen
    then makes another, and loses what error feedback has kept back.  Under FSDP2 the shards are
    averaged: `group` is then the ranks that hold the same shard, of machines between which links are
    slow."""
    averager = _sessions.get(model)
    if averager is not None and not averager.knows(model):
        if averager.session.rank == 0:
            logger.warning(
                "parameters are trained that were frozen before: the session begins anew, without "
                "what error feedback has kept back"
            )
        averager.close()
        group, options = averager.group, averager.options
        averager = None
    if averager is None:
        averager = _sessions[model] = _Averager(model, group, options)
    return averager.step(loss.detach() if isinstance(loss, torch.Tensor) else loss)
