"""Each trap of DistributedDataParallel, against plain DDP on the same batches (traps.py)."""

import dataclasses
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
    "unused_keep_their_mass_in_views",
    "unused_keep_their_mass_under_a_scaler",
    "activation_checkpointing",
    "compiled",
    "static_graph",
    "bucket_view",
    "mixed_dtypes",
    "channels_last",
    "shared_parameters",
    "frozen_parameters",
    "frozen_later",
    "copied",
    "attached_twice",
    "clipping",
    "proportional",
    "not_proportional",
    "thrown_away",
    "whose_rule_is_known",
    "not_finite",
    "grad_scaler",
    "in_evaluation_mode",
    "saved_and_restored",
    "scalars_written",
    "uneven_inputs",
    "two_models",
    "adversarial",
    "wrong_model",
    "closed",
    "gradient_that_cannot_be_lent",
    "dropped",
    "loss_found",
    "trials_are_off",
    "trials_without_memory",
    "trials_leave_nothing",
    "left_within_a_trial",
    "trials_of_a_sharded_optimizer",
    "trials_under_wrappers",
    "trials_amid_accumulation",
    "trials_of_frozen_parameters",
    "several_passes",
    "trials_of_the_session",
    "plain_loop",
    "unfrozen_later",
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


def test_bytes_of_batches():
    torch = pytest.importorskip("torch")
    from weir.torch._trials import _bytes_of

    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        rest: list

    held = Batch(torch.zeros(1000), [torch.zeros(500, dtype=torch.float64), (torch.zeros(10),)])
    assert _bytes_of({"batch": held}) == 4000 + 4000 + 40


def test_a_checkpoint_without_room_on_its_device_goes_to_host_memory(monkeypatch):
    torch = pytest.importorskip("torch")
    from weir.torch import _trials

    class Full(_trials._Copy):
        def __init__(self, tensor, in_host_memory):
            if not in_host_memory and tensor.dim() > 1:  # once something has been kept there
                raise torch.cuda.OutOfMemoryError("full")
            super().__init__(tensor, in_host_memory)

    monkeypatch.setattr(_trials, "_Copy", Full)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    checkpoint = _trials.Checkpoint(model, optimizer, [])

    def step():
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    step()
    before = [value.clone() for value in model.state_dict().values()]
    checkpoint.take(1e9)
    step()
    checkpoint.restore()
    assert all(map(torch.equal, before, model.state_dict().values()))
    assert len(checkpoint._tensors) == len(before)  # none of them twice


WITHOUT_NUMPY = """
import os, sys
sys.modules["numpy"] = None
import torch
import torch.distributed as dist
import weir.torch

parent = os.fork()
dist.init_process_group(
    "gloo", store=dist.FileStore(sys.argv[1], 2), rank=int(parent == 0), world_size=2
)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(12, 12))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
attached = weir.torch.attach(model, optimizer)
for x in weir.torch.batches([torch.ones(2, 12)] * 3, model):
    model(x).sum().backward()
attached.load_state_dict(attached.state_dict())
model(x).sum().backward()
assert attached.info.step == 3
attached.close()
if parent:
    assert os.waitpid(parent, 0)[1] == 0
"""


def test_numpy_is_not_needed(tmp_path):
    torch_version()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY, str(tmp_path / "store")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


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


def test_a_forked_child_leaves_the_group_alone(ranks, tmp_path):
    ranks.run("forked_child", folder=str(tmp_path / "run"))


@pytest.mark.parametrize("of", ["clipped", "thrown"])
def test_doubt_is_answered(ranks, tmp_path, of):
    ranks.run("doubt_is_answered", of=of, folder=str(tmp_path / "run"))


def test_report_is_drawn(ranks, tmp_path):
    command = os.environ.get("WEIR_COMMAND")
    if not command:
        pytest.skip("WEIR_COMMAND names no command `weir`")
    ranks.run("report_drawn", folder=str(tmp_path / "run"), command=command)
