"""Weir for PyTorch.

    model = DistributedDataParallel(model)
    weir.torch.attach(model, optimizer)

From then on Weir exchanges the model's gradients.  docs/guide/pytorch.md says what else there is.
"""

from ._average import average
from ._ddp import Attached, attach, batches, report

__all__ = ["Attached", "attach", "average", "batches", "report"]
