"""The source of a kernel: a function of Triton with its block sizes in it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ctk.compiler.codegen.triton import reductions
from ctk.compiler.codegen.triton.attention_blocks import LOCALS
from ctk.compiler.codegen.triton.attention_forward import attention_lines
from ctk.compiler.codegen.triton.body import Body
from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.codegen.triton.printed_values import Printed
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.builder import is_atomic
from ctk.compiler.lowering.ir import (
    Kernel,
    Load,
    Local,
    Op,
    Reduce,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.walk import Numbers, Rewriting, arguments_of, walk
from ctk.compiler.sizes.index import Index

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ctk.compiler.codegen.triton import device
"""

_ATOMIC = {"add": "tl.atomic_add", "max": "tl.atomic_max", "min": "tl.atomic_min"}
_RESERVED = re.compile(
    r"tl|triton|device|libdevice|blocks|[xyrmn]\d*(index|mask|start|quarter)|[XYRMNG]\d*BLOCK|"
    r"(v|i|acc|carry|red)\d+(_\d+)?"
)


@dataclass(slots=True)
class _Printing:
    """A kernel on its way to source."""

    kernel: Kernel
    layout: Layout
    body: Body
    sweeps: tuple[Sweep, ...]

    def run(self) -> None:
        number = 0
        while number < len(self.sweeps):
            axis = self.layout.inner[number]
            self._barrier(number)
            self.body.eviction = self._eviction(number)
            if axis is None or not axis.looped:
                self._statements(number, {})
            elif (pair := self._softmax(number)) is not None:
                self._softmax_loop(axis, *pair)
                number += 1
            else:
                self._loop(number, axis)
            number += 1

    def _loop(self, number: int, axis: Axis) -> None:
        reduces = [
            statement
            for statement in self.sweeps[number].statements
            if isinstance(statement, Reduce)
        ]
        started = {id(reduce): reductions.begin(self.body, reduce, axis) for reduce in reduces}
        self.body.code.open_loop(axis)
        self._statements(number, started)
        self._close(axis)
        for each in started.values():
            reductions.end(self.body, each, axis)

    def _statements(self, number: int, started: Mapping[int, reductions.Accumulated]) -> None:
        """Print the statements of a sweep; `started` are the reductions of an open loop."""
        body, axis = self.body, self.layout.inner[number]
        for statement in self.sweeps[number].statements:
            body.origin = statement.origin
            if isinstance(statement, Store):
                self._store(statement, number)
                continue
            assert axis is not None, f"a reduction or scan without a loop: {statement}"
            if not isinstance(statement, Reduce):
                reductions.scan_block(body, statement, axis)
            elif id(statement) in started:
                reductions.update(body, started[id(statement)], axis)
            else:
                reductions.reduce_block(body, statement, axis)

    def _softmax_loop(self, axis: Axis, largest: Reduce, total: Reduce) -> None:
        names = reductions.softmax_begin(self.body, largest, axis)
        self.body.code.open_loop(axis)
        reductions.softmax_update(self.body, names, largest, axis)
        self._close(axis)
        reductions.softmax_end(self.body, names, largest, total)

    def _softmax(self, number: int) -> tuple[Reduce, Reduce] | None:
        """Return a maximum and the sum of exponentials relative to it, if these come next."""
        if number + 1 >= len(self.sweeps):
            return None
        if self.layout.inner[number] != self.layout.inner[number + 1]:
            return None
        first, second = self.sweeps[number].statements, self.sweeps[number + 1].statements
        if len(first) != 1 or len(second) != 1:
            return None
        largest, total = first[0], second[0]
        if not isinstance(largest, Reduce) or not isinstance(total, Reduce):
            return None
        if (largest.kind, total.kind) != ("max", "sum") or largest.dtypes != total.dtypes:
            return None
        return (largest, total) if _is_relative(total.value, largest) else None

    def _close(self, axis: Axis) -> None:
        body = self.body
        numel = body.positions.size(axis.numel)
        steps = f"tl.range(0, {numel}, {axis.block_name}, num_stages=1)"
        positions = _axis_lines(axis, body, f"{axis.name}start")
        body.code.close_loop(f"for {axis.name}start in {steps}:", positions)
        body.positions.used -= {axis.index, axis.mask, f"{axis.name}quarter"}

    def _store(self, store: Store, number: int) -> None:
        body, axis = self.body, self.layout.inner[number]
        domain = self.layout.grid if axis is None else (*self.layout.grid, axis)
        guard = Printed("") if store.guard is None else body.value(store.guard)
        value = body.value(store.value)
        mask = body.positions.mask(domain, guard)
        over = frozenset(axis.name for axis in domain)
        pointer, at = body.positions.pointer(store.buffer, store.index, over)
        body.check("a store", store.buffer, at, mask)
        extra = f", mask={mask.text}" if mask.text else ""
        text = value.text
        if store.mode == "set":
            call = f"tl.store({pointer}, {text}{extra})"
        else:
            if value.axes != over:
                text = f"tl.broadcast_to({text}, {body.positions.shape(over)})"
            if store.mode != "add" and store.value.dtype.is_floating_point:
                text = f"device.nan_for_{store.mode}({text})"
            call = f"{_ATOMIC[store.mode]}({pointer}, {text}{extra}, sem='relaxed')"
        body.code.line(call, over, store.origin)
        body.code.forget(store.buffer)

    def _barrier(self, number: int) -> None:
        """Print a barrier before a sweep that loads stores of other threads of its program."""
        before = {
            statement.buffer
            for sweep in self.sweeps[:number]
            for statement in sweep.statements
            if isinstance(statement, Store)
        }
        if before & _read(self.sweeps[number]):
            self.body.code.line("tl.debug_barrier()", frozenset())

    def _eviction(self, number: int) -> Mapping[str, str]:
        """Return eviction policies: keep in the cache the buffers that a later loop reads again."""
        axis = self.layout.inner[number]
        if axis is None or not axis.looped:
            return {}
        later = {name for sweep in self.sweeps[number + 1 :] for name in _read(sweep)}
        return {
            name: "evict_last" if name in later or not moves else "evict_first"
            for name, moves in _moving(self.sweeps[number]).items()
        }


