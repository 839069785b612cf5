"""What runs on every rank of two machines of two: FSDP2 inside of them, attach() between them.

It is held to torch's own hybrid sharding, which averages between the machines by Gloo, and to
gradients that every rank computes by itself, of the batches of all of them."""

from __future__ import annotations

import copy
import logging
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
import traps
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from traps import EXACT, LOSSY, MixedPrecisionPolicy, Net, batch, clear, fully_shard, rank

import weir.torch

_mesh: list[Any] = []


def mesh() -> Any:
    if not _mesh:
        _mesh.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("between", "inside")))
    return _mesh[0]


def between() -> Any:
    return mesh()["between"].get_group()


def sharded(model: nn.Module, over: Any, **settings: Any) -> Any:
    """A copy of it, two of its modules by themselves, the others together."""
    model = copy.deepcopy(model)
    for part in (model.left, model.last):
        fully_shard(part, mesh=over, **settings)
    return fully_shard(model, mesh=over, **settings)


def ours(model: nn.Module, policy: str = EXACT, **options: Any) -> tuple[Any, Any]:
    made = sharded(model, mesh()["inside"])
    return made, weir.torch.attach(made, group=between(), policy=policy, **options)


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local()


def backward(model: Any, step: int, **settings: Any) -> None:
    clear(model)
    model(batch(step), **settings).square().mean().backward()


def average_of(model: nn.Module, step: int, ways: list[str] | None = None) -> dict[str, Any]:
    """By hand: the mean of all four ranks' gradients."""
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for other in range(4):
        alone = copy.deepcopy(model)
        x = torch.randn(8, 12, generator=torch.Generator().manual_seed(1000 * step + other))
        alone(x, ways[other] if ways else "both").square().mean().backward()
        for name, p in alone.named_parameters():
            if p.grad is not None:
                total[name] += p.grad / 4
    return total


def near(model: Any, due: dict[str, Any]) -> None:
    for name, p in model.named_parameters():
        got = p.grad.full_tensor()
        off = (got - due[name]).abs().max().item()
        assert off <= 1e-6 * due[name].abs().max().item() + 1e-9, f"{name} is off by {off}"


def same_between(model: Any) -> None:
    """Both machines hold the same bits."""
    flat = torch.cat([local(p.grad).flatten() for p in model.parameters() if p.grad is not None])
    others = [torch.empty_like(flat) for _ in range(2)]
    dist.all_gather(others, flat, group=between())
    assert torch.equal(*others), "machines hold different gradients"


def raises(work: Any, kind: type[BaseException], words: str) -> None:
    try:
        work()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words}: nothing was raised")


# --- traps -------------------------------------------------------------------------------------


def hybrid() -> None:
    """Beside torch's own hybrid sharding: gradients and, after SGD, parameters; clipped."""
    model = Net()
    plain = sharded(model, mesh())
    mine, attached = ours(model)
    settle = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (plain, mine)]
    for step in range(6):
        norms = []
        for m, optimizer in zip((plain, mine), settle):
            backward(m, step)
            norms.append(nn.utils.clip_grad_norm_(m.parameters(), 0.1).full_tensor().item())
            optimizer.step()
        assert abs(norms[0] - norms[1]) <= 1e-5 * norms[0]
        same_between(mine)
        for (name, p), (_, q) in zip(plain.named_parameters(), mine.named_parameters()):
            assert torch.allclose(local(p.grad), local(q.grad), rtol=1e-5, atol=1e-8), name
            assert torch.allclose(local(p), local(q), rtol=1e-5, atol=1e-7), name
        assert attached.info.step == step
    attached.close()


def by_hand() -> None:
    model = Net()
    mine, attached = ours(model)
    for step in range(3):
        backward(mine, step)
        near(mine, average_of(model, step))
    clear(mine)
    x = batch(3)
    x[0, 0] = float("inf") if rank() == 1 else 0.0
    mine(x).square().mean().backward()
    assert attached.info.lost
    assert all(local(p.grad).isnan().all() for p in mine.parameters())
    attached.close()


