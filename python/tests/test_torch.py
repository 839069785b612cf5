"""Each trap of DistributedDataParallel, against plain DDP on the same batches (traps.py)."""

import pytest

TRAPS = [
    "buckets_rebuilt",
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
    "wrong_model",
    "plain_loop",
]


@pytest.mark.parametrize("trap", TRAPS)
def test_trap(ranks, trap):
    ranks.run(trap)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(ranks, dtype):
    ranks.run("half_precision", dtype=dtype)
