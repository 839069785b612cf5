"""DistributedDataParallel's gradients, exchanged by Weir.

DDP calls its communication hook under a lock of its own, on the thread of the backward pass, bucket
by bucket.  The hook hands the bucket to a thread of ours and returns a Future; that thread alone
uses the session.  It submits gradients by parameter, as DDP rebuilds its buckets once and then in
another order.  When all of a step's have come it ends the step, which leaves the averages in the
buckets themselves, and completes the Futures."""

from __future__ import annotations

import atexit
import functools
import gc
import logging
import math
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .._native import TYPES
from ..session import Session, StepInfo
from . import _device, _loss
from ._meet import bytes_of, gathered, open_session, told_by_first
from ._record import Record, draw
from ._trials import Batches, Checkpoint, Replay
from ._update_rule import ObservedRule
from ._wrapped import is_sharded, model_of, optimizer_of, schedulers_of

logger = logging.getLogger("weir")

_FORMAT = 1  # of state_dict()
_GATHER_MAX = 4096  # bytes in one Session.allgather
_WORDS = 256  # of why a rank cannot do something
_NO_BATCHES = "the loop does not take its batches from weir.torch.batches(loader)"
_attached: weakref.WeakSet[Attached] = weakref.WeakSet()
_folders: dict[Path, bool] = {}  # of records, and whether it is this rank that writes it


class _Parameter:
    """What is kept of a parameter: `carry` is an average that DDP has thrown away, as the parameter
    took part in no rank's loss; it goes along with the next gradient, so that nothing that error
    feedback has sent is lost."""

    __slots__ = (
        "name", "parameter", "shape", "dtype", "device", "number", "used", "averaged", "carry"
    )  # fmt: skip

    def __init__(
        self, name: str, parameter: torch.nn.Parameter, held: torch.Tensor, number: int
    ) -> None:
        """`held`: what of it this rank has."""
        dtype = name_of(held.dtype)
        if dtype not in TYPES:
            raise TypeError(
                f"parameter {name} is {held.dtype}; float32, bfloat16 and float16 are exchanged"
            )
        self.name, self.parameter, self.number = name, parameter, number
        self.shape, self.dtype, self.device = tuple(held.shape), dtype, held.device
        self.used = False
        self.averaged = True  # in the step that ended last DDP has not thrown its average away
        self.carry: torch.Tensor | None = None


class _Hook:
    """What a model keeps of its Attached.  Who copies or pickles the model gets one that does nothing,
    as DDP makes the copy a reducer without a hook."""

    def __init__(self, work: Callable[..., Any] | None = None) -> None:
        self.work = work

    def __call__(self, *arguments: Any) -> Any:
        return None if self.work is None else self.work(*arguments)

    def __reduce__(self) -> Any:
        return _Hook, ()


