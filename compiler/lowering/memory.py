"""Memory planning: a buffer that a kernel makes takes the memory of a dead one.

Rules, each use a numbered rewrite:
    1. in place   a pointwise kernel reads a buffer for the last time, element by element where it
                  writes its result of the same size
    2. reuse      a buffer of the same number of bytes is dead when the kernel begins, and to keep
                  it until then does not raise the peak of the memory
The memory taken is that of a kernel, or of an operator in `_FRESH`, whose results are tensors of
their own: an epilogue runs in place of its product or convolution. Never taken: memory that the
caller made, results of the graph, buffers that other library calls read, since those may keep a
view of them unseen; views that are declared are followed.

There is no arena, as the allocators of torch keep freed memory anyway; the gain is memory that is
still in the processor's cache, and a lower peak by rule 1.

Source: `torch/_inductor/codegen/wrapper.py`, `MemoryPlanningState` and `EfficientPeakEstimate`.
"""

import operator
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from torch.fx import Node

from ctk.compiler.fx.operator_facts import packet_of
from ctk.compiler.lowering.ir import Allow, Buffer, Kernel, LibraryCall, Program, is_temporary
from ctk.compiler.lowering.layout import memory_order
from ctk.compiler.lowering.order import base_name, gathered, step_reads, step_writes, viewed
from ctk.compiler.lowering.walk import loads, writes
from ctk.compiler.sizes.index import Index, product

_FRESH = """
    aten._int_mm aten._scaled_dot_product_cudnn_attention
    aten._scaled_dot_product_cudnn_attention_backward aten._scaled_dot_product_efficient_attention
    aten._scaled_dot_product_efficient_attention_backward aten._scaled_dot_product_flash_attention
    aten._scaled_dot_product_flash_attention_backward
    aten._scaled_dot_product_flash_attention_for_cpu aten._scaled_mm aten.addmm aten.avg_pool2d
    aten.baddbmm aten.bmm aten.convolution aten.convolution_backward aten.embedding
    aten.embedding_dense_backward aten.max_pool2d_with_indices aten.mm
    mkldnn._convolution_pointwise mkldnn._linear_pointwise
"""
"""Operators whose results are tensors of their own: neither an operand nor a part of one."""

_NAMES = frozenset(_FRESH.split())


def plan_memory(program: Program, allow: Allow) -> Program:
    """Return a program whose buffers share memory, by `Buffer.memory`.

    Its steps are in the order in which they run: steps that share memory must not change places.
    """
    steps = [step for steps in gathered(program) for step in steps]
    plan = _Plan(replace(program, steps=steps), allow)
    plan.work_in_place()
    plan.reuse()
    return replace(program, steps=steps, buffers=plan.buffers)


