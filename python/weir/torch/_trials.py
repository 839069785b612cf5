"""Trials in a PyTorch loop: state that is put back when a trial's steps are rolled back, and batches that
are then handed out again.

Policy weir tries a plan for some steps, comes back to where they began, and takes the same batches
under the plan in force.  The session says when (Session.on_trial); that is within the call that
begins a step, while the loop waits for its next batch, so that nothing else looks at the state."""

from __future__ import annotations

import copy
import dataclasses
import logging
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ._meet import gathered

if TYPE_CHECKING:
    from ._ddp import Attached

logger = logging.getLogger("weir")

_NONE = -1.0  # not even for what takes no memory
_PAIRS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class Randomness:
    """Where the global generators are: torch's, of each CUDA device, numpy's and Python's."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._devices = torch.cuda.get_rng_state_all() if cuda else []
        self._numpy = np.random.get_state() if (np := sys.modules.get("numpy")) else None
        self._python = random.getstate()

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        random.setstate(self._python)


def _accessors(part: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    for read, write in _PAIRS:
        if hasattr(part, read) and hasattr(part, write):
            return getattr(part, read), getattr(part, write)
    raise TypeError(
        f"a {type(part).__name__} has neither state_dict() and load_state_dict() nor get_state() "
        "and set_state(), so that trials could not put it back"
    )


class _Copy:
    """Of a tensor, where that is or in host memory."""

    def __init__(self, tensor: torch.Tensor, in_host_memory: bool) -> None:
        self._device, tensor = tensor.device, tensor.detach()
        self._held = tensor.to("cpu", copy=True) if in_host_memory else tensor.clone()

    def held(self) -> torch.Tensor:
        if self._held.is_cuda:  # the stream may be another than the copy was made on
            self._held.record_stream(torch.cuda.current_stream(self._device))
        return self._held

    def again(self) -> torch.Tensor:
        return self.held().to(self._device, copy=True)


def _copied(value: Any, in_host_memory: bool) -> Any:
    """What an optimizer keeps of a parameter."""
    if type(value) is torch.Tensor:
        return _Copy(value, in_host_memory)
    if type(value) is dict:
        return {key: _copied(part, in_host_memory) for key, part in value.items()}
    return copy.deepcopy(value)


def _again(kept: Any) -> Any:
    if isinstance(kept, _Copy):
        return kept.again()
    if type(kept) is dict:
        return {key: _again(part) for key, part in kept.items()}
    return copy.deepcopy(kept)


def _bits(tensor: torch.Tensor) -> int:
    """A sum that changes with the tensor, as good as always."""
    return int(tensor.detach().flatten().view(torch.uint8).sum())


class Checkpoint:
    """What steps change: parameters, their gradients and buffers, the optimizer, `others`.  Random
    numbers go with the batches (Replay)."""

    def __init__(self, module: torch.nn.Module, optimizer: Any, others: Iterable[Any]) -> None:
        self._module = module
        self._optimizers = [optimizer]
        # ZeroRedundancyOptimizer leaves to another what is this rank's, its state, too.
        if isinstance(inner := getattr(optimizer, "optim", None), torch.optim.Optimizer):
            self._optimizers.append(inner)
        self._others = [_accessors(part) for part in others]
        # Frozen parameters may be most of a model, and are left out; unless they do change, as
        # those of a momentum encoder do.
        self._frozen = {
            p: _bits(p)
            for p in module.parameters()
            if not p.requires_grad and type(p.data) is torch.Tensor
        }
        self.drop()

    def drop(self) -> None:
        """It is not needed any more."""
        self._tensors: list[tuple[torch.Tensor, _Copy]] = []
        self._buffers: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._gradients: list[tuple[torch.Tensor, _Copy | None]] = []
        self._states: list[dict[Any, Any]] = []
        self._groups: list[list[dict[str, Any]]] = []
        self._told: list[Any] = []

    def take(self, spare: float) -> None:
        """`spare`: bytes that there are for it; one that takes more goes to host memory.  So does one
        that finds no room all the same, which may be in pieces, or another's by now."""
        try:
            self._take(spare)
        except torch.cuda.OutOfMemoryError as error:
            logger.info("a trial's checkpoint is kept in host memory: %s", error)
            self._take(_NONE)

    def _take(self, spare: float) -> None:
        self.drop()
        self._buffers = [
            (owner._buffers, name, buffer)
            for owner in self._module.modules()
            for name, buffer in owner._buffers.items()
            if buffer is not None
        ]
        parameters = list(self._module.parameters())
        tensors = [buffer for _, _, buffer in self._buffers]
        for p in parameters:
            if p.requires_grad or p not in self._frozen or _bits(p) != self._frozen[p]:
                tensors.append(p)
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = [list(optimizer.state.values()) for optimizer in self._optimizers]
        away = _bytes_of([tensors, gradients, states]) > spare

        self._tensors = [(t, _Copy(t, away)) for t in tensors]
        self._gradients = [(p, None if p.grad is None else _Copy(p.grad, away)) for p in parameters]
        for optimizer in self._optimizers:
            self._states.append({p: _copied(s, away) for p, s in optimizer.state.items()})
            self._groups.append(
                [
                    {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
                    for group in optimizer.param_groups
                ]
            )
        self._told = [copy.deepcopy(read()) for read, _ in self._others]

    def restore(self) -> None:
        """May be called again for the same checkpoint, so what it holds is copied."""
        for owner, name, buffer in self._buffers:
            owner[name] = buffer  # a forward pass may have put another in its place
        with torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.copy_(kept.held())
            for parameter, gradient in self._gradients:
                if gradient is None or parameter.grad is None:
                    parameter.grad = None if gradient is None else gradient.again()
                else:  # which may be a view of DDP's
                    parameter.grad.copy_(gradient.held())
        for optimizer, states, groups in zip(self._optimizers, self._states, self._groups):
            optimizer.state.clear()
            for parameter, state in states.items():
                optimizer.state[parameter] = _again(state)
            for group, settings in zip(optimizer.param_groups, groups):
                group.update(copy.deepcopy(settings))
        for (_, write), told in zip(self._others, self._told):
            write(copy.deepcopy(told))


class Replay:
    """Batches of a trial, and where the generators were when each had been drawn: a step finds them
    there again, and a loader that augments has then drawn its numbers, which it does once."""

    def __init__(self) -> None:
        self._behind: list[tuple[Any, Randomness | None]] = []  # handed out within the trial
        self.ahead: deque[tuple[Any, Randomness | None]] = deque()  # to be handed out next

    def began(self) -> None:
        self._behind.clear()

    def rolled_back(self) -> None:
        self.ahead.extendleft(reversed(self._behind))
        self._behind.clear()

    def drawn(self, batch: Any, in_trial: bool) -> None:
        self.ahead.append((batch, Randomness() if in_trial else None))

    def next(self, in_trial: bool) -> Any:
        batch, drawn = self.ahead.popleft()
        if drawn is not None:
            drawn.restore()
        if in_trial:  # the loop may change what it gets
            self._behind.append((copy.deepcopy(batch), drawn or Randomness()))
        return batch


_END = object()
TRIAL_ROOM = 252  # steps that must be able to follow the one before a trial (controller/rounds.h)


def _bytes_of(batch: Any) -> int:
    """Of its tensors and arrays, and what they are gathered in."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, Mapping):
        return sum(_bytes_of(part) for part in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(_bytes_of(part) for part in batch)
    if dataclasses.is_dataclass(batch):
        return sum(_bytes_of(getattr(batch, part.name)) for part in dataclasses.fields(batch))
    return int(getattr(batch, "nbytes", sys.getsizeof(batch)))


class Batches:
    """A loader's batches, and those of a trial that was rolled back once more; see batches()."""

    def __init__(
        self, loader: Iterable[Any], attached: Attached, length: int | None, hold: int
    ) -> None:
        self._loader, self._attached, self._length, self._hold = loader, attached, length, hold
        self._most = 0  # batches that may be held
        self._a_step = 1  # batches that a step takes, at the most

    def __len__(self) -> int:
        return len(self._loader) if self._length is None else self._length  # type: ignore[arg-type]

    def _shortest(self) -> int | None:
        """The least number of batches that any rank has; None: some rank does not know."""
        try:
            mine = len(self)
        except TypeError:
            mine = -1
        least: int = min(gathered(mine, self._attached._group))
        return least if least >= 0 else None

    def _why_not(self, left: int | None, batch: Any) -> str | None:
        if left is None:
            return "the loader has no length; hand one to batches(), as length=..."
        try:
            copy.deepcopy(batch)
        except Exception as error:
            return f"a batch cannot be copied: {error}"
        self._most = self._hold // max(1, _bytes_of(batch))
        if self._most < TRIAL_ROOM:
            return (
                f"{TRIAL_ROOM} batches of {_bytes_of(batch)} bytes are more than the "
                f"{self._hold} that batches(..., hold=) may hold"
            )
        return self._attached._why_no_trials()

    def _why_not_on_any(self, left: int | None, batch: Any) -> str | None:
        """As rank 0 decides of trials, which all ranks then have, it is told of theirs."""
        why = self._why_not(left, batch)
        if left is None or left < 0:  # some rank has no batch, and does not come here
            return why
        told = gathered((why, self._most), self._attached._group)
        self._most = min(most for _, most in told)
        others = (f"on rank {rank} {one}" for rank, (one, _) in enumerate(told) if one)
        return why or next(others, None)

    def __iter__(self) -> Iterator[Any]:
        attached, mine = self._attached, object()
        before, attached.iterated = attached.iterated, mine
        try:
            yield from self._each(mine)
        finally:
            if attached.iterated is mine:
                attached.iterated = before

    def _each(self, mine: object) -> Iterator[Any]:
        attached, replay = self._attached, self._attached._replay
        left = self._shortest()
        rooms: bool | None = None
        source = iter(self._loader)
        taken = 0  # batches of the step under way
        while True:
            if not replay.ahead and (batch := next(source, _END)) is not _END:
                replay.drawn(batch, attached.trial)
                left = None if left is None else left - 1
                if rooms is None:
                    rooms = attached._say_whether(self._why_not_on_any(left, batch))
            if not replay.ahead and not attached.trial:
                return
            rooms = rooms and attached._has_room()
            room = max(0, (left or 0) + len(replay.ahead) - 1) if rooms else 0
            if not attached.trial:  # and once one has begun, for all of it
                room = min(room, self._most)
            if attached._advance(room // self._a_step):
                self._a_step, taken = max(self._a_step, taken), 0
            if not replay.ahead:
                raise RuntimeError(
                    "the loader has ended within a trial, before the batches that it promised"
                )
            taken += 1
            attached.in_batch = bool(rooms)
            try:
                yield replay.next(attached.trial)
            finally:
                attached.in_batch = False
            attached._resume(mine)
