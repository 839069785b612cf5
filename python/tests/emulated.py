"""A device for these tests where there is none: libweir runs its whole step on tests/emulate's, to which
all memory of the process is its own.

What PyTorch computes is then done at once, and what libweir queues is done as late as can be: when
somebody waits for the stream that it is queued on.  So whoever looks at an average without having
waited for the session's stream finds it unfinished.  As much of torch.cuda as the package uses of
streams is here, with the same names."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

from weir.torch import _device


class _Stream:
    """Events are the streams that have recorded them: waiting does what is queued there."""

    def __init__(self, device: Any = None) -> None:
        library = ctypes.CDLL(os.environ["WEIR_CUDA_LIBRARY"])
        library.weir_test_adopt()
        library.weir_test_stream.restype = ctypes.c_void_p
        library.weir_test_drain.argtypes = [ctypes.c_void_p]
        self.cuda_stream: int = library.weir_test_stream()
        self._drain = library.weir_test_drain

    def drain(self) -> None:
        self._drain(self.cuda_stream)

    def record_event(self) -> _Stream:
        return self

    def wait_event(self, event: _Stream) -> None:
        event.drain()

    def wait_stream(self, other: _Stream) -> None:
        other.drain()


class _Local(threading.local):
    def __init__(self) -> None:
        self.current = _Stream()


@contextlib.contextmanager
def _on(stream: _Stream) -> Iterator[None]:
    before, _local.current = _local.current, stream
    try:
        yield
    finally:
        _local.current = before


class _Future(torch.futures.Future):
    def set_result(self, result: Any) -> None:
        _local.current.drain()  # who waits for the Future waits for what is current here
        super().set_result(result)


class _Emulated(_device.Cuda):
    def spare(self) -> float:
        return 0.0  # so that trials keep all in host memory

    def future(self) -> Any:
        return _Future()  # whose devices torch would not know


def install() -> None:
    """Tensors are taken as if they were on that device, from now on."""
    global _local
    _local = _Local()
    torch.cuda.Stream = _Stream
    torch.cuda.current_stream = lambda device: _local.current
    torch.cuda.set_stream = lambda stream: setattr(_local, "current", stream)
    torch.cuda.stream = _on
    torch.cuda.device = contextlib.nullcontext
    _device.place_of = lambda held, options: _Emulated(torch.device("cpu", 0))
