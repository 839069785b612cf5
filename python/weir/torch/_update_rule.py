"""What optimizers make of averages (weir_options.update_rule): by their classes, and by what they are seen to get.

SGD's steps are proportional to averages, and error feedback takes back what few bits add to these
(docs/internals/progress.md), unless gradients are clipped by their norm, which few bits make larger: then
steps are shorter, for good.  Nobody tells whether a loop clips.  So samples of averages are compared with
what the optimizer took its step by: they may differ by a factor that is the same in all steps, or that a
GradScaler has doubled or halved."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ._wrapped import local, optimizer_of

_PARAMETERS = 8  # of which there are samples
_SAMPLES = 256  # of one, which elementwise clipping is to be seen in


def watched(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The largest, and others from the first to the last."""
    found = list(parameters)
    largest = sorted(found, key=lambda p: -p.numel())[: _PARAMETERS // 2]
    step = max(1, len(found) // (_PARAMETERS - len(largest) or 1))
    others = [p for p in found[::step] if all(p is not q for q in largest)]
    return largest + others[: _PARAMETERS - len(largest)]


def sample(gradient: torch.Tensor) -> torch.Tensor:
    """In the order of memory, as DDP's buckets have it, whatever a parameter's layout is."""
    strides = gradient.stride()
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    flat = gradient.detach().permute(order).flatten()
    return flat[:: max(1, flat.numel() // _SAMPLES)][:_SAMPLES].clone()


def _looseness(samples: Iterable[torch.Tensor]) -> float:
    """Rounding of a gradient's type, relative to it."""
    return 2 * max(torch.finfo(part.dtype).eps for part in samples)


def factor(averages: list[torch.Tensor], taken: list[torch.Tensor]) -> float | None:
    """What averages were multiplied by; NaN: by no number.  None: they do not tell."""
    a, b = torch.cat(averages), torch.cat(taken)
    if a.dtype == b.dtype and torch.equal(a, b) and bool(a.any()):
        return 1.0
    a, b = a.double(), b.double()
    square = float(a.dot(a))
    if not math.isfinite(square) or square == 0 or not bool(b.isfinite().all()) or not b.any():
        return None
    k = float(a.dot(b)) / square
    most = _looseness([*averages, *taken]) * float((k * a).abs().max())
    return k if float((b - k * a).abs().max()) <= most else math.nan


class Proportion:
    """Of one optimizer's steps to averages, by samples of both."""

    def __init__(self) -> None:
        self._first: float | None = None

    def holds(
        self, averages: list[torch.Tensor], taken: list[torch.Tensor], scale: float | None
    ) -> bool:
        """`scale`: the loss scale that averages carry, where it is known."""
        k = factor(averages, taken)
        if k is None:
            return True
        k *= 1.0 if scale is None else scale
        if self._first is None:
            self._first = k
        if not k / self._first > 0:
            return False
        doubled = math.log2(k / self._first)
        return abs(doubled - round(doubled)) <= _looseness([*averages, *taken])


def _cleared(gradient: torch.Tensor | None) -> bool:
    """By zero_grad: None, or zeros."""
    return gradient is None or not bool(sample(local(gradient)).any())


class Takers:
    """The optimizers of a model: do they take all averages?  With one that no step takes goes what few
    bits had held back of others.  Those whose hooks have never been called are not asked."""

    _LEAST, _SHARE = 3, 20  # averages that matter: so many, and one in so many

    def __init__(self, optimizers: list[Any]) -> None:
        self._optimizers = optimizers
        self._steps_now = False  # one of them, which may call the model
        self._stepped: set[int] = set()  # their numbers,
        self._waiting: set[int] = set()  # and of those for whom averages have come since then
        self.thrown = 0  # averages

    def listen(self) -> list[Any]:
        """The hooks, to be removed."""
        return [
            registers(functools.partial(self._step, number, begins))
            for number, one in enumerate(self._optimizers)
            for registers, begins in (
                (one.register_step_pre_hook, True),
                (one.register_step_post_hook, False),
            )
        ]

    def _step(self, number: int, begins: bool, *_: Any) -> None:
        self._steps_now = begins
        self._stepped.add(number)
        self._waiting.discard(number)

    def averages_come(self) -> None:
        self._waiting = set(range(len(self._optimizers)))

    def throw_away(self, averaged: Callable[[torch.Tensor], bool], passes: int) -> bool:
        """Have too many of so many averages been thrown away by now?  Asked when the model is called, and
        when its backward pass begins; `averaged`: has this parameter got one last?  As long as there are
        gradients these add up."""
        if self._steps_now:
            return False
        thrown = {
            number
            for number in self._waiting & self._stepped
            if self._has_none(self._optimizers[number], averaged)
        }
        self._waiting -= thrown
        self.thrown += bool(thrown)
        return bool(thrown) and self.thrown >= max(self._LEAST, passes / self._SHARE)

    def _has_none(self, optimizer: Any, averaged: Callable[[torch.Tensor], bool]) -> bool:
        held = [p for group in optimizer.param_groups for p in group["params"]]
        return any(averaged(p) for p in held) and all(_cleared(p.grad) for p in held)


# What few bits do under these was measured, or under their like (docs/internals/progress.md).
_ADAPTIVE = {
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
}


def _kind(optimizer: Any) -> str:
    """By the very class, as what is derived from it may do something else."""
    if type(optimizer).__module__.startswith("torch.distributed.optim"):
        optimizer = getattr(optimizer, "optim", optimizer)  # ZeroRedundancyOptimizer's of this rank
    name = type(optimizer).__name__
    if getattr(torch.optim, name, None) is not type(optimizer):
        return "unknown"
    return "sgd" if name == "SGD" else "adaptive" if name in _ADAPTIVE else "unknown"


def trainers(optimizer: Any, also: Iterable[Any], parameters: Iterable[torch.Tensor]) -> list[Any]:
    """The optimizers, where they have all of the parameters."""
    found = [optimizer_of(p) for p in (optimizer, *also) if isinstance(p, torch.optim.Optimizer)]
    own = {id(p) for one in found for group in one.param_groups for p in group["params"]}
    return found if all(id(p) in own for p in parameters) else []


def update_rule(optimizer: Any, also: Iterable[Any], parameters: Iterable[torch.Tensor]) -> str:
    """weir_options.update_rule of those who train the parameters, all of which they have to have."""
    found = trainers(optimizer, also, parameters)
    if not found:
        return "unknown"
    kinds = {_kind(one) for one in found}
    if "unknown" in kinds:
        return "unknown"
    # What is not handed over as the optimizer has no hooks by which clipping is found out.
    return "sgd" if kinds == {"sgd"} and len(found) == 1 and optimizer is not None else "adaptive"


class ObservedRule:
    """Do the optimizers of a model make of averages what update_rule promises?  `taken`,
    `averages_come` and `throws_away` are called on the model's threads, all else on the session's."""

    def __init__(
        self,
        optimizer: Any,
        also: Iterable[Any],
        parameters: Sequence[torch.Tensor],
        told: str | None,
    ) -> None:
        """`told`: what the trainer says of it, which is believed."""
        self.promised = update_rule(optimizer, also, parameters) if told is None else told
        self.believes = told is not None
        self._takers: Takers | None = Takers(trainers(optimizer, also, parameters))
        samples = not self.believes and self.promised == "sgd"
        self._proportion = Proportion() if samples else None
        self._watched = {id(p): p for p in (watched(parameters) if samples else ())}
        self._sampled: list[tuple[int, torch.Tensor]] = []  # of the step under way
        self._averages: dict[int, torch.Tensor] = {}  # samples
        self._doubted: str | None = None

    def listen(self, optimizer: Any, stepped: Callable[..., None]) -> list[Any]:
        """The hooks, to be removed; `stepped` is called after steps that are to be compared."""
        assert self._takers is not None
        hooks = self._takers.listen()
        if self._proportion is not None:
            hooks.append(optimizer.register_step_post_hook(stepped))
        return hooks

    def taken(self) -> dict[int, torch.Tensor]:
        """Samples of what the optimizer has taken its step by, to be compared."""
        if self._proportion is None:
            return {}
        return {
            key: sample(local(p.grad)) for key, p in self._watched.items() if p.grad is not None
        }

    def lent(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        if self._proportion is not None and id(parameter) in self._watched:
            self._sampled.append((id(parameter), gradient))

    def averaged(self, lost: bool) -> None:
        """What is lent are averages now, unless the step is lost."""
        sampled, self._sampled = self._sampled, []
        self._averages = {} if lost else {key: sample(part) for key, part in sampled}

    def changes(self, taken: dict[int, torch.Tensor], scale: float | None) -> bool:
        """Is a step seen, for the first time, to be by something else than averages?  Then the rule is
        doubted."""
        averages, self._averages = self._averages, {}
        both = [key for key in averages if key in taken]
        if self._proportion is None or not both:
            return False
        if self._proportion.holds(
            [averages[key] for key in both], [taken[key] for key in both], scale
        ):
            return False
        self._proportion = None
        self.doubt("adaptive")
        return True

    def averages_come(self) -> None:
        if self._takers is not None:
            self._takers.averages_come()

    def throws_away(self, averaged: Callable[[torch.Tensor], bool], passes: int) -> int:
        """So many of so many averages have been thrown away, which are too many; told once, else 0."""
        if self._takers is None or not self._takers.throw_away(averaged, passes):
            return 0
        thrown, self._takers = self._takers.thrown, None
        return thrown

    def doubt(self, rule: str) -> None:
        self._doubted = rule if self._doubted is None else "unknown"

    def doubted(self) -> str | None:
        """What the rule counts as from the next step on, told once."""
        rule, self._doubted = self._doubted, None
        return rule
