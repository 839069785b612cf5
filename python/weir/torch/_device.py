"""Where a model's gradients lie, and what orders the work that is queued there.

In host memory whatever was called is done when it returns.  On a CUDA device it is queued, on the
stream that is current in the thread that calls; the session has a stream of its own, so that it
follows what gradients are computed by and nobody else waits for it.  Between the two go marks: a
mark says how far a thread has queued, and the session's stream waits until the device has come
there.  Nothing here waits on the host."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import torch

from . import _loss


class Host:
    """Host memory, where nothing has to be ordered."""

    def options(self) -> dict[str, Any]:
        """What the session is to know of it."""
        return {}

    def here(self) -> contextlib.AbstractContextManager[Any]:
        """For calls of the session on the model's threads, which would leave another device behind."""
        return contextlib.nullcontext()

    def mark(self) -> Any:
        """On a thread of the model: so far has it queued."""
        return None

    def arrive(self, mark: Any) -> None:
        """The session's stream waits until the device has come to the mark."""

    def enter(self) -> None:
        """The thread that calls is the session's: what it queues is queued on the session's stream."""

    def caller(self) -> contextlib.AbstractContextManager[Any]:
        """On the session's thread: what is queued within is queued where the thread works that has set
        the last mark, whose memory it is; in order with what the session's stream has and gets."""
        return contextlib.nullcontext()

    def join(self) -> None:
        """On a thread of the model: its stream waits for what the session's has."""

    def future(self) -> Any:
        """Completed on the session's thread; who waits for it finds there what was queued."""
        return torch.futures.Future()

    def spare(self) -> float:
        """Bytes that are free there beside what steps have taken at their most."""
        return math.inf

    def scale_of(self, scaler: Any) -> Any:
        """A GradScaler's scale, as a number or what float() makes one of."""
        return scaler.get_scale()


class Cuda(Host):
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._caller: Any = self._stream

    def options(self) -> dict[str, Any]:
        return {"device": self._device.index, "stream": self._stream}

    def here(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.device(self._device)

    def mark(self) -> Any:
        stream = torch.cuda.current_stream(self._device)
        return stream, stream.record_event()

    def arrive(self, mark: Any) -> None:
        self._caller, event = mark
        self._stream.wait_event(event)

    def enter(self) -> None:
        torch.cuda.set_stream(self._stream)

    @contextlib.contextmanager
    def caller(self) -> Any:
        self._caller.wait_stream(self._stream)
        try:
            with torch.cuda.stream(self._caller):
                yield
        finally:
            self._stream.wait_stream(self._caller)

    def join(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def future(self) -> Any:
        return torch.futures.Future(devices=[self._device])

    def spare(self) -> float:
        free, _ = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        return free + reserved - torch.cuda.max_memory_allocated(self._device)

    def scale_of(self, scaler: Any) -> Any:
        """get_scale() would wait for all that is queued."""
        return _loss.scale(scaler, torch.ones((), device=self._device))


def place_of(held: Iterable[tuple[str, torch.device]], options: dict[str, Any]) -> Host:
    """Of parameters, by name, and a session's options."""
    for key in ("device", "stream"):
        if key in options:
            raise ValueError(f"{key}= is for Session; here it follows from the parameters")
    first: dict[torch.device, str] = {}
    for name, device in held:
        first.setdefault(device, name)
    if len(first) > 1:
        (one, a), (other, b), *_ = first.items()
        raise TypeError(
            f"parameter {a} is on {one}, and {b} on {other}; those that are exchanged are to be in "
            "host memory or on one device, all of them"
        )
    for device, name in first.items():
        if device.type == "cuda" and torch.version.cuda is not None:
            return Cuda(device)
        if device.type != "cpu":
            raise TypeError(
                f"parameter {name} is on {device}; gradients are exchanged in host memory and on "
                "CUDA devices"
            )
    return Host()
