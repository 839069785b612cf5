"""What is behind the wrappers that torch.compile() and trainers put around models, optimizers and
schedulers: that is where hooks run, and what trials put back.  None of them is known by its name."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def is_sharded(model: Any) -> bool:
    """Has fully_shard() made it a FSDPModule?  Where that class is to be found depends on torch."""
    return hasattr(model, "set_requires_all_reduce")


def local(tensor: Any) -> torch.Tensor:
    """What this rank holds of it: of a DTensor its shard, in the same memory."""
    if not hasattr(tensor, "to_local"):
        return tensor  # type: ignore[no-any-return]
    with torch.no_grad():
        return tensor.to_local()  # type: ignore[no-any-return]


def model_of(model: Any) -> Any:
    """The DistributedDataParallel, or the model under fully_shard, that this is or wraps; as it is
    where that does not have all that is trained, whose gradients would not be exchanged."""
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    found = (m for m in parts if isinstance(m, DistributedDataParallel) or is_sharded(m))
    inner: Any = next(found, model)
    if inner is not model:
        held = {id(p) for p in inner.parameters()}
        if not all(id(p) in held for p in model.parameters() if p.requires_grad):
            return model
    return inner


def optimizer_of(optimizer: Any) -> Any:
    """The optimizer that steps: one whose state is that of another only calls that, and its own
    hooks may never run.  What has a state of its own, such as Lookahead, does something itself."""
    inner = getattr(optimizer, "optimizer", None)
    while (
        isinstance(inner, torch.optim.Optimizer)
        and getattr(optimizer, "state", None) is inner.state
        and getattr(optimizer, "param_groups", None) is inner.param_groups
    ):
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    return optimizer


def schedulers_of(scheduler: Any) -> list[Any]:
    """It, what it is made of, and what it wraps."""
    return [
        scheduler,
        *getattr(scheduler, "_schedulers", ()),
        getattr(scheduler, "scheduler", None),
    ]