def kernel_source(
    kernel: Kernel,
    layout: Layout,
    extents: Mapping[str, Index],
    *,
    debug: bool = False,
    exact: bool = False,
) -> str:
    """Return the source of a kernel in a layout; `extents` are the elements that buffers reach."""
    arguments = arguments_of(kernel)
    symbols = {symbol.name: symbol.name for symbol in arguments.symbols}
    names = _names(arguments.buffers, {*symbols, *LOCALS})
    body = Body(layout, names, symbols, extents, debug=kernel.name if debug else "", exact=exact)
    if isinstance(kernel, Attention):
        printed = attention_lines(kernel, layout, body)
    else:
        _Printing(kernel, layout, body, _on_axes(kernel, layout)).run()
        printed = [*_grid_lines(layout, body), *body.code.top.lines]
    signature = ", ".join((*names.values(), *symbols.values()))
    constants = [f"{axis.block_name}: tl.constexpr = {axis.block}" for axis in layout.axes]
    lines = [*constants, *printed]
    title = f"Compute {', '.join(kernel.nodes)}."
    text = "\n".join(f"    {line}".rstrip() for line in [f'"""{title}"""', *lines])
    decorated = f"@triton.jit\ndef {function_name(kernel)}({signature}):\n{text}\n"
    return f"{HEADER}\n\n{decorated}"


def require_atomics(kernel: Kernel) -> None:
    """Raise `CodegenUnsupported` for a store that combines in a way that devices do not have."""
    for store in kernel.stores:
        dtype = store.value.dtype
        if store.mode != "set" and not is_atomic(store.mode, dtype):
            raise CodegenUnsupported(
                f"kernel {kernel.name}: {store.origin} combines {dtype} by {store.mode} at places "
                "that may meet, and the device has no such atomic operation"
            )


