"""What traps.py and cuda_check.py share: it takes Python alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def refused(kind: type[Exception], words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words}: nothing was raised")


def tried(attached: Any, trials: Any) -> Any:
    """A session's begin() that makes trials of so many steps, from the so many-th begin on."""
    begin, count = attached.session.begin, 0

    def trying() -> Any:
        nonlocal count
        info = begin()
        info.trial = attached.trial
        if any(count == first + length for first, length in trials):
            attached._put_back()
            info.trial = False
        if any(count == first for first, _ in trials):
            attached._keep()
            info.trial = True
        count += 1
        return info

    return trying
