"""torchrun starts all workers again when one is killed, and the training goes on from what they saved: to the
same bits as one that nobody disturbed, as what error feedback had kept back was saved, too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import torch_version

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_ddp.py"
STEPS, EVERY = 60, 10
SECONDS = 300.0  # on a machine that is busy with much else


def start(folder, log):
    torch_version()
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        + [
            "--max-restarts",
            "1",
            str(EXAMPLE),
            "--epochs",
            "1",
            "--batch",
            str(60000 // 2 // STEPS),
        ]
        + ["--checkpoint", str(folder), "--every", str(EVERY), "--policy", "fixed:topk:0.01:ag"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
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


def train(folder, kills):
    """What the agent and its workers said."""
    said = folder.parent / f"{folder.name}.log"
    until = time.monotonic() + SECONDS
    with said.open("w") as log:
        agent = start(folder, log)
        try:
            while kills and not (folder / f"{2 * EVERY}-1.pt").exists():
                assert agent.poll() is None and time.monotonic() < until, said.read_text()
                time.sleep(0.01)
            if kills:
                os.kill(worker(agent, 1), signal.SIGKILL)
            assert agent.wait(timeout=until - time.monotonic()) == 0, said.read_text()
        finally:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
    return said.read_text()


def same(a, b):
    import torch

    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_killed_worker_changes_nothing(tmp_path):
    torch_version()
    import torch

    train(tmp_path / "whole", kills=False)
    said = train(tmp_path / "killed", kills=True)
    assert "going on from step " in said, said
    for rank in range(2):
        whole, killed = (
            torch.load(tmp_path / name / f"{STEPS}-{rank}.pt") for name in ("whole", "killed")
        )
        # Had residuals been lost at the restart, the parameters of all later steps would be others.
        # The session's own state also holds times that were measured.
        for part in ("model", "optimizer"):
            assert same(whole[part], killed[part]), f"{part} of rank {rank}"
