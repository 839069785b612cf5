"""Ranks for tests: processes that run what tests ask of them, one after the other."""

from __future__ import annotations

import json
import os
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from nursery import Forked, Nursery

HERE = Path(__file__).parent


class Ranks:
    """`count` processes in one process group; run(name) calls that function of a script on all.
    `memory`: "host", or "device", which is emulated (emulated.py)."""

    def __init__(self, nursery: Nursery, count: int, script: str, memory: str) -> None:
        self.nursery, self.count, self.script, self.memory = nursery, count, script, memory
        self.workers: list[Forked] = []

    def _start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        environment = {
            "WORLD_SIZE": str(self.count),
            "WEIR_TEST_STORE": str(Path(self.folder.name) / "store"),
        }
        if self.memory == "device":
            environment |= {"WEIR_TEST_DEVICE": "1", "WEIR_CUDA_LIBRARY": emulated_library()}
        self.workers = [
            self.nursery.start(str(HERE / self.script), **environment, RANK=str(rank))
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
            worker.stop()
        self.workers = []


def emulated_library() -> str:
    """tests/emulate's libweir_cuda, of the build that is tested; skips without."""
    return os.environ.get("WEIR_TEST_CUDA") or pytest.skip(
        "WEIR_TEST_CUDA names no emulated device"
    )


def torch_version() -> tuple[int, ...]:
    """Skips where there is none.  It is not imported for that, which takes seconds."""
    try:
        return tuple(int(part) for part in metadata.version("torch").split(".")[:2])
    except metadata.PackageNotFoundError:
        pytest.skip("torch is not installed: pip install torch")


@pytest.fixture(scope="session")
def nursery():
    torch_version()
    made = Nursery()
    yield made
    made.stop()


@pytest.fixture(scope="session", params=["host", "device"])
def ranks(request, nursery):
    group = Ranks(nursery, 3, "traps.py", request.param)
    yield group
    group.stop()


@pytest.fixture(scope="module", params=["host", "device"])
def machines(request, nursery):
    """Two of two ranks each."""
    if torch_version() < (2, 5):
        pytest.skip("fully_shard calls hooks since torch 2.5")
    group = Ranks(nursery, 4, "shards.py", request.param)
    yield group
    group.stop()
