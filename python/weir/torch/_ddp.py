"""DistributedDataParallel's gradients, exchanged by Weir.

DDP calls its communication hook under a lock of its own, on the thread of the backward pass, bucket
by bucket.  The hook hands the bucket to a thread of ours and returns a Future; that thread alone
uses the session.  It submits gradients by parameter, as DDP rebuilds its buckets once and then in
another order.  When all of a step's have come it ends the step, which leaves the averages in the
buckets themselves, and completes the Futures."""

from __future__ import annotations

import atexit
import logging
import math
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..session import Session, StepInfo
from ._meet import open_session

logger = logging.getLogger("weir")

_GATHER_MAX = 4096  # bytes in one Session.allgather
_HALF = (torch.bfloat16, torch.float16)
_attached: weakref.WeakSet[Attached] = weakref.WeakSet()


class _Parameter:
    """What is kept of a parameter: `carry` is an average that DDP has thrown away, as the parameter
    took part in no rank's loss; it goes along with the next gradient, so that nothing that error
    feedback has sent is lost."""

    __slots__ = ("name", "parameter", "number", "used", "carry")

    def __init__(self, name: str, parameter: torch.nn.Parameter, number: int) -> None:
        self.name, self.parameter, self.number = name, parameter, number
        self.used = False
        self.carry: torch.Tensor | None = None


class Attached:
    """A model whose gradients Weir exchanges.  `session` is its session, to look at; `info` tells
    of the step that ended last."""

    def __init__(
        self,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer | None,
        scaler: Any,
        options: dict[str, Any],
    ) -> None:
        self.info: StepInfo | None = None
        self._scaler = scaler
        self._scale: float | None = None
        self._finds_unused = model.find_unused_parameters or model.static_graph
        self._failure: BaseException | None = None
        self._open = False  # the thread's: a step has begun
        self._announced = False  # the model's: a step was said to begin
        self._losses: list[Any] = []
        self._waiting: list[tuple[Any, torch.Tensor, torch.Tensor]] = []  # future, bucket, floats
        self._submitted: list[tuple[_Parameter, torch.Tensor]] = []
        self._queue: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None]
        self._queue = queue.SimpleQueue()
        self._parameters: dict[int, _Parameter] = {}
        self._model = weakref.ref(model)

        self.session: Session = open_session(model.process_group, options)
        try:
            self._register(model)
            self.session.start()
        except BaseException:
            self.session.close()
            raise
        self._missing = len(self._parameters)
        self._thread = threading.Thread(
            target=_serve, args=(self._queue,), name="weir", daemon=True
        )
        self._thread.start()

        model.register_comm_hook(None, lambda state, bucket: self._hook(bucket))
        self._hooks = [model.register_forward_pre_hook(lambda module, args: self._forward(module))]
        if optimizer is not None:
            self._hooks.append(
                optimizer.register_step_pre_hook(lambda *args: self._raise_failure())
            )
        _attached.add(self)
        atexit.register(_close, weakref.ref(self))

    # --- registration -------------------------------------------------------------------------

    def _register(self, model: DistributedDataParallel) -> None:
        """In reverse order, as gradients become ready in about that order."""
        ignored = getattr(model, "parameters_to_ignore", set())
        wanted = [
            (name, p)
            for name, p in model.module.named_parameters()
            if p.requires_grad and name not in ignored
        ]
        for name, parameter in reversed(wanted):
            if parameter.dtype not in (torch.float32, *_HALF):
                raise TypeError(
                    f"parameter {name} is {parameter.dtype}; float32, bfloat16 and float16 are "
                    "exchanged"
                )
            if parameter.device.type != "cpu":
                raise TypeError(
                    f"parameter {name} is on {parameter.device}; only parameters in host memory "
                    "are exchanged so far"
                )
            number = self.session.register(name, tuple(parameter.shape))
            known = _Parameter(name, parameter, number)
            self._parameters[id(parameter)] = known
            if self._finds_unused:
                parameter.register_post_accumulate_grad_hook(_marks(known))

    # --- on the model's threads -----------------------------------------------------------------

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _forward(self, module: torch.nn.Module) -> None:
        self._raise_failure()
        if self._announced or not (torch.is_grad_enabled() and module.training):
            return
        self._announced = True
        scale = self._scaler.get_scale() if self._scaler is not None else 1.0
        self._queue.put((self._begin, (scale,)))

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        self._announced = False
        future: torch.futures.Future[Any] = torch.futures.Future()
        self._queue.put(
            (self._take, (future, bucket.buffer(), bucket.parameters(), bucket.gradients()))
        )
        return future.then(_deliver)

    def report(self, loss: float | torch.Tensor) -> None:
        """Tell this step's loss, before the backward pass.  Of several in a step (gradient
        accumulation) the mean counts."""
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        self._queue.put((self._losses.append, (loss,)))

    def close(self) -> None:
        """Leave the group.  The model goes on only with another hook, so this is for the end."""
        if not self.session._session:
            return
        self._queue.put(None)
        self._thread.join(5.0)
        for hook in self._hooks:
            hook.remove()
        if not self._thread.is_alive():  # else a peer is being waited for; the process ends anyway
            self.session.close()

    # --- on the thread that has the session -----------------------------------------------------

    def _begin(self, scale: float | None) -> None:
        if self._failure is not None or self._open:
            return
        try:
            self.session.begin()
        except BaseException as error:
            self._fail(error)
            return
        self._open = True

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        logger.error("%s", error)
        for future, _, _ in self._waiting:
            future.set_result(error)
        self._waiting.clear()

    def _take(
        self,
        future: torch.futures.Future[Any],
        buffer: torch.Tensor,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor],
    ) -> None:
        if not self._open:
            self._begin(None)
        if self._failure is not None:
            future.set_result(self._failure)
            return
        try:
            floats = buffer if buffer.dtype == torch.float32 else buffer.float()
            self._waiting.append((future, buffer, floats))
            for parameter, gradient in zip(parameters, gradients):
                known = self._parameters[id(parameter)]
                at = gradient.storage_offset() - buffer.storage_offset()
                if self._finds_unused:
                    part = floats[at : at + gradient.numel()]
                    if known.carry is not None:
                        part += known.carry
                    self._submitted.append((known, part))
                self.session.submit(known.number, floats.data_ptr() + 4 * at)
            self._missing -= len(parameters)
            if self._missing == 0:
                self._end()
        except BaseException as error:
            self._fail(error)

    def _end(self) -> None:
        if self._losses:
            loss = math.fsum(float(loss) for loss in self._losses) / len(self._losses)
            self._losses.clear()
            self.session.report_loss(loss)
        self.info = self.session.end()
        self._open = False
        self._missing = len(self._parameters)
        if self._finds_unused:
            self._keep_unused(self.info.lost)
        waiting, self._waiting = self._waiting, []
        for _, buffer, floats in waiting:
            if floats is not buffer:
                buffer.copy_(floats)
        for future, buffer, _ in waiting:
            future.set_result(buffer)


    def _keep_unused(self, lost: bool) -> None:
        """What DDP is about to throw away, as no rank has used the parameter, is kept."""
        submitted, self._submitted = self._submitted, []
        submitted.sort(key=lambda item: item[0].number)
        used = bytearray(known.used for known, _ in submitted)
        for known, _ in submitted:
            known.used = False
        for at in range(0, len(used), _GATHER_MAX):
            theirs = self.session.allgather(bytes(used[at : at + _GATHER_MAX]))
            for (known, part), *bits in zip(submitted[at:], *theirs):
                if not lost:
                    known.carry = None if any(bits) or not part.any() else part.clone()


