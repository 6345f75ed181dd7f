"""Autotuning: a few layouts of a kernel timed on the device, and the choice kept in the cache.

Only kernels that may run twice are timed: none that combines with the contents of memory, or writes
memory that it reads. A choice is kept under the hash of the kernel's source in the layout of the
rules, and the name of the device, in the notes of the persistent cache; without a cache each
process measures again.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256

import torch

from ctk.compiler.cache_folder.notes import notes
from ctk.compiler.codegen.triton.heuristics import Knobs
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.walk import reads, writes

TRIED = ((0, 0), (0, 1), (0, -1), (1, 0), (1, 1), (-1, 0), (-1, -1))
"""Powers of two by which blocks and warps differ from those of the rules."""

_CALLS = 20
_CHOICE = re.compile(r"block=(-?[0-3]) warps=(-?[0-3])")


def may_run_twice(kernel: Kernel) -> bool:
    """Return whether a second run of a kernel gives the same as the first."""
    combines = any(store.mode != "set" for store in kernel.stores)
    return not combines and not reads(kernel) & writes(kernel)


def best_of(candidates: Iterable[tuple[Knobs, Callable[[], None]]]) -> Knobs:
    """Return the fastest of some deviations from the rules; the first one if none runs faster."""
    best: tuple[float, Knobs] | None = None
    for knobs, run in candidates:
        taken = _milliseconds(run)
        if best is None or taken < best[0] * 0.98:  # a difference above the noise
            best = taken, knobs
    assert best is not None
    return best[1]


def key_of(source: str, device: int) -> str:
    """Return under which name the choice for a kernel is kept."""
    text = f"{torch.cuda.get_device_name(device)}\n{source}"
    return sha256(text.encode()).hexdigest()


def recall(key: str, base: Knobs) -> Knobs | None:
    """Return the earlier choice; None if there is none."""
    kept = notes()
    found = None if kept is None else kept.choice(f"triton-layout {key}")
    match = _CHOICE.fullmatch(found or "")
    return replace(base, block=int(match[1]), warps=int(match[2])) if match else None


def keep(key: str, knobs: Knobs) -> None:
    """Keep a choice for other processes."""
    kept = notes()
    if kept is not None:
        kept.choose(f"triton-layout {key}", f"block={knobs.block} warps={knobs.warps}")


def _milliseconds(run: Callable[[], None]) -> float:
    run()
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    for _ in range(_CALLS):
        run()
    ended.record()
    ended.synchronize()
    return started.elapsed_time(ended)
