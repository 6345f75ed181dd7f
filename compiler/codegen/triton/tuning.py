"""Autotuning: a few layouts of a kernel timed on the device, and the choice kept in a file.

Only kernels that may run twice are timed: none that combines with what is in memory, or writes what
it reads. A choice is kept under the hash of the kernel's source in the layout of the rules, and the
name of the device; `recall` and `keep` are all that knows of the file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch

from ctk.compiler.codegen.triton.heuristics import Knobs
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.walk import reads, writes

TRIED = ((0, 0), (0, 1), (0, -1), (1, 0), (1, 1), (-1, 0), (-1, -1))
"""Powers of two by which blocks and warps differ from those of the rules."""

_CALLS = 20


def may_run_twice(kernel: Kernel) -> bool:
    """Return whether a second run of a kernel gives the same as the first."""
    combines = any(store.mode != "set" for store in kernel.stores)
    return not combines and not reads(kernel) & writes(kernel)


def best_of(candidates: Iterable[tuple[Knobs, Callable[[], None]]]) -> Knobs:
    """Return the fastest of some deviations from the rules; the first one if none runs faster."""
    best: tuple[float, Knobs] | None = None
    for knobs, run in candidates:
        taken = _milliseconds(run)
        if best is None or taken < best[0] * 0.98:  # a difference that is no noise
            best = taken, knobs
    assert best is not None
    return best[1]


def key_of(source: str, device: int) -> str:
    """Return under which name the choice for a kernel is kept."""
    text = f"{torch.cuda.get_device_name(device)}\n{source}"
    return sha256(text.encode()).hexdigest()


def recall(key: str, base: Knobs) -> Knobs | None:
    """Return what was chosen before; None if nothing was."""
    found = _choices().get(key)
    if found is None or len(found) != 2:
        return None
    return replace(base, block=found[0], warps=found[1])


def keep(key: str, knobs: Knobs) -> None:
    """Keep a choice for other processes."""
    choices = {**_choices(), key: [knobs.block, knobs.warps]}
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as written:
        json.dump(choices, written)
    Path(written.name).replace(path)


def _choices() -> dict[str, list[int]]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or not ours: it is made anew
        return {}
    return found if isinstance(found, dict) else {}


def _file() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "ctk" / "triton_layouts.json"


def _milliseconds(run: Callable[[], None]) -> float:
    run()
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    for _ in range(_CALLS):
        run()
    ended.record()
    ended.synchronize()
    return started.elapsed_time(ended)