def _marks(known: _Parameter) -> Callable[[torch.Tensor], None]:
    def mark(parameter: torch.Tensor) -> None:
        known.used = True

    return mark


def _deliver(future: torch.futures.Future[Any]) -> torch.Tensor:
    result = future.value()
    if isinstance(result, BaseException):
        raise result
    return result


def _serve(work: Any) -> None:
    """The thread's whole life.  It holds on to nothing between two pieces of work, so that what is
    attached can go when the model does."""
    while True:
        item = work.get()
        if item is None:
            return
        function, arguments = item
        function(*arguments)
        del item, function, arguments


def _close(reference: weakref.ref[Attached]) -> None:
    attached = reference()
    if attached is not None:
        attached.close()


def attach(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    scaler: Any = None,
    **options: Any,
) -> Attached:
    """Let Weir exchange the gradients of a model under DistributedDataParallel; all ranks call it.

    `scaler`: the GradScaler, where there is one.  `options`: those of weir_options by name, such as
    policy="fixed:qsgd:0.125:sra", risk="safe", journal_path=..., timeout_s=60."""
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            f"attach() takes a DistributedDataParallel, not {type(model).__name__}; for a plain loop "
            "there is weir.torch.average(model)"
        )
    if str(options.get("policy", "weir")).split(":")[0] == "paper":
        raise ValueError(
            "policy paper takes back the steps of its trials, which a PyTorch loop cannot; take "
            "another policy"
        )
    options.setdefault("nonfinite", "keep")
    options.setdefault("trial_budget", 0)
    return Attached(model, optimizer, scaler, options)


def report(loss: float | torch.Tensor) -> None:
    """Tell the step's loss of the one model that is attached; see Attached.report."""
    attached = list(_attached)
    if len(attached) != 1:
        raise RuntimeError(
            f"{len(attached)} models are attached; call report() of what attach() returned"
        )
    attached[0].report(loss)