def _bucket_comes(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations
    return state(bucket)


def _reduced(model: Any, ignored: set[str]) -> list[tuple[str, torch.nn.Parameter]]:
    """Parameters that DDP reduces, which it has settled when it was made.  To ask for themselves takes
    the memory of all gradients for a moment, so that it is done only where others are trained now."""
    every = list(model.module.named_parameters())
    trained = [(name, p) for name, p in every if p.requires_grad and name not in ignored]
    told = model._get_ddp_logging_data()
    size = sum(p.numel() * p.element_size() for _, p in trained)
    if (told["num_parameter_tensors"], told["total_parameter_size_bytes"]) == (len(trained), size):
        return trained
    buckets = model.reducer._get_zeros_like_grad_buckets()
    reduced = {id(p) for bucket in buckets for p in bucket.parameters()}
    return [(name, p) for name, p in every if id(p) in reduced]


class Attached:
    """A model whose gradients Weir exchanges.  `session` is its session, to look at; `info` tells
    of the step that ended last."""

    _trials_cannot: str | None = None  # why the kind of model has none
    _ends_backward = False  # the end of the backward pass is to be seen
    _finds_unused = False

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer | None,
        scheduler: Any,
        scaler: Any,
        also: Sequence[Any],
        loss: str,
        writer: Any,
        record: str | os.PathLike[str] | None,
        options: dict[str, Any],
        group: Any = None,
    ) -> None:
        self._options = options
        self._process = os.getpid()  # a child of it has no thread
        self._group = model.process_group if group is None else group
        self._parameters: dict[int, _Parameter] = {}
        self._find(model)
        self._place = _device.place_of(
            ((known.name, known.device) for known in self._parameters.values()), options
        )
        self._leads = self._is_first()  # this rank tells what all of them could
        parameters = [known.parameter for known in self._parameters.values()]
        self._rule = ObservedRule(optimizer, also, parameters, options.get("update_rule"))
        options["update_rule"] = self._rule.promised
        self.trial = False  # the step at hand will be rolled back
        self.in_batch = False  # the loop has one of batches(), where there may be trials
        self.steps_within_batches = False  # and has begun a step without taking the next
        self.batches_at_once = False  # it has gone through two of batches()
        self.iterated: object | None = None  # of these the one that was begun last
        self._optimizer, self._scheduler, self._also = optimizer, scheduler, tuple(also)
        self._replay = Replay()
        self._checkpoint: Checkpoint | None = None
        self._plateau: bool | None = None
        self._keeps = False  # a trial has begun, and this rank was to keep what it changes,
        self._unkept = ""  # which it could not, for that reason
        self._no_copy: str | None = None  # some rank could not
        policy, risk = options.get("policy", "weir"), options.get("risk", "measured")
        budget = options.get("trial_budget")
        self._may_try = budget != 0 and (policy, risk) == ("weir", "measured")
        self._said = not self._may_try  # not to be said any more: whether there can be trials
        if optimizer is None or self._trials_cannot is not None:
            options["trial_budget"] = 0
        elif budget != 0:
            others = [part for part in (scheduler, scaler, *also) if part is not None]
            self._checkpoint = Checkpoint(model.module, optimizer, others)
        self._record: Record | None = None
        if record is not None:
            _folders[Path(record)] = self._leads
        if record is not None and self._leads:
            about = {
                "scenario": "PyTorch",
                "workers": dist.get_world_size(self._group),
                "policy": str(options.get("policy", "weir")),
                "weights_sha256": None,  # nobody has looked
            }
            self._record = Record(record, about)
            options.setdefault("journal_path", os.path.join(record, "decisions.jsonl"))
        self._writer = writer if self._leads else None
        self._written: str | None = None  # the plan that was written last
        self.info: StepInfo | None = None
        self._scaler = scaler
        self._scale: float | None = None
        self._begins_at: Any = None  # the scale that a step begins with
        self._failure: BaseException | None = None
        self._open = False  # the thread's: a step has begun
        self._announced = False  # the model's: a step was said to begin
        self._losses: list[Any] = []
        self._finds_loss = loss == "auto"
        # Where the step's backward pass began, and the scale that this carries.
        self._loss: tuple[torch.Tensor, Any] | None = None
        self._root: torch.Tensor | None = None  # where the hook has seen it begin
        self._pass = _loss.here()  # of the thread on which the model was called
        # What is promised, bucket, and what of it is lent.
        self._waiting: list[tuple[Any, torch.Tensor, torch.Tensor]] = []
        self._submitted: list[tuple[_Parameter, torch.Tensor]] = []
        self._queue: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None]
        self._queue = queue.SimpleQueue()
        self._model = weakref.ref(model)

        with self._place.here():
            self._held = [self._start(())]
        if self._record is not None:
            self._record.about["network"] = self.session.transport
        self._missing = len(self._parameters)
        self._thread = threading.Thread(
            target=_serve, args=(self._queue, self._place), name="weir", daemon=True
        )
        self._thread.start()
        self._sees_backward = self._finds_loss or self._ends_backward
        if self._sees_backward:
            _loss.watch()
        self._looks = functools.partial(_look_for_thrown, weakref.ref(self))
        # By close(), or when the model has been dropped without.
        self._leave = weakref.finalize(self, _leave, self._queue, self._held, self._sees_backward)
        self._leave.atexit = False

        self._hooks: list[Any] = []
        try:
            self._listen(model)
        except BaseException:
            self.close()
            raise
        self._hooks.append(
            # Before the hooks of fully_shard, which would wait for ranks that have failed.
            model.register_forward_pre_hook(
                _Hook(lambda module, args: self._forward(module)), prepend=True
            )
        )
        if optimizer is not None:
            self._hooks.append(
                optimizer.register_step_pre_hook(lambda *args: self._before_optimizer())
            )
        self._hooks.extend(self._rule.listen(optimizer, lambda *args: self._after_optimizer()))
        _attached.add(self)
        atexit.register(_close, weakref.ref(self))

    @property
    def session(self) -> Session:
        return self._held[0]

    # --- registration -------------------------------------------------------------------------

    def _find(self, model: Any) -> None:
        """In reverse order, as gradients become ready in about that order."""
        if any(not isinstance(s, _Hook) or s.work for _, s in getattr(model, "_comm_hooks", ())):
            raise RuntimeError(
                "the model has a communication hook already, and DistributedDataParallel takes one for "
                "good; wrap the module in a new one for attach()"
            )
        if getattr(model, "_use_python_reducer", False):
            raise RuntimeError(
                "DistributedDataParallel was made with torch._dynamo.config.optimize_ddp = "
                "'python_reducer', and then hands over gradients one by one, not in buckets, while the "
                "backward pass waits; make it with 'ddp_optimizer', which is torch's default"
            )
        ignored: set[str] = getattr(model, "parameters_to_ignore", set())
        self._finds_unused = model.find_unused_parameters or model.static_graph
        refuse_sparse(model.module, ignored)
        wanted = _reduced(model, ignored)
        known = {id(p) for _, p in wanted}
        for name, p in model.module.named_parameters():
            if p.requires_grad and id(p) not in known and name not in ignored:
                raise ValueError(
                    f"parameter {name} was frozen when DistributedDataParallel was made, which "
                    "leaves it out for good; make that when the parameter requires a gradient"
                )
        for number, (name, parameter) in enumerate(reversed(wanted)):
            self._parameters[id(parameter)] = _Parameter(name, parameter, parameter, number)

    def _is_first(self) -> bool:
        return bool(dist.get_rank(self._group) == 0)

    def _listen(self, model: Any) -> None:
        model.register_comm_hook(_Hook(self._hook), _bucket_comes)
        if self._finds_unused:
            for known in self._parameters.values():
                parameter: Any = known.parameter
                frozen = not parameter.requires_grad  # for now
                parameter.requires_grad_(True)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(_marks(known)))
                parameter.requires_grad_(not frozen)

    def _start(self, states: Sequence[bytes]) -> Session:
        session = open_session(self._group, {**self._options, **self._place.options()})
        try:
            for known in self._parameters.values():
                session.register(known.name, known.shape, known.dtype)
            for state in states:
                session.load(state)
            if self._checkpoint is not None:
                me = weakref.ref(self)  # which the session must not keep alive
                session.on_trial(lambda: me()._keep(), lambda: me()._put_back())  # type: ignore[union-attr]
            session.start()
            session.set_room(0)  # until batches() says otherwise
        except BaseException:
            session.close()
            raise
        return session

    # --- on the model's threads -----------------------------------------------------------------

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _before_optimizer(self) -> None:
        self._raise_failure()

    def _after_optimizer(self) -> None:
        if taken := self._rule.taken():
            self._queue.put((self._compare_step, (taken, self._place.mark())))

    def _is_averaged(self, parameter: torch.Tensor) -> bool:
        known = self._parameters.get(id(parameter))
        return known is not None and known.averaged

    def _look_for_thrown(self) -> None:
        if self.info is None or self.info.lost:
            return
        passes = self.info.step + 1
        thrown = self._rule.throws_away(self._is_averaged, passes)
        if not thrown:
            return
        if self._leads:
            logger.warning(
                "of %d of %d backward passes no optimizer that attach() knows has taken the averages; with "
                "them goes what few bits had held back of others: run a pass whose gradients are thrown away "
                "(SAM's first, a generator's through its discriminator) under model.no_sync()%s",
                thrown,
                passes,
                "" if self._rule.believes else '; update_rule counts as "unknown" from now on',
            )
        if not self._rule.believes:
            self._queue.put((self._rule.doubt, ("unknown",)))

    def _forward(self, module: torch.nn.Module) -> None:
        self._raise_failure()
        joins = getattr(module, "_join_config", None)
        if joins is not None and joins.enable and not module._divide_by_initial_world_size:
            raise RuntimeError(
                "join(divide_by_initial_world_size=False) is not for a model that is attached: averages "
                "are over all ranks, those that have run out of batches, too"
            )
        if (
            not torch.is_grad_enabled() or _loss.within()
        ):  # computed again, in its own backward pass
            return
        self._look_for_thrown()
        self._pass = _loss.here()
        # zero_grad may come after this.
        if self._sees_backward and self._looks not in self._pass.first:
            self._pass.first += (self._looks,)
        if self._announced:
            return
        self._begins_at = self._scale_now()
        if not module.training:  # an evaluation; the first gradients tell of what is none
            return
        self._announced = True
        self._look_for_another_step()
        if self.trial:
            # A loop that has left its batches: nothing may be put back while the model computes.
            self._call(self._begin, self._begins_at)
            self._raise_failure()
        else:
            self._queue.put((self._begin, (self._begins_at, 0, self._place.mark())))

    def _look_for_another_step(self) -> None:
        """One begins that batches() has not begun."""
        if self.in_batch and not self.steps_within_batches:
            # A trial could end, and be taken back, in the middle of a batch.
            self.steps_within_batches = True
            self._say_again()

    def _say_again(self) -> None:
        """There are no trials from now on."""
        self._said = not self._may_try
        self._say_whether(self._why_no_trials())

    def _resume(self, batches: object) -> None:
        """A loop goes on with batches(); where it has begun others meanwhile, a trial's would be mixed up,
        and who knows the room of which?"""
        if self.iterated is not batches and not self.batches_at_once:
            self.batches_at_once = True
            self._say_again()

    def _scale_now(self) -> Any:
        return self._place.scale_of(self._scaler) if self._scaler is not None else None

    def _advance(self, room: int) -> bool:
        """Begin a step that so many can follow, unless one has begun and is not done; tells which.
        What a trial has changed is back where it was when this returns."""
        self._begins_at = self._scale_now()
        begun: bool = self._call(self._begin, self._begins_at, room)
        self._raise_failure()
        self._announced = True
        return begun

    def _why_no_trials(self) -> str | None:
        if self._trials_cannot is not None:
            return self._trials_cannot
        if self._no_copy is not None:
            return self._no_copy
        if self._checkpoint is None:
            return "attach() was given no optimizer"
        if len(_attached) > 1:
            return "another model is attached, which they would not put back"
        if self.steps_within_batches:
            return "the loop calls the model for another backward pass within a batch"
        stepping = getattr(self._optimizer, "step", None)
        if self._scheduler is None and hasattr(stepping, "_wrapped_by_lr_sched"):
            return "the optimizer has a scheduler; hand it to attach(), as scheduler=..."
        if self._has_plateau():
            return "the optimizer has a ReduceLROnPlateau; hand it to attach(), as scheduler=..."
        if self.batches_at_once:
            return (
                "the loop goes through two batches() at once; batches(zip(a, b), length=...) is one"
            )
        return None

    def _has_plateau(self) -> bool:
        """One that attach() was not given.  It leaves no trace on the optimizer, as other schedulers do,
        and is asked for once, as all objects there are are looked at."""
        if self._plateau is None:
            given = [*schedulers_of(self._scheduler), *self._also]
            kind = torch.optim.lr_scheduler.ReduceLROnPlateau
            self._plateau = any(
                issubclass(type(found), kind)
                and getattr(found, "optimizer", None) is self._optimizer
                and not any(found is one for one in given)
                for found in gc.get_objects()
            )
        return self._plateau

    def _has_room(self) -> bool:
        """What may have turned out since batches() has asked."""
        return not (self.steps_within_batches or self.batches_at_once or self._no_copy)

    def _say_whether(self, why_not: str | None) -> bool:
        """Once, on rank 0, why there are no trials, where there might have been some."""
        if why_not and not self._said and self._leads:
            logger.warning(
                "no trials, as %s: policy weir keeps to plans of risk safe (trials='off' silences "
                "this)",
                why_not,
            )
        self._said = True
        return why_not is None

    def _loss_now(self) -> tuple[torch.Tensor, Any] | None:
        """Of the first gradients that come out of a backward pass: where it began.  What that is in
        numbers is asked for once the gradients are there, too."""
        now = _loss.under_way(self._pass) if self._finds_loss else None
        if now is None or now.root is self._root:
            return None
        self._root = now.root
        if self._root is not None and self._scaler is None and now.scaled:
            # Its scale halves and doubles, which would be taken for progress.
            self._root, self._finds_loss = None, False
            logger.warning(
                "the loss is not taken, as a GradScaler scales it that attach() does not know; hand "
                "it over, as scaler=..."
            )
        return None if self._root is None else (self._root, self._scale_now())

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        self._announced = False
        promise = _Promise(self._place)
        self._hand(promise, bucket.buffer(), bucket.parameters(), bucket.gradients())
        return promise.answer()

    def _hand(
        self,
        promise: Any,
        buffer: torch.Tensor,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor],
    ) -> None:
        if self._failure is not None:
            promise.set_result(self._failure)
            return
        self._rule.averages_come()
        loss = self._loss_now()
        mark = self._place.mark()
        self._queue.put((self._take, (promise, buffer, parameters, gradients, loss, mark)))

    def report(self, loss: float | torch.Tensor) -> None:
        """Tell this step's loss, before the backward pass, where what that begins at is not it.  Of
        several in a step (gradient accumulation) the mean counts."""
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        self._queue.put((self._losses.append, ((loss, self._place.mark()),)))

    def state_dict(self) -> dict[str, Any]:
        """This rank's own, between steps, for a checkpoint of its own: what error feedback keeps
        back, and the step's number."""
        saved: dict[str, Any] = self._call(self._save)
        return saved

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Go on from what a rank's state_dict() told; all ranks call it, between steps.

        A restarted group starts its session anew with it.  Where there are fewer ranks than before,
        hand some a list of several states, and where there are more, some an empty one: each state
        goes to one rank, and rank 0 gets one."""
        states = [state] if isinstance(state, dict) else list(state)
        for one in states:
            if one.get("format") != _FORMAT:
                raise ValueError(f"the state has format {one.get('format')!r}; {_FORMAT} is read")
        self._call(self._load, states)

    def close(self) -> None:
        """Leave the group; what a trial under way has changed is back where it was when that began.
        DDP keeps the hook, so the model goes on only in another DistributedDataParallel."""
        if not self._leave.alive or self._process != os.getpid():
            return
        _attached.discard(self)
        if self._failure is None:  # whatever is called from now on
            self._failure = RuntimeError("what attach() returned for the model has been closed")
        self._leave()
        self._thread.join(5.0)  # while a peer is waited for it goes on; the process ends anyway
        for hook in self._hooks:
            hook.remove()
        if self.trial and self._checkpoint is not None:
            self._end_trial(self._checkpoint)
        if self._record is not None:
            self._record.close()

    def _end_trial(self, checkpoint: Checkpoint) -> None:
        if self._thread.is_alive():
            logger.error("a rank is waited for: what the trial has changed is not put back")
            return
        checkpoint.restore()
        checkpoint.drop()
        self.trial = False

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it on the thread that has the session."""
        self._raise_failure()
        answer: Future[Any] = Future()
        mark = self._place.mark()

        def run() -> None:
            try:
                self._place.arrive(mark)
                answer.set_result(function(*arguments))
            except BaseException as error:
                answer.set_exception(error)

        self._queue.put((run, ()))
        try:
            return answer.result()
        finally:
            self._place.join()

    # --- on the thread that has the session -----------------------------------------------------

    def _save(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "rank": self.session.rank,
            "session": torch.frombuffer(bytearray(self.session.save()), dtype=torch.uint8),
            "scale": self._scale,
            "carry": {
                known.name: known.carry.to("cpu", copy=True)
                for known in self._parameters.values()
                if known.carry is not None
            },
        }

    def _load(self, states: list[dict[str, Any]]) -> None:
        self._refuse_states_of_one_rank(states)
        # The same on all ranks, whatever their number was.
        shared = told_by_first(
            (states[0]["scale"], states[0]["carry"]) if states else None, self._group
        )
        if shared is None:
            raise ValueError("rank 0 is to load one of the states; others may have an empty list")
        self._scale, carry = shared
        for known in self._parameters.values():
            kept = carry.get(known.name)
            known.carry = None if kept is None else kept.to(known.device, copy=True)
        self._open = self._announced = self.trial = False
        self.session.close()
        try:
            self._held[0] = self._start([bytes_of(s["session"]) for s in states])
        except BaseException as error:
            self._failure = error
            raise

    def _refuse_states_of_one_rank(self, states: list[dict[str, Any]]) -> None:
        """Those that save on rank 0 alone what every rank has, as trainers do, hand its state to all, and
        what it had kept back would count as often."""
        first: dict[int, int] = {}
        for rank, saved_by in enumerate(gathered([s.get("rank") for s in states], self._group)):
            for saver in saved_by:
                if saver is not None and saver in first:
                    raise ValueError(
                        f"the state that rank {saver} has saved is loaded by rank {first[saver]} and by "
                        f"rank {rank}; every rank is to save its own, and to load that"
                    )
                first[saver] = rank

    def _begin(self, scale: Any, room: int = 0, mark: Any = None) -> bool:
        """Tells whether it has."""
        if self._failure is not None or self._open:
            return False
        try:
            if mark is not None:
                self._place.arrive(mark)
            if scale is not None:
                self._rescale(float(scale))
            if (doubted := self._rule.doubted()) is not None:
                self.session.doubt_update_rule(doubted)
            self._keeps = False
            self.trial = self.session.begin().trial
            if self._keeps and not self._all_have_kept():
                self._go_through_trial()
            if not self.trial and self._checkpoint is not None:
                self._checkpoint.drop()
            self.session.set_room(0 if self._no_copy else room)
        except BaseException as error:
            self._fail(error)
            return False
        self._open = True
        return True

    def _keep(self) -> None:
        """A trial begins."""
        assert self._checkpoint is not None
        self._replay.began()
        self._keeps, self._unkept = True, ""
        try:
            self._kept = (
                self._scale,
                {
                    known: None if known.carry is None else known.carry.clone()
                    for known in self._parameters.values()
                },
            )
            with self._place.caller():
                self._checkpoint.take(self._place.spare())
        except Exception as error:  # most often there is no memory
            self._unkept = str(error) or type(error).__name__

    def _all_have_kept(self) -> bool:
        """Can every rank put back what the trial that has just begun will change?"""
        told = self.session.allgather(self._unkept.encode()[:_WORDS].ljust(_WORDS, b"\0"))
        for rank, words in enumerate(word.rstrip(b"\0").decode(errors="replace") for word in told):
            if words and self._no_copy is None:
                self._no_copy = f"rank {rank} could not copy what they change ({words})"
        return self._no_copy is None

    def _go_through_trial(self) -> None:
        """To its end, which comes at once without room, by steps of zeros: the model and the loop know
        nothing of it, and the session puts back what is its own."""
        assert self._checkpoint is not None
        self._checkpoint.drop()
        self._say_again()
        zeros = [
            (known.number, torch.zeros_like(known.parameter.detach()))
            for known in self._parameters.values()
        ]
        while self.trial:
            self.session.set_room(0)
            for number, gradient in zeros:
                self.session.submit(number, gradient.zero_().data_ptr())
            self.session.end()
            self.trial = self.session.begin().trial

    def _put_back(self) -> None:
        assert self._checkpoint is not None
        if self._no_copy is not None:  # nothing has changed
            return
        self._scale, carry = self._kept
        for known, kept in carry.items():
            known.carry = None if kept is None else kept.clone()
        with self._place.caller():
            self._checkpoint.restore()
        self._replay.rolled_back()

    def _rescale(self, scale: float) -> None:
        """Gradients carry the loss scale, and what is kept back of them carries an older one."""
        before, self._scale = self._scale, scale
        if before in (None, scale):
            return
        self.session.rescale(scale / before)
        for known in self._parameters.values():
            if known.carry is not None:
                known.carry *= scale / before

    def _compare_step(self, taken: dict[int, torch.Tensor], mark: Any) -> None:
        try:
            self._place.arrive(mark)
            changes = self._rule.changes(taken, self._scale)
        except BaseException as error:
            self._fail(error)
            return
        if changes and self._leads:
            logger.warning(
                "SGD gets gradients that were changed since they were averaged (clipped, say): "
                'update_rule counts as "adaptive" from now on'
            )

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        logger.error("%s", error)
        for promise, _, _ in self._waiting:
            promise.set_result(error)
        self._waiting.clear()

    def _take(
        self,
        promise: Any,
        buffer: torch.Tensor,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor],
        loss: tuple[torch.Tensor, Any] | None,
        mark: Any,
    ) -> None:
        self._loss = self._loss if loss is None else loss
        if not self._open:
            if self.trial:
                self._fail(RuntimeError("a trial's batches were left in its middle"))
            self._look_for_another_step()
            self._begin(self._begins_at, mark=mark)
        lent = buffer
        if self._failure is None:
            try:
                self._place.arrive(mark)
                # DDP has buckets for each type.
                lent = lendable(buffer, self._parameters[id(parameters[0])].dtype)
            except BaseException as error:
                self._fail(error)
        if self._failure is not None:
            promise.set_result(self._failure)
            return
        self._waiting.append((promise, buffer, lent))
        try:
            for parameter, gradient in zip(parameters, gradients):
                known = self._parameters[id(parameter)]
                at = gradient.storage_offset() - buffer.storage_offset()
                if self._finds_unused:
                    part = lent[at : at + gradient.numel()]
                    if known.carry is not None:
                        part += known.carry
                    self._submitted.append((known, part))
                self.session.submit(known.number, lent.data_ptr() + lent.element_size() * at)
                self._rule.lent(parameter, gradient)
            self._missing -= len(parameters)
            if self._missing == 0:
                self._end()
        except BaseException as error:
            self._fail(error)

    def _end(self) -> None:
        found, self._loss = self._loss, None
        loss = None
        if self._losses:
            self._finds_loss = False  # whoever tells it once does so in every step
            loss = math.fsum(self._told(*told) for told in self._losses) / len(self._losses)
            self._losses.clear()
        elif found is not None:
            loss = float(found[0]) / (1.0 if found[1] is None else float(found[1]))
        if loss is not None:
            self.session.report_loss(loss)
        self.info = self.session.end()
        self._open = False
        if not self._said:
            self._say_whether(self._why_no_trials() or _NO_BATCHES)
        self._missing = len(self._parameters)
        if self._finds_unused:
            self._keep_unused(self.info.lost)
        self._write_down(self.info, loss)
        for _, buffer, lent in self._waiting:
            if lent is not buffer:
                buffer.copy_(lent)
        self._rule.averaged(self.info.lost)
        waiting, self._waiting = self._waiting, []
        for promise, buffer, _ in waiting:
            promise.set_result(buffer)

    def _told(self, loss: Any, mark: Any) -> float:
        self._place.arrive(mark)
        return float(loss)

    def _write_down(self, info: StepInfo, loss: float | None) -> None:
        """For those who look on: a disk that is full ends their part of the training alone."""
        try:
            if self._record is not None:
                self._record.step(info, loss)
            if self._writer is not None and not info.trial:
                self._write(self._writer, info)
        except OSError as error:
            logger.warning("steps are not written down any more: %s", error)
            self._record = self._writer = None

    def _write(self, writer: Any, info: StepInfo) -> None:
        """Scalars of a step that counts, as TensorBoard has them; what is not measured yet is left out."""
        for name, value in (
            ("ratio", info.cr),
            ("gain", info.gain),
            ("wire_mb", info.wire_bytes / 1e6),
            ("comm_ms", 1e3 * info.comm_s),
            ("compress_ms", 1e3 * info.compress_s),
            ("compute_ms", 1e3 * info.compute_s),
            ("latency_ms", 1e3 * info.latency_s),
            ("bandwidth_mbit_s", 8e-6 * info.bandwidth_bytes_s),
        ):
            if value > 0 or name not in ("latency_ms", "bandwidth_mbit_s"):
                writer.add_scalar(f"weir/{name}", value, info.step)
        if info.plan != self._written:
            writer.add_text("weir/plan", info.plan, info.step)
            self._written = info.plan

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
                known.averaged = any(bits)
                if not lost:
                    known.carry = None if any(bits) or not part.any() else part.clone()
                if not lost and known.carry is not None:
                    part.zero_()  # where the gradient is a view of the bucket, DDP keeps it


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def lendable(gradient: torch.Tensor, dtype: str) -> torch.Tensor:
    """The gradient of a parameter that is registered with `dtype`: itself where it can be lent as it
    is, else as a copy."""
    if dtype not in ("float32", name_of(gradient.dtype)):
        raise TypeError(
            f"a gradient is {name_of(gradient.dtype)}, and its parameter {dtype}: the average would "
            "be rounded"
        )
    return gradient.to(getattr(torch, dtype)).contiguous()


