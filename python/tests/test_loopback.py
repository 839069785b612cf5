"""bench/ddp_loopback.py, in few steps: what it prints is of both models, and says how they were run."""

import json
import time
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "ddp_loopback.py"


def test_both_models_take_turns(nursery):
    if not BENCH.exists():
        pytest.skip("bench/ is not beside this package")
    agent = nursery.start(
        *("-m torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(BENCH)),
        *("--steps", "3", "--width", "64", "--policy", "fixed:none:1:dense-ring"),
        own=True,
    )
    until = time.monotonic() + 120
    try:
        assert agent.wait(until - time.monotonic()) == 0, agent.said()
        told = json.loads(agent.stdout.read().splitlines()[-1])
    finally:
        agent.stop()
    assert (told["workers"], told["transport"], told["steps"]) == (2, "tcp", 3)
    assert told["plan"] == "none:1:dense-ring"
    elements = 784 * 64 + 64 * 64 + 64 * 32 + 32 * 10 + 64 + 64 + 32 + 10
    assert told["megabytes"] == pytest.approx(4e-6 * elements)
    assert told["ratio"] == pytest.approx(told["weir_ms"] / told["plain_ms"], abs=0.02)
    assert min(told["weir_ms"], told["plain_ms"], told["hook_us_a_bucket"]) > 0
