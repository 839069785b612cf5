"""What goes wrong, as exceptions."""

from __future__ import annotations

from . import _native


class WeirError(RuntimeError):
    """A call of the library failed; `status` is its weir_status, `status_name` that one's name."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        self.status_name = _native.library.weir_status_name(status).decode()
        super().__init__(f"{message} ({self.status_name})")


class GroupLostError(WeirError):
    """The group of ranks has ended: one is gone, or silent, or runs something else."""


class UsageError(WeirError, ValueError):
    """The call had no effect: an argument is out of its range, or now is not the time for it."""


def check(status: int, who: str = "") -> None:
    """Raise what a weir_status other than WEIR_OK stands for."""
    if status == _native.OK:
        return
    message = who + _native.library.weir_last_error().decode(errors="replace")
    if _native.GROUP_LOST <= status < 48:
        raise GroupLostError(status, message)
    if status in (1, 2):
        raise UsageError(status, message)
    raise WeirError(status, message)