def refuse_sparse(module: torch.nn.Module, ignored: Iterable[str] = ()) -> None:
    """Embeddings whose gradients say which rows they have."""
    for name, part in module.named_modules():
        if (
            isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))
            and part.sparse
            and part.weight.requires_grad
            and f"{name}.weight" not in ignored
        ):
            raise TypeError(
                f"{name or 'the model'} is an {type(part).__name__} with sparse=True, and sparse "
                "gradients are not exchanged; make it with sparse=False"
            )


def _marks(known: _Parameter) -> Callable[[torch.Tensor], None]:
    def mark(parameter: torch.Tensor) -> None:
        known.used = True

    return mark


class _Promise:
    """The Future that DDP gets.  An error is kept beside it: a Future of a device pickles its value,
    to find the tensors in it, and not every exception can be."""

    def __init__(self, place: _device.Host) -> None:
        self._future: torch.futures.Future[Any] = place.future()
        self._error: BaseException | None = None

    def answer(self) -> torch.futures.Future[torch.Tensor]:
        return self._future.then(self._deliver)

    def _deliver(self, future: torch.futures.Future[Any]) -> torch.Tensor:
        if self._error is not None:
            raise self._error
        result: torch.Tensor = future.value()
        return result

    def set_result(self, result: torch.Tensor | BaseException) -> None:
        if isinstance(result, BaseException):
            self._error = result
            self._future.set_result(None)
        else:
            self._future.set_result(result)


