"""Ranks for tests: processes that import torch once and then run what tests ask of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


class Ranks:
    """`count` processes in one process group; run(name) calls that function of traps.py on all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[subprocess.Popen[str]] = []

    def _start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(self.count)}
        environment["WEIR_TEST_STORE"] = str(Path(self.folder.name) / "store")
        self.workers = [
            subprocess.Popen(
                [sys.executable, str(HERE / "traps.py")],
                env={**environment, "RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(self.count)
        ]

    def run(self, name: str, dies: int = -1, **arguments: Any) -> list[Any]:
        """What the function returned on every rank; a failure on one fails the test.  Rank `dies`
        is to end with it."""
        if not self.workers:
            self._start()
        for worker in self.workers:
            worker.stdin.write(json.dumps([name, arguments]) + "\n")
            worker.stdin.flush()
        answers = [worker.stdout.readline() for worker in self.workers]
        if dies >= 0:
            assert not answers[dies], f"rank {dies} lives"
            answers[dies] = '{"result": null}'
        if not all(answers) or dies >= 0:
            self.stop()
        told = [json.loads(a) if a else {"error": "the process has ended"} for a in answers]
        errors = [f"rank {r}: {t['error']}" for r, t in enumerate(told) if "error" in t]
        if errors:
            self.stop()  # they may be anywhere
            pytest.fail("\n".join(errors), pytrace=False)
        return [t["result"] for t in told]

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.communicate()
        self.workers = []


@pytest.fixture(scope="session")
def ranks():
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    group = Ranks(3)
    yield group
    group.stop()
