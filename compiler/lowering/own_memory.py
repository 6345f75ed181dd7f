"""Memory that one kernel reads and writes: the rule on which every printer relies.

    for i < n: x[i] = x[i] * 2                        right: one iteration reads, then writes it
    for i < n: x[i] = x[i + 1]                        another iteration may write it before
    for i < n: a[i] = 1; x[i] = a[i]                  read after it is written
    for i < n: for r: m = max(x[i, r]); for r: x[i, r] = x[i, r] - m     read by two sweeps

A kernel that reads memory that it writes has no inner loops, and reads it before it writes it, at
the one index of its stores. So a printer may load values ahead, compute them twice, keep them in
arrays and registers, and store them late. Fusion keeps the rule (`merge.py`), and so do lowerings
and the planning of memory (`memory.py`).
"""

from collections.abc import Mapping

from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.ir import Buffer, Kernel, Load, Store
from ctk.compiler.lowering.walk import indirect, walk


def require_own_memory(kernel: Kernel, buffers: Mapping[str, Buffer]) -> None:
    """Refuse a kernel that may read memory that it has written.

    Raises:
        CodegenUnsupported: The kernel breaks the rule; the message names the buffer.
    """
    fault = _stale_read(kernel, buffers)
    if fault is not None:
        raise CodegenUnsupported(
            f"kernel {kernel.name} of [{', '.join(kernel.nodes)}] {fault}, so it may "
            "read an element that it has written"
        )


def _stale_read(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str | None:
    stored: dict[str, list[Store]] = {}
    for store in kernel.stores:
        stored.setdefault(_memory(store.buffer, buffers), []).append(store)
    is_pointwise = not any(sweep.inner for sweep in kernel.sweeps)
    written: set[str] = set()
    for statement in kernel.statements:
        for load in (value for value in walk(statement) if isinstance(value, Load)):
            memory = _memory(load.buffer, buffers)
            if memory not in stored:
                continue
            if memory in written:
                return f"reads {load.buffer} after it writes it"
            if not is_pointwise:
                return f"reads and writes {load.buffer} in rows"
            if not all(_is_same(load, store, buffers) for store in stored[memory]):
                return f"reads {load.buffer} at other places than it writes"
        if isinstance(statement, Store):
            written.add(_memory(statement.buffer, buffers))
    return None


def _is_same(load: Load, store: Store, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a store sets just the element that its iteration loads."""
    if store.mode != "set" or store.index != load.index or indirect(load.index):
        return False
    if load.buffer == store.buffer:
        return True
    ours, theirs = buffers[load.buffer], buffers[store.buffer]
    is_view = bool(ours.base or theirs.base)  # which may begin at another place
    return not is_view and ours.dtype == theirs.dtype


def _memory(name: str, buffers: Mapping[str, Buffer]) -> str:
    """Return the name of the memory in which a buffer is."""
    while name in buffers and (buffers[name].memory or buffers[name].base):
        name = buffers[name].memory or buffers[name].base
    return name
