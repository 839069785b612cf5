"""FSDP2 (fully_shard): the shards' gradients, exchanged by Weir between machines.

torch shards a model inside of a machine.  What a rank then holds, its peers of the other machines
hold, too: each such group has a session.  A shard's gradient is handed over as soon as torch has
made it, while the backward pass goes on, and the averages are in place when that returns.

Of torch this takes a parameter's register_post_accumulate_grad_hook(), which fully_shard calls, and
what a DTensor tells.  set_all_reduce_hook() would be of no use: it wants each module's average before
it lets the backward pass go on, and where fully_shard has a mesh of two dimensions it is called
after torch's own all-reduce."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist

from . import _loss
from ._ddp import Attached, _Parameter
from ._meet import gathered
from ._wrapped import local


def like(parameter: Any, held: torch.Tensor) -> torch.Tensor:
    """A tensor that is spread over ranks as the parameter is, of what this one holds of it."""
    if not hasattr(parameter, "to_local"):
        return held
    made: torch.Tensor = type(parameter.data).from_local(
        held,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    return made


def _bits(tensor: torch.Tensor) -> int:
    """A sum that does not depend on the order of its parts."""
    return int(tensor.detach().contiguous().flatten().view(torch.int16).sum())


class AttachedShards(Attached):
    _trials_cannot = (
        "under fully_shard the ranks of a machine have sessions that decide by themselves"
    )
    _ends_backward = True

    def __init__(self, model: Any, *arguments: Any) -> None:
        *_, group = arguments
        scaler = arguments[2]
        if group is None:
            raise ValueError(
                "under fully_shard attach() wants group=, the ranks of different machines that hold "
                'the same shards: mesh["between"].get_group(), where fully_shard got mesh["inside"]'
            )
        if scaler is not None:
            raise ValueError(
                "under fully_shard there is no scaler=: a gradient that overflows does so in one "
                "shard, and the others' sessions would not know; bfloat16 needs none"
            )
        self._came: dict[_Parameter, Future[Any]] = {}  # of the backward pass under way
        self._hooks_run = False
        super().__init__(model, *arguments)

    def _find(self, model: Any) -> None:
        peers = set(dist.get_process_group_ranks(self._group)) - {dist.get_rank()}
        wanted = [
            (name, p)
            for name, p in model.named_parameters()
            if p.requires_grad and hasattr(p, "to_local")
        ]
        for number, (name, parameter) in enumerate(reversed(wanted)):
            if shared := peers.intersection(parameter.device_mesh.mesh.flatten().tolist()):
                raise ValueError(
                    f"parameter {name}: torch itself averages between this rank and "
                    f"{sorted(shared)}, which are in the mesh that fully_shard got; it is to get the "
                    'ranks of one machine, mesh["inside"], and attach() the others, '
                    'group=mesh["between"].get_group()'
                )
            self._parameters[id(parameter)] = _Parameter(name, parameter, local(parameter), number)
        self._compare()

    def _compare(self) -> None:
        """fully_shard cuts up what each machine has, and nobody makes that equal."""
        mine = [
            (known.name, known.shape, _bits(local(known.parameter)))
            for known in self._parameters.values()
        ]
        for rank, theirs in enumerate(gathered(mine, self._group)):
            for here, there in zip(mine, theirs):
                if here != there:
                    raise ValueError(
                        f"parameter {here[0]} is another on rank "
                        f"{dist.get_global_rank(self._group, rank)}: machines have to begin with "
                        "the same weights (the same seed, or a checkpoint)"
                    )

    def _is_first(self) -> bool:
        places = (k.parameter.device_mesh.get_coordinate() for k in self._parameters.values())  # type: ignore[attr-defined]
        return super()._is_first() and not any(map(any, places))

    def _listen(self, model: Any) -> None:
        for known in self._parameters.values():
            parameter: Any = known.parameter
            self._hooks.append(
                parameter.register_post_accumulate_grad_hook(
                    lambda parameter, known=known: self._arrived(known)
                )
            )

    def _hand_over(self, known: _Parameter, part: torch.Tensor) -> None:
        self._came[known] = future = Future[Any]()
        self._hand(future, part, [known.parameter], [part])

    def _arrived(self, known: _Parameter) -> None:
        if known in self._came:
            raise RuntimeError(
                f"parameter {known.name} has got two gradients in one backward pass; "
                "set_requires_gradient_sync(False) for all but the last"
            )
        self._announced, self._hooks_run = False, True
        if not self._came and (now := _loss.under_way(self._pass)) is not None:
            now.then += (self._finish,)
        self._hand_over(known, local(known.parameter.grad))

    def _finish(self) -> None:
        """Wait for the averages.  A parameter that is not in this machine's loss has a gradient of
        zeros, and gets one where another machine's loss has it."""
        if not self._came:
            return
        zeros = {
            known: torch.zeros_like(local(known.parameter))
            for known in self._parameters.values()
            if known not in self._came
        }
        for known, part in zeros.items():
            self._hand_over(known, part)
        came, self._came = self._came, {}
        results = [future.result() for future in came.values()]
        self._place.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        for known, part in zeros.items():
            if part.any():
                known.parameter.grad = like(known.parameter, part)

    def _before_optimizer(self) -> None:
        self._finish()  # whoever has called another backward() than torch's
        self._raise_failure()
        if not self._hooks_run and any(
            p.parameter.grad is not None for p in self._parameters.values()
        ):
            raise RuntimeError(
                f"no gradient has come to Weir: fully_shard of torch {torch.__version__} does not call "
                "register_post_accumulate_grad_hook(); torch 2.5 and later do"
            )
