"""Weir: gradient communication that tunes itself to the network while training runs.

`weir.torch` is for PyTorch; `Session` for everything else that has a buffer of floats.
"""

from . import _native
from .errors import GroupLostError, UsageError, WeirError
from .session import Session, StepInfo

__version__ = _native.library.weir_version().decode()
__all__ = ["GroupLostError", "Session", "StepInfo", "UsageError", "WeirError", "__version__"]
