"""FSDP2 on two machines of two ranks, beside torch's own hybrid sharding (shards.py)."""

import pytest


@pytest.mark.parametrize(
    "trap",
    [
        "hybrid",
        "by_hand",
        "half_precision",
        "accumulation",
        "unused_on_a_machine",
        "backward_goes_on",
        "plans_switch",
        "saved_and_restored",
        "refusals",
        "runs_twice",
        "hooks_that_do_not_run",
        "trials_are_off",
    ],
)
def test_shards(machines, trap):
    machines.run(trap)


def test_killed_rank_is_named(machines):
    answers = machines.run("killed_rank", dies=3)
    told, again, seconds = answers[1]
    assert "rank 1" in told and told == again  # of its session's two ranks
    for told, _, seconds in answers[:3]:
        assert told and seconds < 60  # of a time-out of 1800
