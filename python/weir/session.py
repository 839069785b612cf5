"""A session: one worker's end of a group that averages gradients."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Union

from . import _log, _native
from .errors import UsageError, WeirError, check

_library = _native.library


def _text(key: str, value: Any) -> bytes:
    """An option as weir_options_set() takes it: text without a zero, at which C would end it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{key} is bytes; text is due, such as theirs in hexadecimal digits")
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = float.__repr__(value) if isinstance(value, float) else str(value)  # or numpy's
    if "\0" in text:
        raise ValueError(f"{key} has a zero character in it")
    return text.encode()


class StepInfo:
    """What a step did: the fields of weir_step_info (include/weir/weir.h); `plan` is text, such as
    "qsgd:0.125:sra".  `lost`: a gradient was not finite, and the step has changed nothing."""

    step: int
    trial: bool
    plan: str
    compute_s: float
    compress_s: float
    comm_s: float
    exchange_s: float
    predicted_comm_s: float
    overhead_s: float
    wire_bytes: int
    probe_bytes: int
    gain: float
    latency_s: float
    bandwidth_bytes_s: float
    goodput_bytes_s: float
    lost: bool
    codec: str
    collective: str
    cr: float
    __slots__ = tuple(__annotations__)

    def __init__(self, raw: _native.StepInfo, lost: bool = False) -> None:
        for name in _native.STEP_INFO_FIELDS:
            if name not in ("struct_size", "plan"):
                setattr(self, name, getattr(raw, name))
        self.plan = format_plan(raw.plan)
        self.codec = _library.weir_codec_name(raw.plan.codec).decode()
        self.collective = _plan_text(
            _library.weir_plan_collective, raw.plan, _native.COLLECTIVE_TEXT_MAX
        )
        self.cr = raw.plan.cr
        self.lost = lost

    def __repr__(self) -> str:
        return "StepInfo(" + ", ".join(f"{n}={getattr(self, n)!r}" for n in self.__slots__) + ")"


def _plan_text(write: Callable[..., None], plan: _native.Plan, room: int) -> str:
    text = ctypes.create_string_buffer(room)
    write(ctypes.byref(plan), text)
    return text.value.decode()


def format_plan(plan: _native.Plan) -> str:
    return _plan_text(_library.weir_plan_format, plan, _native.PLAN_TEXT_MAX)


# What the elements of a buffer are called, and how long they are; Python has no bfloat16.
_FORMATS = {"float32": ("f", 4), "float16": ("e", 2), "bfloat16": ("H", 2)}
# Likewise in the CUDA array interface, where bfloat16 is bits of one kind or another.
_TYPESTRS = {"float32": ("<f4",), "float16": ("<f2",), "bfloat16": ("<V2", "<u2")}


def _address(buffer: Any, elements: int, dtype: str, device: int) -> tuple[int, Any]:
    """Where a gradient lies, and what keeps it there: an address; a tensor of PyTorch; an array in a
    device's memory; or anything with the buffer protocol.  It is contiguous and can be written to.
    That an address is the session's kind of memory is looked at by the library."""
    if isinstance(buffer, int):
        return buffer, None
    if hasattr(buffer, "data_ptr"):
        return _of_tensor(buffer, elements, dtype, device)
    if hasattr(buffer, "__cuda_array_interface__"):
        return _of_array(buffer, elements, dtype, device)
    try:
        view = memoryview(buffer)
    except ValueError as error:  # numpy's of an array of ml_dtypes, as jax has them
        raise TypeError(
            f"the gradient's numbers have no buffer format ({error}): hand over bfloat16 as its bits, "
            "array.view('uint16')"
        ) from error
    form, size = _FORMATS[dtype]
    if view.format.lstrip("<=@") != form or view.nbytes != size * elements:
        raise TypeError(
            f"a gradient of {elements} elements of {dtype} (format {form!r}) is due, not "
            f"{view.nbytes} bytes of format {view.format!r}"
        )
    if elements == 0:
        return 0, None
    if view.readonly or not view.c_contiguous:
        raise TypeError(
            "a gradient is to be contiguous and writable, as its average is left in it: hand over a copy, "
            "numpy.array(gradient, order='C')"
        )
    keeper = (ctypes.c_char * view.nbytes).from_buffer(view.cast("B"))
    return ctypes.addressof(keeper), keeper


