"""bench/harm.py: its codecs by what their definitions promise, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def harm(monkeypatch: pytest.MonkeyPatch) -> Any:
    bench = Path(__file__).parents[2] / "bench"
    if not bench.exists():
        pytest.skip("bench/ is not beside this package")
    monkeypatch.syspath_prepend(str(bench))
    return __import__("harm")


def test_every_value_is_one_of_the_two_beside_it(harm: Any) -> None:
    """A grid of 4 bits has 16 values from a bucket's smallest to its largest; a float of m bits of mantissa errs by
    less than 2^-m of the element, as long as that is above 2^-14 of the largest."""
    torch.manual_seed(3)
    e = torch.randn(1024) * torch.logspace(-3, 3, 1024)
    x = e.view(8, 128)
    step = (x.max(1)[0] - x.min(1)[0]) / 15
    wrong = (harm.qsgd(e, 4).view(8, 128) - x).abs()
    assert (wrong.max(1)[0] <= 1.001 * step).all()
    assert harm.qsgd(e[:1000], 4).shape == (1000,)
    held = x.abs() > x.abs().max(1, True)[0] * 2.0**-13
    for bits in (5, 6, 8):
        wrong = (harm.minifloat(e, bits).view(8, 128) - x).abs()
        assert (wrong[held] < 1.001 * 2.0 ** (5 - bits) * x.abs()[held]).all()


def test_a_grid_that_is_shifted_back(harm: Any) -> None:
    """A step is a fifth of the norm, sqrt(128) / 5 of a bucket's root mean square, and errors are evenly up to half of it."""
    e = torch.randn(128 * 512)
    x = e.view(512, 128)
    step = x.norm(dim=1, keepdim=True) / 5
    wrong = (harm.dithered(e, 4).view(512, 128) - x) / step
    assert wrong.abs().max() < 0.51
    assert abs(wrong.mean()) < 0.006
    assert abs(wrong.square().mean() - 1 / 12) < 0.002
    assert abs((wrong * x).mean()) < 0.006


def test_the_nearest_of_squares(harm: Any) -> None:
    """4 bits, the largest 49: the values are 0, 1, 4, 9, 16, 25, 36 and 49, and 2.5 and 30.5 lie in the middle of two."""
    e = torch.tensor([49.0, 0.4, 0.6, 2.4, 2.6, -30.4, -30.6, -0.4] + [0.0] * 120)
    near = torch.tensor([49.0, 0.0, 1.0, 1.0, 4.0, -25.0, -36.0, 0.0] + [0.0] * 120)
    assert torch.equal(harm.companded(e, 4), near)
    assert torch.equal(harm.companded(2.0 * e[:8], 4), 2.0 * near[:8])


def test_units_of_what_elements_usually_are(harm: Any) -> None:
    """Half of a bucket 1 and half -1: a step is 0.7, 179/256 as a bfloat16, and 1 is 1.43 of them.  Of one of 14 among
    zeros it is 2.  Roots go to the nearest power of two, of 4 and 7 to 2; of what is far smaller to a 256th of the
    largest, and of what is not known to an eighth."""
    ones = torch.tensor([1.0, -1.0]).repeat(64)
    assert torch.equal(harm.whitened(ones, 4), 179 / 256 * ones)
    rare = torch.zeros(128)
    rare[77] = -14.0
    assert torch.equal(harm.whitened(rare, 4), rare)
    usual = torch.tensor([4.0, 7.0, 1.0, 0.0] + [1e-6] * 124)
    assert torch.equal(harm.units(usual), torch.tensor([2.0, 2.0, 1.0, 0.25] + [2 / 256] * 124))
    usual = torch.tensor([0.0, 1.0, 1.0])
    harm.follow(usual, torch.tensor([4.0, 4.0, 0.0]))
    assert torch.equal(usual, torch.tensor([1.0, 1.9375, 0.9375]))


def test_what_is_drawn_is_right_on_average(harm: Any) -> None:
    """10 000 draws of one value between others that set the scale: within five standard errors of a draw."""
    e = torch.tensor([-1.0, 1.0, 0.3] + [0.0] * 125).repeat(10_000)
    for codec, bits, step in ((harm.qsgd, 4, 2 / 15), (harm.minifloat, 5, 0.25)):
        drawn = codec(e, bits).view(-1, 128)[:, 2]
        assert abs(drawn.mean().item() - 0.3) < 5 * step / 2 / 100


@pytest.mark.parametrize("plan", ["topk:4", "qsgd", "qsgd:4,150", "qsgd:4,x,qsgd:2"])
def test_a_bad_plan_is_refused(harm: Any, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        harm.main([plan])
    assert refused.value.code == 2
    assert "a plan is CODEC:BITS" in capsys.readouterr().err
