"""A device for these tests where there is none: libweir runs its whole step on tests/emulate's, to which
all memory of the process is its own.

What PyTorch computes is then done at once, and what libweir queues is done as late as can be: when the
stream that waits for it is asked for what it has.  So whoever looks at an average without having
waited for the session's stream finds it unfinished."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

import torch

from weir.torch import _device


class _Future(torch.futures.Future):
    place: Emulated

    def set_result(self, result: Any) -> None:
        assert self.place.entered, "completed elsewhere than on the session's thread"
        self.place.drain()
        super().set_result(result)


class Emulated(_device.Host):
    def __init__(self) -> None:
        library = ctypes.CDLL(os.environ["WEIR_CUDA_LIBRARY"])
        library.weir_test_adopt()
        library.weir_test_stream.restype = ctypes.c_void_p
        library.weir_test_drain.argtypes = [ctypes.c_void_p]
        self._drain = library.weir_test_drain
        self._stream = library.weir_test_stream()
        self.entered = False

    def options(self) -> dict[str, Any]:
        return {"device": 0, "stream": self._stream}

    def drain(self) -> None:
        self._drain(self._stream)

    def mark(self) -> Any:
        return object()

    def arrive(self, mark: Any) -> None:
        assert mark is not None

    def enter(self) -> None:
        self.entered = True

    @contextlib.contextmanager
    def caller(self) -> Any:
        self.drain()
        yield

    def join(self) -> None:
        self.drain()

    def future(self) -> Any:
        made = _Future()
        made.place = self
        return made


def install() -> None:
    """Tensors are taken as if they were on that device, from now on."""
    _device.place_of = lambda held, options: Emulated()
