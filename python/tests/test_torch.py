"""Each trap of DistributedDataParallel, against plain DDP on the same batches (traps.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import emulated_library, torch_version

TRAPS = [
    "buckets_rebuilt",
    "buckets_do_not_matter",
    "hook_does_not_block",
    "autocast",
    "hundred_steps",
    "accumulation",
    "skipped_backward",
    "unused_parameters",
    "unused_keep_their_mass",
    "static_graph",
    "bucket_view",
    "mixed_dtypes",
    "channels_last",
    "shared_parameters",
    "frozen_parameters",
    "clipping",
    "not_finite",
    "grad_scaler",
    "saved_and_restored",
    "scalars_written",
    "uneven_inputs",
    "two_models",
    "wrong_model",
    "loss_found",
    "trials_are_off",
    "trials_leave_nothing",
    "trials_of_the_session",
    "plain_loop",
    "fsdp_shards",
]


@pytest.mark.parametrize("trap", TRAPS)
def test_trap(ranks, trap):
    ranks.run(trap)


def test_parameters_in_several_places_are_named():
    torch = pytest.importorskip("torch")
    from weir.torch._device import Host, place_of

    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert type(place_of([("a", cpu), ("b", cpu)], {})) is type(place_of([], {})) is Host
    for held, kind, words in (
        ([("a", cpu), ("b", cpu), ("c", meta)], TypeError, "a is on cpu, and c on meta; "),
        (
            [("a", meta)],
            TypeError,
            "parameter a is on meta; gradients are exchanged in host memory",
        ),
    ):
        with pytest.raises(kind, match=words):
            place_of(held, {})
    for key in ("device", "stream"):
        with pytest.raises(ValueError, match=f"{key}= is for Session"):
            place_of([("a", cpu)], {key: 0})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(ranks, dtype):
    ranks.run("half_precision", dtype=dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_lent_as_they_are(ranks, dtype):
    ranks.run("lent_as_they_are", dtype=dtype)


def test_halves_of_other_gradients(ranks):
    ranks.run("other_gradients")


def test_killed_rank_is_named(ranks):
    answers = ranks.run("killed_rank", dies=2)
    for told, again, seconds in answers[:2]:
        assert "rank 2" in told and "rank 2" in again
        assert seconds < 60  # of a time-out of 1800
    assert answers[2] is None


def test_the_check_of_a_device_runs():
    """cuda_check.py, over the emulated one."""
    torch_version()
    cases = ["exact net", "races", "scaler", "averaged", "speed plain", "speed topk"]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "cuda_check.py"), *cases],
        env={**os.environ, "WEIR_TEST_DEVICE": "1", "WEIR_CUDA_LIBRARY": emulated_library()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 ok, 0 failed" in done.stdout, done.stdout


def test_report_is_drawn(ranks, tmp_path):
    command = os.environ.get("WEIR_COMMAND")
    if not command:
        pytest.skip("WEIR_COMMAND names no command `weir`")
    ranks.run("report_drawn", folder=str(tmp_path / "run"), command=command)