def _of_tensor(tensor: Any, elements: int, dtype: str, device: int) -> tuple[int, Any]:
    found = str(tensor.dtype).rpartition(".")[2]
    if (tensor.numel(), found) != (elements, dtype) or not tensor.is_contiguous():
        raise TypeError(
            f"a contiguous gradient of {elements} elements of {dtype} is due, not {tensor.numel()} of "
            f"{found}{'' if tensor.is_contiguous() else ' that lie apart'}"
        )
    if tensor.device.type == "cuda" and tensor.device.index != device:
        raise TypeError(
            f"the gradient is on {tensor.device}, and the session's are "
            + (f"on device {device}" if device >= 0 else "in host memory, as it got no device=")
        )
    return tensor.data_ptr() if elements else 0, tensor


def _of_array(array: Any, elements: int, dtype: str, device: int) -> tuple[int, Any]:
    about = array.__cuda_array_interface__
    count = math.prod(about["shape"])
    if count != elements or about["typestr"] not in _TYPESTRS[dtype]:
        raise TypeError(
            f"a gradient of {elements} elements of {dtype} is due, not {count} of "
            f"type {about['typestr']!r}"
        )
    if about.get("strides") is not None and elements:
        extent = int(about["typestr"][2:])
        for length, stride in zip(reversed(about["shape"]), reversed(about["strides"])):
            if length > 1 and stride != extent:
                raise TypeError("a gradient on a device is to be contiguous")
            extent *= length
    address, constant = about["data"]
    if constant:
        raise TypeError("a gradient on a device is to be writable")
    if device < 0:
        raise TypeError(
            "the gradient is in a CUDA device's memory, and the session's are in host memory, as it "
            "got no device="
        )
    return address if elements else 0, array


