"""libweir as Python sees it: the only file that knows of C.

Structs that the library fills in carry their size (docs/reference/abi.md), so that a newer library
fills in as much as is declared here; options are set by name, in a struct whose size the library
tells.  python/tests/test_native.py compares the layouts below with what a C compiler makes of the
headers.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

HEADERS = "0.1.0"  # WEIR_VERSION of the headers that the layouts below are from


class Plan(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64),
        ("codec", c_uint32),
        ("scheme", c_uint32),
        ("wire", c_uint32),
        ("algorithm", c_uint8),
        ("inside", c_uint8),
        ("broadcast", c_uint8),
        ("bucket_log2", c_uint8),
        ("cr", c_double),
        ("buckets", c_uint32),
        ("layout", c_uint32),
    ]


class StepInfo(ctypes.Structure):
    """What weir_step_info is in include/weir/weir.h, where every field is described."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("step", c_uint64),
        ("trial", c_bool),
        ("plan", Plan),
        ("compute_s", c_double),
        ("compress_s", c_double),
        ("comm_s", c_double),
        ("exchange_s", c_double),
        ("predicted_comm_s", c_double),
        ("overhead_s", c_double),
        ("wire_bytes", c_uint64),
        ("probe_bytes", c_uint64),
        ("gain", c_double),
        ("latency_s", c_double),
        ("bandwidth_bytes_s", c_double),
        ("goodput_bytes_s", c_double),
    ]

    def __init__(self) -> None:
        super().__init__(struct_size=ctypes.sizeof(StepInfo))


STEP_INFO_FIELDS = tuple(field[0] for field in StepInfo._fields_)


class LogLine(ctypes.Structure):
    _fields_ = [
        ("level", c_int),
        ("time_s", c_double),
        ("rank", c_int),
        ("step", c_uint64),
        ("text", c_char_p),
    ]


StateBytes = ctypes.CFUNCTYPE(c_size_t, c_void_p)
StateFunction = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)


class StateHooks(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("bytes", StateBytes),
        ("save", StateFunction),
        ("load", StateFunction),
    ]


LogFunction = ctypes.CFUNCTYPE(None, c_void_p, POINTER(LogLine))
WriteFunction = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
ReadFunction = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
DumpFunction = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


def _load() -> ctypes.CDLL:
    named = os.environ.get("WEIR_LIBRARY")
    path = named or str(Path(__file__).parent / "lib" / "libweir.so")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"libweir cannot be loaded: {error}. `pip install ./python` builds and installs it; "
            "the environment's WEIR_LIBRARY names another"
        ) from error


library = _load()

_session = c_void_p
_FUNCTIONS = {
    "weir_version": (c_char_p, []),
    "weir_status_name": (c_char_p, [c_int]),
    "weir_last_error": (c_char_p, []),
    "weir_log_set": (None, [LogFunction, c_void_p]),
    "weir_log_set_level": (c_int, [c_int]),
    "weir_options_size": (c_size_t, []),
    "weir_options_init_sized": (None, [c_void_p, c_size_t]),
    "weir_options_set": (c_int, [c_void_p, c_char_p, c_char_p]),
    "weir_session_create": (c_int, [POINTER(_session), c_void_p]),
    "weir_session_free": (None, [_session]),
    "weir_register_typed": (
        c_int,
        [_session, c_char_p, c_size_t, c_size_t, c_uint32, POINTER(c_uint32)],
    ),
    "weir_register_hooks": (c_int, [_session, POINTER(StateHooks)]),
    "weir_session_start": (c_int, [_session]),
    "weir_step_begin": (c_int, [_session, POINTER(StepInfo)]),
    "weir_report_loss": (c_int, [_session, c_double]),
    "weir_mark_backward": (c_int, [_session]),
    "weir_submit": (c_int, [_session, c_uint32, c_void_p]),
    "weir_step_end": (c_int, [_session, POINTER(StepInfo)]),
    "weir_current_plan": (c_int, [_session, POINTER(Plan)]),
    "weir_current_transport": (c_int, [_session, POINTER(c_char_p)]),
    "weir_plan_format": (None, [POINTER(Plan), c_char_p]),
    "weir_plan_collective": (None, [POINTER(Plan), c_char_p]),
    "weir_codec_name": (c_char_p, [c_uint32]),
    "weir_set_epoch": (c_int, [_session, c_uint32]),
    "weir_set_room": (c_int, [_session, c_uint64]),
    "weir_doubt_update_rule": (c_int, [_session, c_char_p]),
    "weir_allgather_bytes": (c_int, [_session, c_char_p, c_size_t, c_void_p]),
    "weir_residual_digest": (c_int, [_session, POINTER(c_uint64)]),
    "weir_rescale": (c_int, [_session, c_double]),
    "weir_session_save": (c_int, [_session, WriteFunction, c_void_p]),
    "weir_session_load": (c_int, [_session, ReadFunction, c_void_p]),
    "weir_dump": (c_int, [_session, DumpFunction, c_void_p]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(library, _name)
    _function.restype = _result
    _function.argtypes = _arguments

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # weir_type
OK = 0
NONFINITE = 16
GROUP_LOST = 32  # this status and those after it end the group
PLAN_TEXT_MAX = 80
COLLECTIVE_TEXT_MAX = 40
LOG_LEVELS = ("ERROR", "WARNING", "INFO", "DEBUG", "TRACE")  # weir_log_level