def half_precision() -> None:
    """Computed in 16 bits, kept and exchanged in 32; and all of it in 16."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for model, settings in ((Net(), {"mp_policy": policy}), (Net().bfloat16(), {})):
        plain = sharded(model, mesh(), **settings)
        mine = sharded(model, mesh()["inside"], **settings)
        attached = weir.torch.attach(mine, group=between(), policy=EXACT)
        for step in range(3):
            for m in (plain, mine):
                clear(m)
                m(batch(step).bfloat16()).float().square().mean().backward()
            for (name, p), (_, q) in zip(plain.named_parameters(), mine.named_parameters()):
                assert q.grad.dtype == q.dtype
                a, b = local(p.grad).float(), local(q.grad).float()
                assert torch.allclose(a, b, rtol=0.02, atol=1e-3 * a.abs().max().item()), name
            same_between(mine)
        attached.close()


def accumulation() -> None:
    """Nothing is exchanged before gradients are reduced."""
    model = Net()
    mine, attached = ours(model)
    for step in range(0, 6, 2):
        clear(mine)
        for micro in range(2):
            mine.set_requires_gradient_sync(micro == 1)
            mine(batch(step + micro)).square().mean().backward()
        first, second = average_of(model, step), average_of(model, step + 1)
        near(mine, {name: first[name] + second[name] for name in first})
    assert attached.info.step == 2
    # And with every gradient reduced: what was averaged is there, and its average is the same.
    clear(mine)
    for micro in range(2):
        mine(batch(micro)).square().mean().backward()
    first, second = average_of(model, 0), average_of(model, 1)
    near(mine, {name: first[name] + second[name] for name in first})
    assert attached.info.step == 4
    attached.close()


def unused_on_a_machine() -> None:
    """A branch that one machine leaves out has the other's gradient, divided by both; where both
    leave it out it has none."""
    model = Net()
    mine, attached = ours(model)
    for step in range(4):
        ways = [["both", "both", "left", "left"], ["left"] * 4][step % 2]
        backward(mine, step, way=ways[rank()])
        if step % 2:
            assert mine.right.weight.grad is None
        else:
            near(mine, average_of(model, step, ways))
        for p in mine.parameters():
            assert p.grad is None or (p.grad.placements, p.grad.shape) == (p.placements, p.shape)
    attached.close()


def backward_goes_on() -> None:
    """The first gradients are with the session while the last are still to be computed."""
    mine, attached = ours(Net())
    backward(mine, 0)
    seen: list[int] = []
    submit = attached.session.submit

    def submitted(tensor: int, gradient: Any) -> None:
        submit(tensor, gradient)
        seen.append(tensor)

    attached.session.submit = submitted

    def wait(gradient: torch.Tensor) -> None:
        until = time.monotonic() + 20
        while not seen and time.monotonic() < until:
            time.sleep(0.01)
        early.append(len(seen))

    early: list[int] = []
    clear(mine)
    # Called before the first layer's own gradients are computed.
    mine.first.register_forward_hook(lambda module, given, out: out.register_hook(wait) and None)
    mine(batch(1)).square().mean().backward()
    assert early and 0 < early[0] < len(seen) == len(list(mine.parameters())), (early, seen)
    attached.close()


def plans_switch() -> None:
    """All gradients ever are what parameters have got and what is still kept back, whatever plans
    there were."""
    plans = (
        "schedule:topk:0.1:ag;step=7:qsgd:0.125:sra;step=14:topk:0.02:ag;step=21:none:1:dense-ring"
    )
    model = Net()
    mine, attached = ours(model, plans)
    due = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    got = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    seen = []
    for step in range(24):
        backward(mine, step)
        same_between(mine)
        for name, gradient in average_of(model, step).items():
            due[name] += gradient
        for name, p in mine.named_parameters():
            got[name] += p.grad.full_tensor()
        seen.append(attached.info.plan.split(":")[0])
        far = max((got[name] - due[name]).abs().max().item() for name in due)
        assert far > 1e-3 or step >= 21, f"step {step} has kept nothing back"
    assert [seen[0], seen[7], seen[14], seen[21]] == ["topk", "qsgd", "topk", "none"], seen
    for name in due:
        scale = due[name].abs().max().item()
        assert torch.allclose(due[name], got[name], rtol=1e-4, atol=1e-5 * scale), name
    attached.close()


def saved_and_restored() -> None:
    """A group that stopped after three steps goes on: the same bits as one that did not."""
    model = Net()
    whole, attached = ours(model, LOSSY)
    kept = []
    for step in range(6):
        if step == 3:
            saved = attached.state_dict()
        backward(whole, step)
        kept.append([local(p.grad).clone() for p in whole.parameters()])
    attached.close()
    again, attached = ours(model, LOSSY)
    attached.load_state_dict(saved)
    for step in range(3, 6):
        backward(again, step)
        assert attached.info.step == step
        for p, due in zip(again.parameters(), kept[step]):
            assert torch.equal(local(p.grad), due), f"step {step}"
    attached.close()


def refusals() -> None:
    model = Net()
    inside = mesh()["inside"]
    native, flat = sharded(model, mesh()), sharded(model, init_device_mesh("cpu", (4,)))
    one = sharded(model, inside)
    scaler = torch.amp.GradScaler("cpu")
    raises(lambda: weir.torch.attach(one), ValueError, "group=")
    raises(lambda: weir.torch.attach(native, group=between()), ValueError, "torch itself averages")
    raises(lambda: weir.torch.attach(flat, group=between()), ValueError, "torch itself averages")
    raises(lambda: weir.torch.attach(one, group=between(), scaler=scaler), ValueError, "scaler")
    raises(
        lambda: weir.torch.attach(sharded(model.double(), inside), group=between()),
        TypeError,
        "float64",
    )
    torch.manual_seed(rank() // 2)
    other = Net()
    raises(
        lambda: weir.torch.attach(sharded(other, inside), group=between()),
        ValueError,
        f"is another on rank {(rank() + 2) % 4}",
    )
    torch.manual_seed(7)
    twice, attached = ours(Net())
    known = next(iter(attached._parameters.values()))
    known.parameter.register_post_accumulate_grad_hook(lambda p: attached._arrived(known))
    raises(lambda: backward(twice, 0), RuntimeError, "two gradients")
    attached.close()


def runs_twice() -> None:
    """A model that runs twice in one loss has one gradient, the sum of both."""
    model = Net()
    mine, attached = ours(model)
    for step in range(0, 4, 2):
        clear(mine)
        losses = [mine(batch(step + more)).square().mean() for more in range(2)]
        (losses[0] + losses[1]).backward()
        first, second = average_of(model, step), average_of(model, step + 1)
        near(mine, {name: first[name] + second[name] for name in first})
    attached.close()


def hooks_that_do_not_run() -> None:
    """As before torch 2.5: rather an error than machines that drift apart."""
    mine = sharded(Net(), mesh()["inside"])
    optimizer = torch.optim.SGD(mine.parameters(), 0.1)
    attached = weir.torch.attach(mine, optimizer, group=between(), policy=EXACT)
    for hook in attached._hooks[: len(attached._parameters)]:
        hook.remove()
    backward(mine, 0)
    raises(optimizer.step, RuntimeError, "2.5 and later")
    attached.close()


def trials_are_off() -> None:
    """One rank of all says why, once."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("weir").addHandler(handler)
    try:
        for wraps in (list, weir.torch.batches):
            told.clear()
            mine = sharded(Net(), mesh()["inside"])
            optimizer = torch.optim.SGD(mine.parameters(), 0.1)
            attached = weir.torch.attach(mine, optimizer, group=between())
            for x in wraps([batch(step) for step in range(3)]):
                optimizer.zero_grad()
                mine(x).square().mean().backward()
                optimizer.step()
            attached.close()
            said = [line for line in told if "no trials" in line]
            assert len(said) == (rank() == 0), said
            assert all("decide by themselves" in line for line in said)
    finally:
        logging.getLogger("weir").removeHandler(handler)


def killed_rank() -> list[Any]:
    """Rank 3 dies before its third step; rank 1, its peer of the other machine, says who.  Rank 2,
    whose collectives inside of the machine have ended with it, leaves, and so rank 0 ends, too."""
    mine, attached = ours(Net())
    for step in range(2):
        backward(mine, step)
    begin = time.monotonic()
    told = again = ""
    if rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        backward(mine, 2)
    except RuntimeError as error:
        told = str(error)
    try:
        if rank() == 1:
            mine(batch(3))
    except RuntimeError as error:
        again = str(error)
    attached.close()
    return [told, again, time.monotonic() - begin]


if __name__ == "__main__":
    traps.main(globals())