def function_name(kernel: Kernel) -> str:
    """Return the name of a kernel's function."""
    return f"kernel_{_identifier(kernel.name)}"


def _on_axes(kernel: Kernel, layout: Layout) -> tuple[Sweep, ...]:
    outer = {loop: index for axis in layout.grid for loop, index in axis.variables().items()}
    inner = [{} if axis is None else axis.variables() for axis in layout.inner]
    return tuple(
        Rewriting({**outer, **own}).sweep(sweep)
        for sweep, own in zip(kernel.sweeps, inner, strict=True)
    )


def _grid_lines(layout: Layout, body: Body) -> list[str]:
    lines: list[str] = []
    program = "tl.program_id(0)" + (".to(tl.int64)" if layout.wide else "")
    if len(layout.grid) == 2:
        x = layout.grid[1]
        numel = body.positions.size(x.numel)
        lines.append(f"blocks = ({numel} + {x.block_name} - 1) // {x.block_name}")
        starts = [f"{program} // blocks", f"{program} % blocks"]
    else:
        starts = [program]
    for axis, start in zip(layout.grid, starts, strict=True):
        lines += _axis_lines(axis, body, f"{start} * {axis.block_name}")
    for axis in layout.axes[len(layout.grid) :]:
        if not axis.looped:
            lines += _axis_lines(axis, body, "")
    return lines


def _axis_lines(axis: Axis, body: Body, start: str) -> list[str]:
    used = body.positions.used
    first: list[str] = []
    if axis.start in used and axis in body.layout.grid:
        first, start = [f"{axis.start} = {start}"], axis.start
    quarters = _quarter_lines(axis, body, start)
    if axis.index not in used and axis.mask not in used:
        return first + quarters
    lane = f"tl.arange(0, {axis.block_name}){_slots(axis, body)}"
    if body.layout.wide and axis.name != "x":
        lane = f"{lane}.to(tl.int64)"
    lines = [*first, f"{axis.index} = {start} + {lane}" if start else f"{axis.index} = {lane}"]
    if axis.mask in used:
        lines.append(f"{axis.mask} = {axis.index} < {body.positions.size(axis.numel)}")
    return lines + quarters


def _quarter_lines(axis: Axis, body: Body, start: str) -> list[str]:
    """Return the line that gives the counters of a block of random numbers, four for each."""
    name = f"{axis.name}quarter"
    if name not in body.positions.used:
        return []
    lane = f"tl.arange(0, {axis.block_name} // 4){_slots(axis, body)}"
    return [f"{name} = {start} // 4 + {lane}" if start else f"{name} = {lane}"]


def _slots(axis: Axis, body: Body) -> str:
    return "" if body.layout.rank == 1 else ("[:, None]", "[None, :]")[axis.place]


def _names(buffers: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for buffer in buffers:
        name = _identifier(buffer)
        while _RESERVED.fullmatch(name) or name in taken or name in names.values():
            name += "_"
        names[buffer] = name
    return names


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if text[0].isdigit() else text


def _read(sweep: Sweep) -> set[str]:
    return {value.buffer for value in walk(*sweep.statements) if isinstance(value, Load)}


def _moving(sweep: Sweep) -> dict[str, bool]:
    """Return the buffers that a sweep loads, and whether other rows load other elements."""
    found: dict[str, bool] = {}
    for value in walk(*sweep.statements):
        if isinstance(value, Load):
            atoms = {str(atom) for atom in value.index.atoms}
            found[value.buffer] = found.get(value.buffer, False) or "xindex" in atoms
    return found


def _is_relative(value: Value, largest: Reduce) -> bool:
    """Return whether a value is exp(x - max), of the x whose maximum it is."""
    if not isinstance(value, Op) or value.name != "exp":
        return False
    inner = value.args[0]
    if not isinstance(inner, Op) or inner.name != "sub":
        return False
    left, right = inner.args
    if not isinstance(right, Local) or right.name != largest.names[0]:
        return False
    numbers = Numbers()
    return numbers.of(left) == numbers.of(largest.value)
