"""The library's log lines go to Python's logger "weir"."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any

from . import _native

logger = logging.getLogger("weir")
TRACE = 5
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, TRACE)
_lock = threading.Lock()
_installed = False


def _write(user: Any, line: Any) -> None:
    said = line.contents
    who = f"rank {said.rank}: " if said.rank >= 0 else ""
    logger.log(_LEVELS[said.level], "%s%s", who, said.text.decode(errors="replace"))


_function = _native.LogFunction(_write)


def _uninstall() -> None:
    """Threads of the library must not call into an interpreter that ends."""
    _native.library.weir_log_set(_native.LogFunction(), None)


def install() -> None:
    """Lines up to the logger's level, unless the environment's WEIR_LOG says which."""
    global _installed
    with _lock:
        if not _installed:
            _native.library.weir_log_set(_function, None)
            atexit.register(_uninstall)
            _installed = True
    if "WEIR_LOG" in os.environ:
        if logger.level == logging.NOTSET:
            logger.setLevel(TRACE)  # the library has chosen already
        return
    level = logger.getEffectiveLevel()
    most = max((i for i, known in enumerate(_LEVELS) if known >= level), default=0)
    _native.library.weir_log_set_level(most)
