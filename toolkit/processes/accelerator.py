"""Whether CUDA still works in this process.

An illegal access or a failed assertion of a kernel breaks CUDA for the whole process: every later
call fails until the process ends.
"""

import sys

LOST_CUDA = 86
"""Exit status of a child of ctk that ends because CUDA is broken in it."""


def has_lost_cuda() -> bool:
    """Return whether a kernel has broken CUDA in this process; does not initialize CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
