"""Memory planning: a buffer that a kernel makes takes the memory of a dead one.

Rules, each use a numbered rewrite:
    1. in place   a pointwise kernel reads a buffer for the last time, element by element where it
                  writes its result of the same size
    2. reuse      a buffer of the same number of bytes is dead when the kernel begins
Never taken: memory that the caller or the library made, results of the graph, buffers that a
library call reads which may keep a view of them unseen.

There is no arena, as the allocators of torch keep freed memory anyway; the gain is memory that is
still in the processor's cache.

Source: `torch/_inductor/codegen/wrapper.py`, `MemoryPlanningState`.
"""

from dataclasses import replace

from ctk.compiler.lowering.ir import Allow, Buffer, Kernel, LibraryCall, Program, Step, is_temporary
from ctk.compiler.lowering.order import gathered, step_reads, step_writes
from ctk.compiler.lowering.walk import loads, writes
from ctk.compiler.sizes.index import Index, product
from ctk.compiler.torch_compat.fx.operators import declared_by


def plan_memory(program: Program, allow: Allow) -> Program:
    """Return a program whose buffers share memory, by `Buffer.memory`.

    Its steps are in the order in which they run: steps that share memory must not change places.
    """
    steps = [step for steps in gathered(program) for step in steps]
    plan = _Plan(replace(program, steps=steps), allow)
    for place, step in enumerate(steps):
        plan.add(place, step)
    return replace(program, steps=steps, buffers=plan.buffers)


class _Plan:
    """The buffers while memory is being shared."""

    def __init__(self, program: Program, allow: Allow) -> None:
        self.allow = allow
        self.buffers = dict(program.buffers)
        self.last = _last_uses(program)
        # Others do not see the buffers that kernels of one node make for each other.
        temporaries = {name for name in program.buffers if is_temporary(program, name)}
        self.kept = program.outputs | _opaque_reads(program) | temporaries
        self.made: set[str] = set()
        self.dead: dict[tuple[object, Index], list[str]] = {}

    def add(self, place: int, step: Step) -> None:
        """Give memory to the results of a step, and release the buffers that it read last."""
        if isinstance(step, Kernel):
            for name in sorted(writes(step)):
                if self._is_free(name) and name not in self.made:
                    self._place(place, step, name)
                self.made.add(name)
        for name in sorted(self.last.get(place, ())):
            if self._is_free(name):
                self.dead.setdefault(_size(self.buffers[name]), []).append(name)

    def _place(self, place: int, kernel: Kernel, name: str) -> None:
        buffer = self.buffers[name]
        taken = self._in_place(place, kernel, buffer)
        rule = "in place"
        if taken is None and self.dead.get(_size(buffer)):
            taken, rule = self.dead[_size(buffer)][-1], "reuse"
        if taken is None or not self.allow(f"{rule} {taken} -> {name}", kernel.nodes):
            return
        if rule == "reuse":
            self.dead[_size(buffer)].pop()
        else:
            self.last[place].discard(taken)
        self.buffers[name] = replace(buffer, memory=taken)

    def _in_place(self, place: int, kernel: Kernel, buffer: Buffer) -> str | None:
        """Return a buffer that the kernel reads for the last time, just where it writes this."""
        if any(sweep.inner for sweep in kernel.sweeps) or len(kernel.stores) != 1:
            return None
        (store,) = kernel.stores
        for load in loads(kernel):
            other = self.buffers[load.buffer]
            if load.buffer not in self.last.get(place, ()) or not self._is_free(load.buffer):
                continue
            where = {each.index for each in loads(kernel) if each.buffer == load.buffer}
            same = (other.dtype, other.device) == (buffer.dtype, buffer.device)
            if same and where == {store.index} and _size(other) == _size(buffer):
                return load.buffer
        return None

    def _is_free(self, name: str) -> bool:
        buffer = self.buffers.get(name)
        return buffer is not None and buffer.role == "kernel" and name not in self.kept


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
    opaque = (call for call in calls if declared_by(call.node.target) is None)
    return frozenset[str]().union(*(step_reads(program, call) for call in opaque))


def _size(buffer: Buffer) -> tuple[object, Index]:
    return buffer.device, product(buffer.shape) * buffer.dtype.itemsize