def _stream_address(stream: Any) -> int:
    """An address, or PyTorch's or CuPy's stream."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int):
        raise TypeError(f"stream is {stream!r}; the address of a cudaStream_t is due")
    return stream


_WHERE_FROM = (
    "`pip install ./python` builds libweir_cuda where it finds nvcc of CUDA 12 or later, and the "
    "environment's WEIR_CUDA_LIBRARY names one that was built elsewhere"
)
Buffer = Union[int, bytearray, memoryview, Any]


class Session:
    """One worker's session.  `options` are those of weir_options (include/weir/weir.h), by name:
    policy, risk, transport, rendezvous, secret, timeout_s, seed, overlap, ...  With device= gradients
    are in that CUDA device's memory, and computed on stream= (PyTorch's, CuPy's, or an address; None:
    the default stream), which is kept as long as the session.

    Life: register tensors, start, then for every step begin, submit each tensor's gradient, end.
    A session is used from one thread at a time.  It closes itself at the end of a `with` block."""

    def __init__(self, rank: int = 0, world_size: int = 1, **options: Any) -> None:
        self._session = ctypes.c_void_p()
        self._process = os.getpid()
        self.rank, self.world_size = rank, world_size
        self._elements: list[int] = []
        self._dtypes: list[str] = []
        self._lent: list[Any] = []  # buffers of the step under way
        self._info = _native.StepInfo()
        self._hooks: _native.StateHooks | None = None
        self._hook_error: BaseException | None = None
        device, self._stream = options.get("device"), options.get("stream")
        self._device = -1 if device is None else int(device)
        if self._stream is not None:
            options = {**options, "stream": _stream_address(self._stream)}
        size = _library.weir_options_size()
        raw = ctypes.create_string_buffer(size)
        _library.weir_options_init_sized(raw, size)
        borrowed = []  # until the session is created
        for key, value in {"rank": rank, "world_size": world_size, **options}.items():
            if value is None:
                continue
            words = _text(key, value)
            borrowed.append(words)
            check(_library.weir_options_set(raw, key.encode(), words))
        _log.install()
        self._create(raw)

    def _create(self, raw: Any) -> None:
        try:
            self._check(_library.weir_session_create(ctypes.byref(self._session), raw))
        except WeirError as error:
            if error.status_name != "WEIR_E_UNSUPPORTED" or self._device < 0:
                raise
            raise WeirError(error.status, f"{error.message}; {_WHERE_FROM}") from None

    def _who(self) -> str:
        return f"rank {self.rank}: " if self.world_size > 1 else ""

    def _check(self, status: int) -> None:
        if status != _native.OK:
            check(status, self._who())

    def _alive(self) -> ctypes.c_void_p:
        if not self._session:
            raise RuntimeError("the session is closed")
        return self._session

    def register(self, name: str, shape: int | Sequence[int], dtype: str = "float32") -> int:
        """Register a tensor by its number of elements or its shape; of two and more dimensions the
        first counts as rows, which only low rank looks at.  `dtype`: "float32", "float16" or
        "bfloat16", what its gradients are, and their averages, which are rounded once.  Tells its
        number."""
        if dtype not in _native.TYPES:
            raise ValueError(f"dtype is {dtype!r}; {', '.join(_native.TYPES)} are known")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        rows = shape[0] if len(shape) > 1 else 1
        columns = 1
        for extent in shape[1:] if len(shape) > 1 else shape:
            columns *= extent
        tensor = ctypes.c_uint32()
        self._check(
            _library.weir_register_typed(
                self._alive(),
                name.encode(),
                rows,
                columns,
                _native.TYPES[dtype],
                ctypes.byref(tensor),
            )
        )
        self._elements.append(rows * columns)
        self._dtypes.append(dtype)
        return tensor.value

    def on_trial(self, keep: Callable[[], None], put_back: Callable[[], None]) -> None:
        """Before `start`: `keep` is called when a trial begins, `put_back` when its steps are rolled
        back, each within `begin`; whatever steps change is theirs to keep.  What they raise, `begin`
        raises."""

        def guarded(work: Callable[[], None]) -> Any:
            def call(user: Any, memory: Any) -> None:
                try:
                    work()
                except BaseException as error:
                    self._hook_error = error

            return _native.StateFunction(call)

        self._hooks = _native.StateHooks(
            struct_size=ctypes.sizeof(_native.StateHooks),
            bytes=_native.StateBytes(lambda user: 0),
            save=guarded(keep),
            load=guarded(put_back),
        )
        self._check(_library.weir_register_hooks(self._alive(), ctypes.byref(self._hooks)))

    def start(self) -> None:
        """Meet the other ranks, measure the network, settle the first plan."""
        self._check(_library.weir_session_start(self._alive()))

    def begin(self) -> StepInfo:
        self._lent.clear()
        self._check(_library.weir_step_begin(self._alive(), ctypes.byref(self._info)))
        if self._hook_error is not None:
            raise self._hook_error
        return StepInfo(self._info)

    def submit(self, tensor: int, gradient: Buffer) -> None:
        """Lend a tensor's gradient until `end` returns, which leaves the average in it: an address, a
        writable contiguous buffer (of floats, of format "e" for float16, "H" for bfloat16), a tensor of
        PyTorch, or what has the CUDA array interface.  On a device it need only be queued on the
        session's stream by now, and what reads the average be queued there after `end`."""
        if not 0 <= tensor < len(self._elements):
            raise IndexError(f"tensor {tensor} is not one of the {len(self._elements)} registered")
        self._lend(tensor, *self._find(tensor, gradient))

    def _find(self, tensor: int, gradient: Buffer) -> tuple[int, Any]:
        return _address(gradient, self._elements[tensor], self._dtypes[tensor], self._device)

    def _lend(self, tensor: int, address: int, keeper: Any) -> None:
        self._check(_library.weir_submit(self._alive(), tensor, address))
        if keeper is not None:
            self._lent.append(keeper)

    def end(self) -> StepInfo:
        """Finish the exchange.  A step in which a gradient was not finite is told by `lost`."""
        status = _library.weir_step_end(self._alive(), ctypes.byref(self._info))
        self._lent.clear()
        if status != _native.NONFINITE:
            self._check(status)
        return StepInfo(self._info, status == _native.NONFINITE)

    def average(self, gradients: Iterable[Buffer], loss: float | None = None) -> StepInfo:
        """A whole step: the gradients of all tensors, in the order of registration."""
        gradients = list(gradients)
        if len(gradients) != len(self._elements):
            raise ValueError(f"{len(self._elements)} gradients are due, not {len(gradients)}")
        # All of it is looked at first: what is refused must not leave the step open.
        found = [self._find(tensor, gradient) for tensor, gradient in enumerate(gradients)]
        loss = None if loss is None else float(loss)
        self.begin()
        if loss is not None:
            self.report_loss(loss)
        for tensor, (address, keeper) in enumerate(found):
            self._lend(tensor, address, keeper)
        return self.end()

    def report_loss(self, loss: float) -> None:
        """This rank's loss of the step's batch: on all ranks in every step, or on none."""
        self._check(_library.weir_report_loss(self._alive(), loss))

    def rescale(self, factor: float) -> None:
        """Multiply what error feedback keeps back, as when a loss scale changes; between steps."""
        self._check(_library.weir_rescale(self._alive(), factor))

    def save(self) -> bytes:
        """What this rank's next step starts from: residuals, the step's number; between steps."""
        state = bytearray()

        def write(user: Any, data: int, size: int) -> bool:
            state.extend(ctypes.string_at(data, size))
            return True

        function = _native.WriteFunction(write)
        self._check(_library.weir_session_save(self._alive(), function, None))
        return bytes(state)

    def load(self, state: bytes) -> None:
        """Go on from what a rank saved, before `start`.  All that were saved are to be loaded, each
        by one rank: by some more than once, or by some not at all, where their number has
        changed."""
        at = 0

        def read(user: Any, data: int, size: int) -> bool:
            nonlocal at
            if at + size > len(state):
                return False
            ctypes.memmove(data, state[at : at + size], size)
            at += size
            return True

        function = _native.ReadFunction(read)
        self._check(_library.weir_session_load(self._alive(), function, None))
        if at != len(state):
            raise ValueError(f"{len(state) - at} bytes follow the saved state")

    def set_epoch(self, epoch: int) -> None:
        self._check(_library.weir_set_epoch(self._alive(), epoch))

    def set_room(self, steps: int) -> None:
        """How many steps can follow the one at hand, and be rolled back: for trials, in every step;
        before the first time any number can.  Rank 0's word counts."""
        self._check(_library.weir_set_room(self._alive(), steps))

    def doubt_update_rule(self, rule: str = "adaptive") -> None:
        """`update_rule` promises too much, and counts as `rule` from now on.  "adaptive": steps have
        turned out not to be proportional to averages, as gradients are clipped; "unknown": averages
        were thrown away.  Between steps, on all ranks."""
        self._check(_library.weir_doubt_update_rule(self._alive(), rule.encode()))

    def allgather(self, data: bytes) -> list[bytes]:
        """All ranks' bytes (as many on each, at most 4096), between steps."""
        room = ctypes.create_string_buffer(len(data) * self.world_size)
        self._check(_library.weir_allgather_bytes(self._alive(), data, len(data), room))
        return [room.raw[r * len(data) : (r + 1) * len(data)] for r in range(self.world_size)]

    @property
    def plan(self) -> str:
        """The plan in force, e.g. "bf16:1:dense-ring"."""
        plan = _native.Plan()
        self._check(_library.weir_current_plan(self._alive(), ctypes.byref(plan)))
        return format_plan(plan)

    @property
    def transport(self) -> str:
        """What carries the messages: "tcp", "mixed", "shm", "mpi", "shm+mpi", "nccl",
        "nccl+tcp", "nccl+mpi", "shm+nccl" or "inproc"."""
        name = ctypes.c_char_p()
        self._check(_library.weir_current_transport(self._alive(), ctypes.byref(name)))
        return (name.value or b"").decode()

    @property
    def residual_digest(self) -> int:
        digest = ctypes.c_uint64()
        self._check(_library.weir_residual_digest(self._alive(), ctypes.byref(digest)))
        return digest.value

    def dump(self) -> str:
        """What the session is at, as lines of "key: value"; from any thread."""
        parts: list[bytes] = []
        write = _native.DumpFunction(lambda user, text: parts.append(text))
        self._check(_library.weir_dump(self._alive(), write, None))
        return b"".join(parts).decode(errors="replace")

    def close(self) -> None:
        """Leave the group and free everything; may be called again.  In a process that was forked from
        the session's, which has its connections but none of its threads, nothing is left and freed."""
        session, self._session = self._session, ctypes.c_void_p()
        if self._process == os.getpid():
            _library.weir_session_free(session)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


__all__ = ["Session", "StepInfo", "UsageError"]