class _Plan:
    """The buffers while memory is being shared."""

    def __init__(self, program: Program, allow: Allow) -> None:
        self.allow = allow
        self.program = program
        self.buffers = dict(program.buffers)
        self.last = _last_uses(program)
        self.calls = {s.name: s.node for s in program.steps if isinstance(s, LibraryCall)}
        self.taken: set[str] = set()
        # Others do not see the buffers that kernels of one node make for each other.
        temporaries = {name for name in program.buffers if is_temporary(program, name)}
        self.kept = program.results | _opaque_reads(program) | temporaries

    def work_in_place(self) -> None:
        """Rule 1."""
        for place, kernel, name in self._made():
            taken = self._in_place(place, kernel, self.buffers[name])
            if taken is not None:
                self._take("in place", taken, name, kernel)

    def reuse(self) -> None:
        """Rule 2."""
        made: dict[int, list[tuple[Kernel, str]]] = {}
        for place, kernel, name in self._made():
            made.setdefault(place, []).append((kernel, name))
        alive = self._bytes_alive()
        limit = max(alive, default=0)
        dead: dict[tuple[object, Index], list[tuple[int, str]]] = {}
        for place in range(len(self.program.steps)):
            for kernel, name in made.get(place, ()):
                buffer = self.buffers[name]
                if buffer.memory or not dead.get(_size(buffer)):
                    continue
                since, taken = dead[_size(buffer)][-1]
                held = slice(since + 1, place)
                more = _nbytes(buffer)
                fits = max(alive[held], default=0) + more <= limit
                if fits and self._take("reuse", taken, name, kernel):
                    dead[_size(buffer)].pop()
                    alive[held] = [nbytes + more for nbytes in alive[held]]
            for name in sorted(self.last.get(place, ())):
                if self._is_free(name) and name not in self.taken:
                    dead.setdefault(_size(self.buffers[name]), []).append((place, name))

    def _made(self) -> Iterable[tuple[int, Kernel, str]]:
        """Yield the buffers that kernels make: place and kernel of the first write, and name."""
        made: set[str] = set()
        for place, step in enumerate(self.program.steps):
            if isinstance(step, Kernel):
                new = [name for name in sorted(writes(step)) if name not in made]
                made.update(new)
                kernels = (n for n in new if self._is_free(n) and not self._is_of_library(n))
                yield from ((place, step, name) for name in kernels)

    def _take(self, rule: str, taken: str, name: str, kernel: Kernel) -> bool:
        if not self.allow(f"{rule} {taken} -> {name}", kernel.nodes):
            return False
        self.buffers[name] = replace(self.buffers[name], memory=taken)
        self.taken.add(taken)
        return True

    def _bytes_alive(self) -> list[int]:
        """Return the bytes that are alive at each step; memory taken in place counts once."""
        first: dict[str, int] = {}
        change = [0] * (len(self.program.steps) + 1)
        for place, step in enumerate(self.program.steps):
            for name in step_writes(self.program, step):
                first.setdefault(name, place)
        last = {name: place for place, names in self.last.items() for name in names}
        last.update(dict.fromkeys(self.program.results, len(self.program.steps) - 1))
        for name, buffer in self.buffers.items():
            if buffer.role in ("kernel", "library") and not buffer.base and name in first:
                begin = first[name] + bool(buffer.memory)
                end = last[name] + 1
                if begin < end:
                    change[begin] += _nbytes(buffer)
                    change[end] -= _nbytes(buffer)
        return list(accumulate(change))[:-1]

    def _in_place(self, place: int, kernel: Kernel, buffer: Buffer) -> str | None:
        """Return a buffer that the kernel reads for the last time, just where it writes this."""
        if any(sweep.inner for sweep in kernel.sweeps) or len(kernel.stores) != 1:
            return None
        (store,) = kernel.stores
        for load in loads(kernel):
            other = self.buffers[load.buffer]
            is_last = load.buffer in self.last.get(place, ())
            if not is_last or not self._is_free(load.buffer) or load.buffer in self.taken:
                continue
            shared = [e for e in loads(kernel) if base_name(self.buffers, e.buffer) == load.buffer]
            if any(each.buffer != load.buffer for each in shared):  # a view of it
                continue
            where = {each.index for each in shared}
            same = (other.dtype, other.device) == (buffer.dtype, buffer.device)
            if same and where == {store.index} and _size(other) == _size(buffer):
                return load.buffer
        return None

    def _is_free(self, name: str) -> bool:
        """Return whether a buffer's memory may be taken once it is dead."""
        buffer = self.buffers.get(name)
        if buffer is None or name in self.kept:
            return False
        return buffer.role == "kernel" or self._is_of_library(name)

    def _is_of_library(self, name: str) -> bool:
        """Return whether an operator made a buffer as a dense tensor of its own."""
        buffer, node = self.buffers[name], self.calls.get(name)
        if buffer.role != "library" or buffer.base or node is None:
            return False
        return _is_fresh(node) and memory_order(buffer.shape, buffer.strides) is not None


def _last_uses(program: Program) -> dict[int, set[str]]:
    place_of = {
        name: place
        for place, step in enumerate(program.steps)
        for name in step_reads(program, step) | step_writes(program, step)
        if name in program.buffers
    }
    result: dict[int, set[str]] = {}
    for name, place in place_of.items():
        result.setdefault(place, set()).add(name)
    return result


def _opaque_reads(program: Program) -> frozenset[str]:
    calls = (step for step in program.steps if isinstance(step, LibraryCall))
    opaque = (c for c in calls if not _is_fresh(c.node) and viewed(c.node) is None)
    return frozenset[str]().union(*(step_reads(program, call) for call in opaque))


def _is_fresh(node: Node) -> bool:
    """Return whether the results of a call are tensors of their own."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return _is_fresh(node.args[0])
    return str(packet_of(node)) in _NAMES


def _size(buffer: Buffer) -> tuple[object, Index]:
    return buffer.device, product(buffer.shape) * buffer.dtype.itemsize


def _nbytes(buffer: Buffer) -> int:
    """Return the bytes of a buffer, 0 if they are not known."""
    return (product(buffer.shape).number or 0) * buffer.dtype.itemsize
