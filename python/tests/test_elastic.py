"""torchrun starts all workers again when one is killed, and the training goes on from what they saved: to the
same bits as one that nobody disturbed, as what error feedback had kept back was saved, too."""

import os
import signal
import socket
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_ddp.py"
STEPS, EVERY = 60, 10
SECONDS = 300.0  # on a machine that is busy with much else


def arguments(folder):
    return (
        *("--epochs", "1", "--batch", str(60000 // 2 // STEPS)),
        *("--checkpoint", str(folder), "--every", str(EVERY), "--policy", "fixed:topk:0.01:ag"),
    )


def worker(agent, rank):
    """The process of that rank, of those that the agent has started."""
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            environment = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError, NotADirectoryError):
            continue
        if parent == agent.pid and b"LOCAL_RANK=%d" % rank in environment:
            return int(entry.name)
    raise AssertionError(f"no worker of rank {rank}")


def undisturbed(nursery, folder):
    """Without torchrun, as nobody has to be started again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
    shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    workers = [
        nursery.start(str(EXAMPLE), *arguments(folder), **shared, RANK=rank) for rank in "01"
    ]
    try:
        until = time.monotonic() + SECONDS
        for process in workers:
            assert process.wait(until - time.monotonic()) == 0, process.said()
    finally:
        for process in workers:
            process.stop()


def killed_once(nursery, folder):
    """What the agent and its workers said."""
    agent = nursery.start(
        "-m torch.distributed.run",
        *("--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(EXAMPLE)),
        *arguments(folder),
        own=True,
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )
    until = time.monotonic() + SECONDS
    try:
        while not (folder / f"{2 * EVERY}-1.pt").exists():
            assert agent.poll() is None and time.monotonic() < until, agent.said()
            time.sleep(0.01)
        os.kill(worker(agent, 1), signal.SIGKILL)
        assert agent.wait(until - time.monotonic()) == 0, agent.said()
        return agent.stdout.read() + agent.said()
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
        agent.stop()


def same(a, b):
    import torch

    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_killed_worker_changes_nothing(tmp_path, nursery):
    import torch

    undisturbed(nursery, tmp_path / "whole")
    said = killed_once(nursery, tmp_path / "killed")
    assert "going on from step " in said, said
    for rank in range(2):
        whole, killed = (
            torch.load(tmp_path / name / f"{STEPS}-{rank}.pt") for name in ("whole", "killed")
        )
        # Had residuals been lost at the restart, the parameters of all later steps would be others.
        # The session's own state also holds times that were measured.
        for part in ("model", "optimizer"):
            assert same(whole[part], killed[part]), f"{part} of rank {rank}"
