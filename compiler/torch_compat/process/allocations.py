"""Allocations while a function runs, and the time that a GPU works.

On a CPU the legacy profiler reports each allocation: unlike kineto's it has no threads and writes
nothing to the terminal. It misses memory that libraries allocate themselves (scratch space of
oneDNN), and Python objects.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch


def cpu_peak_nbytes(call: Callable[[], object]) -> int:
    """Return the peak of CPU memory that a call allocates."""
    from torch._C._profiler import _ExperimentalConfig

    how = torch.autograd.ProfilerConfig(
        torch.autograd.ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()
    )
    torch.autograd._enable_profiler_legacy(how)
    try:
        result = call()
    finally:
        threads: Any = torch.autograd._disable_profiler_legacy()
    del result
    sizes = [
        event.cpu_memory_usage()
        for events in threads
        for event in events
        if event.kind() == "memory_alloc"
    ]
    return max(accumulate(sizes), default=0)


def gpu_peak_nbytes(call: Callable[[], object]) -> int:
    """Return the same of CUDA memory, as it was asked for: the allocator rounds up."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats().get("requested_bytes.all.current", 0)
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats().get("requested_bytes.all.peak", 0)
    del result
    return peak - before


def keep_gpu_busy(seconds: float) -> None:
    """Keep the GPU busy for some time, so that later launches run without gaps after it."""
    torch.cuda._sleep(int(seconds * 2.0e9))  # cycles, of at most 2 GHz
