"""The loss that a backward pass begins at, found without a line in the training's loop.

While a model is attached with loss="auto", torch.autograd.backward, which Tensor.backward calls, is
wrapped by a function that remembers the scalar it was given, and what is to be done as it begins and
at its end.  Which of a step's backward passes counts (there may be several models, or a penalty's own) is known
when gradients of the attached model come out of one: on the thread that has called it, or, of a
device, on a thread of torch's for that device.  There it is the pass of the thread on which the
model was called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

_original = torch.autograd.backward
_original_scale = torch.amp.GradScaler.scale
_lock = threading.RLock()  # the garbage collector may come to unwatch() within watch()
_watchers = 0


class Pass:
    """A thread's backward pass, and what is known of it before and after."""

    inside = False  # it is under way; those that it makes itself are parts of it
    root: torch.Tensor | None = None
    scaled = False  # a GradScaler has scaled something since the last backward pass
    first: tuple[Callable[[], None], ...] = ()  # when the next one begins
    then: tuple[Callable[[], None], ...] = ()  # when this backward pass has ended


class _Local(threading.local):
    def __init__(self) -> None:
        self.own = Pass()


_local = _Local()


def _scalar(tensors: Any, gradients: Any) -> torch.Tensor | None:
    if not isinstance(tensors, torch.Tensor):
        tensors = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else None
    alone = isinstance(tensors, torch.Tensor) and tensors.numel() == 1 and gradients is None
    return tensors.detach() if alone else None


def _watching(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    own = _local.own
    if own.inside or within():
        return _original(tensors, grad_tensors, *args, **kwargs)
    first, own.first = own.first, ()
    for work in first:
        work()
    own.inside, own.root = True, _scalar(tensors, grad_tensors)
    try:
        _original(tensors, grad_tensors, *args, **kwargs)
        for work in own.then:
            work()
    finally:
        own.inside, own.root, own.scaled, own.then = False, None, False, ()


def _scaling(scaler: Any, outputs: Any) -> Any:
    if scaler.is_enabled():
        _local.own.scaled = True
    return _original_scale(scaler, outputs)


def scale(scaler: Any, outputs: Any) -> Any:
    """As a GradScaler does, without being taken for the loss."""
    return _original_scale(scaler, outputs)


def within() -> bool:
    """Is this called by a backward pass, be it on a thread of torch's?"""
    return torch._C._current_graph_task_id() >= 0


def here() -> Pass:
    """The thread's that calls."""
    return _local.own


def under_way(of_the_model: Pass) -> Pass | None:
    """That which gradients come out of, on this thread, of a model that was called on a thread with
    that pass."""
    for known in (_local.own, of_the_model):
        if known.inside:
            return known
    return None


def watch() -> None:
    global _watchers
    with _lock:
        _watchers += 1
        if _watchers == 1:
            torch.autograd.backward = _watching
            torch.amp.GradScaler.scale = _scaling  # type: ignore[method-assign, assignment]


def unwatch() -> None:
    """The last one puts back what was there, unless somebody else has wrapped it meanwhile."""
    global _watchers
    with _lock:
        _watchers -= 1
        if _watchers == 0 and torch.autograd.backward is _watching:
            torch.autograd.backward = _original
        if _watchers == 0 and torch.amp.GradScaler.scale is _scaling:
            torch.amp.GradScaler.scale = _original_scale  # type: ignore[method-assign]