def _serve(work: Any, place: _device.Host) -> None:
    """The thread's whole life.  It holds on to nothing between two pieces of work, so that what is
    attached can go when the model does."""
    place.enter()
    while True:
        item = work.get()
        if item is None:
            return
        function, arguments = item
        function(*arguments)
        del item, function, arguments


def _look_for_thrown(attached: weakref.ref[Attached]) -> None:
    held = attached()
    if held is not None:
        held._look_for_thrown()


def _leave(work: Any, held: list[Session], watches: bool) -> None:
    """The session is closed by the thread that has it, which then ends."""
    work.put((lambda: held[0].close(), ()))
    work.put(None)
    if watches:
        _loss.unwatch()


def _close(reference: weakref.ref[Attached]) -> None:
    attached = reference()
    if attached is not None:
        attached.close()


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    group: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    also: Sequence[Any] = (),
    trials: str = "auto",
    loss: str = "auto",
    writer: Any = None,
    record: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Attached:
    """Let Weir exchange the gradients of a model under DistributedDataParallel, or of one under
    fully_shard (FSDP2) between the machines that hold the same shards; all ranks call it.

    `group`: under fully_shard the ranks of different machines that hold the same shards.
    `scaler`: the GradScaler, where there is one.  `writer`: where rank 0 writes scalars of every
    step, such as TensorBoard's SummaryWriter.  `record`: a folder for report_html().  `options`:
    those of weir_options by name, such as policy="fixed:qsgd:0.125:sra", risk="safe",
    journal_path=..., timeout_s=60.

    `trials`: "auto" where the loop takes its batches from batches(), or "off".  They put back model,
    optimizer, `scheduler`, `scaler`, the global random numbers, and what else steps change if it is
    in `also`: anything with state_dict() and load_state_dict(), or get_state() and set_state().

    `loss`: policy weir goes by it.  "auto": the scalar at which the backward pass begins, divided by
    the scaler's scale, unless report() tells another; "report": what report() tells, and no more."""
    from ._fsdp import AttachedShards  # which is made of what is here

    model, optimizer = model_of(model), optimizer_of(optimizer)
    if any(a._model() is model for a in _attached):
        raise RuntimeError("the model is attached already")
    kind: type[Attached] = Attached
    if is_sharded(model):
        kind = AttachedShards
    elif not isinstance(model, DistributedDataParallel):
        raise TypeError(
            "attach() takes a DistributedDataParallel or a model under fully_shard, not "
            f"{type(model).__name__}; for a plain loop there is weir.torch.average(model), and a "
            "trainer that has the loop has wrapped the model, if there are several ranks"
        )
    elif group is not None:
        raise ValueError(
            "group= is for fully_shard; DistributedDataParallel has a group of its own"
        )
    if str(options.get("policy", "weir")).split(":")[0] == "paper":
        raise ValueError(
            "policy paper begins its trials whenever it likes, which a PyTorch loop cannot; take "
            "another policy"
        )
    # Which wrappers may have as a method, and nothing that it could register with.
    if optimizer is not None and not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(
            f"optimizer is a {type(optimizer).__name__}; attach() takes one torch.optim.Optimizer, "
            "and what else there is as also=[...]: attach(model, opt1, also=[opt2])"
        )
    if trials not in ("auto", "off"):
        raise ValueError(f'trials is {trials!r}; "auto" and "off" are known')
    if loss not in ("auto", "report"):
        raise ValueError(f'loss is {loss!r}; "auto" and "report" are known')
    options.setdefault("nonfinite", "keep")
    if trials == "off":
        options["trial_budget"] = 0
    return kind(model, optimizer, scheduler, scaler, also, loss, writer, record, options, group)


