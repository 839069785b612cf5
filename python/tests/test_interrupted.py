"""Ctrl-C, as a terminal sends it to all ranks and as one of them may get it alone, ends all of them
in seconds; and no thread keeps a process alive."""

import os
import signal
import time
from pathlib import Path

import pytest

RANKS = 3
SECONDS = 30.0  # on a machine that is busy with much else; the time-out is 1800


@pytest.fixture
def training(tmp_path, nursery):
    """Starts ranks of interrupted.py, in sessions of their own; none outlives the test."""
    started = []

    def start(*arguments):
        shared = {"WORLD_SIZE": str(RANKS), "WEIR_TEST_STORE": str(tmp_path / "store")}
        script = str(Path(__file__).parent / "interrupted.py")
        for rank in range(RANKS):
            started.append(nursery.start(script, *arguments, own=True, **shared, RANK=str(rank)))
        for process in started:
            assert process.stdout.readline() == "going\n", process.said()
        return started

    yield start
    for process in started:
        process.stop()


def ended(processes):
    """What each said on stderr, all within SECONDS."""
    until = time.monotonic() + SECONDS
    for process in processes:
        process.wait(until - time.monotonic())
    return [process.said() for process in processes]


def test_ctrl_c_ends_all_ranks(training):
    processes = training()
    for process in processes:
        os.killpg(process.pid, signal.SIGINT)
    for process, said in zip(processes, ended(processes)):
        assert process.returncode != 0
        assert "KeyboardInterrupt" in said or "GroupLostError" in said, said


def test_ctrl_c_at_one_rank_ends_the_others(training):
    processes = training()
    processes[1].send_signal(signal.SIGINT)
    said = ended(processes)
    assert "KeyboardInterrupt" in said[1], said[1]
    for rank in (0, 2):
        assert processes[rank].returncode != 0 and "rank 1" in said[rank], said[rank]


def test_no_thread_keeps_a_process_alive(training):
    processes = training("20")
    ended(processes)
    assert [process.returncode for process in processes] == [0] * RANKS
