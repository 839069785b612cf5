"""The loss that a backward pass begins at, found without a line in the training's loop.

While a model is attached with loss="auto", torch.autograd.backward, which Tensor.backward calls, is
wrapped by a function that remembers the scalar it was given, and what is to be done at its end.
Which of a step's backward passes counts (there may be several models, or a penalty's own) is known
when gradients of the attached model come out of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

_original = torch.autograd.backward
_original_scale = torch.amp.GradScaler.scale
_lock = threading.Lock()
_watchers = 0


class _Now(threading.local):
    inside = False  # a backward pass of this thread; those that it makes itself are parts of it
    root: torch.Tensor | None = None
    scaled = False  # a GradScaler has scaled something since the last backward pass
    then: tuple[Callable[[], None], ...] = ()  # when this backward pass has ended


_now = _Now()


def _scalar(tensors: Any, gradients: Any) -> torch.Tensor | None:
    if not isinstance(tensors, torch.Tensor):
        tensors = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else None
    alone = isinstance(tensors, torch.Tensor) and tensors.numel() == 1 and gradients is None
    return tensors.detach() if alone else None


def _watching(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    if _now.inside:
        return _original(tensors, grad_tensors, *args, **kwargs)
    _now.inside, _now.root = True, _scalar(tensors, grad_tensors)
    try:
        _original(tensors, grad_tensors, *args, **kwargs)
        for work in _now.then:
            work()
    finally:
        _now.inside, _now.root, _now.scaled, _now.then = False, None, False, ()


def _scaling(scaler: Any, outputs: Any) -> Any:
    _now.scaled = True
    return _original_scale(scaler, outputs)


def now() -> float | None:
    """Of the backward pass that this thread is in; None: it did not begin at a scalar."""
    return None if _now.root is None else float(_now.root)


def then(work: Callable[[], None]) -> None:
    """Do it when the backward pass that this thread is in has ended, before the loop goes on."""
    if _now.inside:
        _now.then += (work,)


def scaled() -> bool:
    """Does this thread's backward pass begin at a loss times a GradScaler's scale?"""
    return _now.scaled


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