def the_attached(model: Any = None) -> Attached:
    """What attach() returned for a model; for None: of the only one that is attached."""
    if isinstance(model, Attached):
        return model
    model = model_of(model)
    found = [a for a in _attached if model is None or a._model() is model]
    if len(found) != 1:
        raise RuntimeError(
            "the model is not attached; weir.torch.attach(model, optimizer) comes first"
            if model is not None
            else f"{len(found)} models are attached; hand over which, or what attach() returned"
            if found
            else "no model is attached; weir.torch.attach(model, optimizer) comes first"
        )
    return found[0]


def batches(
    loader: Iterable[Any], model: Any = None, *, length: int | None = None, hold: int = 2**30
) -> Batches:
    """A loader whose batches of a trial come once more when the trial is rolled back, so that policy
    weir can try plans that have to earn their place:

        for x, y in weir.torch.batches(loader, model):

    All ranks use it.  A trial's batches are held (240 steps'), or there is none where they would be
    more than `hold` bytes.  `model`: that under DistributedDataParallel, or what attach() returned,
    where several are attached.  `length`: batches of an epoch, where len(loader) does not tell: no
    trial goes past its end."""
    return Batches(loader, the_attached(model), length, hold)


def report(loss: float | torch.Tensor) -> None:
    """Tell the step's loss of the one model that is attached; see Attached.report."""
    the_attached().report(loss)


def report_html(folder: str | os.PathLike[str]) -> Path | None:
    """Draw FOLDER/report.html of a training under attach(..., record=FOLDER), by the command `weir
    report`: so far, or as a whole after close().  Only that rank does it which writes the folder, the
    group's first; of a training of another process rank 0."""
    for attached in _attached:
        if attached._record is not None and attached._record.folder == Path(folder):
            attached._call(attached._record.write)
    first = not dist.is_initialized() or dist.get_rank() == 0
    return draw(folder) if _folders.get(Path(folder), first) else None
