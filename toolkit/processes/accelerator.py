"""Whether this process can still use its GPU.

An illegal access or a failed assertion of a kernel breaks CUDA for the whole process: every later
call of it fails, until the process ends.
"""

import sys

LOST_CUDA = 86
"""Exit status of a process of ours that is of no use any more, because it has lost CUDA."""


def has_lost_cuda() -> bool:
    """Return whether a kernel has broken CUDA here; imports nothing, and starts no CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
