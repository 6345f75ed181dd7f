"""The values of a kernel as lines of Triton: each once, in the loop where it belongs.

A value gets a variable `v0`, `v1`, ... of the shape of the axes on which it depends: `[XBLOCK, 1]`
for one of a row, so that it is computed once for each row, and outside of the loop over it. Masks
stand on loads and stores; what is computed beyond the end of an axis is of no account, and a
reduction puts its neutral element there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from ctk.compiler.codegen.triton.expressions import IndexPrinter
from ctk.compiler.codegen.triton.forms import constant_of, is_logistic, operands_of_form
from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.codegen.triton.ops import INFIX, TYPES, const_text, op_text
from ctk.compiler.codegen.triton.printed_values import Lines, Shown, union
from ctk.compiler.codegen.triton.runs import Runs, in_runs
from ctk.compiler.codegen.triton.special import special_form
from ctk.compiler.lowering.ir import (
    Const,
    Guarded,
    Load,
    Local,
    Op,
    Position,
    Value,
    indirect_value,
)
from ctk.compiler.lowering.walk import Numbers, indirect, operands
from ctk.compiler.sizes.index import Atom, Index, Indirect, Quotient, Var, of_atom
from ctk.compiler.sizes.size_guards import symbols_of


class Body:
    """The lines of a kernel as they grow."""

    def __init__(
        self,
        layout: Layout,
        arguments: Mapping[str, str],
        symbols: dict[str, str],
        extents: Mapping[str, Index],
        *,
        debug: str = "",
        exact: bool = False,
    ) -> None:
        self.layout = layout
        self.top = Lines()
        self.loop: Lines | None = None
        self.looped: Axis | None = None
        self.used: set[str] = set()
        self.locals: dict[str, Shown] = {}
        self.eviction: Mapping[str, str] = {}
        self.origin = ""
        self._axes = {axis.index: axis for axis in layout.axes}
        self._starts = {axis.index: axis for axis in layout.grid if axis.block > 1}
        self._arguments = arguments
        self._extents = extents
        self._debug = debug
        self._exact = exact
        self._numbers = Numbers()
        self._count = 0
        self._guard = Shown("")
        self.printer = IndexPrinter(self._indirect, self._define, symbols)
        self.sizes = IndexPrinter(self._indirect, lambda text, _: f"({text})", symbols)

    def value(self, value: Value) -> Shown:
        """Return a value, printed if it is not yet."""
        for each in self._order(value):
            self._print(each)
        found = self._known(value)
        assert found is not None
        return found

    def variable(self, text: str, axes: frozenset[str], origin: str = "", *,
                 buffers: frozenset[str] = frozenset(), prefix: str = "v") -> Shown:  # fmt: skip
        """Return a new variable with the value of an expression."""
        name = f"{prefix}{self._count}"
        self._count += 1
        self.line(f"{name} = {text}", axes, origin)
        return Shown(name, axes, buffers)

    def line(self, text: str, axes: frozenset[str], origin: str = "") -> None:
        """Add a line, to the loop if it depends on what the loop walks over."""
        self._lines(axes).lines.append(f"{text}  # {origin}" if origin else text)

    def mask(self, axes: Iterable[Axis], *extra: Shown) -> Shown:
        """Return the mask of some axes, and of conditions; the text is empty if none is needed."""
        masked = [axis for axis in axes if not axis.whole]
        self.used.update(axis.mask for axis in masked)
        more = [each for each in extra if each.text]
        names = [axis.mask for axis in masked] + [each.text for each in more]
        of = frozenset(axis.name for axis in masked).union(*(each.axes for each in more))
        return Shown(" & ".join(names), of)

    def pointer(self, buffer: str, index: Index, over: frozenset[str]) -> tuple[str, Shown]:
        """Return the address of an element with a shape of at least some axes, and its index."""
        at = self.index(index)
        wanted = at.axes | over
        text = at.text
        if wanted - at.axes:
            text = self.spread(at, wanted)
        name = self._arguments[buffer]
        return (name if text == "0" else f"{name} + {_summand(text)}"), Shown(text, wanted)

    def spread(self, shown: Shown, axes: frozenset[str]) -> str:
        """Return a value broadcast to the shape of some axes."""
        shape = self.shape(axes)
        if shown.text.lstrip("-").isdigit():
            return f"tl.full({shape}, {shown.text}, {self.index_type})"
        return f"tl.broadcast_to({shown.text}, {shape})"

    def shape(self, axes: Iterable[str]) -> str:
        """Return the shape of a block over some axes."""
        sizes = ["1"] * self.layout.rank
        chosen = set(axes)
        for axis in self.layout.axes:
            if axis.name in chosen:
                sizes[axis.place] = axis.block_name
        return f"[{', '.join(sizes)}]"

    def index(self, index: Index) -> Shown:
        """Return an index expression."""
        index = self._of_blocks(index)
        for value in indirect(index):
            self.value(value)
        return Shown(self.printer.text(index), *self._dependence(index))

    @property
    def index_type(self) -> str:
        return "tl.int64" if self.layout.wide else "tl.int32"

    def forget(self, buffer: str) -> None:
        """Forget what was loaded from a buffer, which has been written."""
        for lines in (self.top, self.loop):
            if lines is not None:
                stale = [key for key, shown in lines.known.items() if buffer in shown.buffers]
                for key in stale:
                    del lines.known[key]

    def check(self, what: str, buffer: str, at: Shown, mask: Shown) -> None:
        """In a debug build, assert that an access is within its buffer."""
        if not self._debug or not self._is_known(self._extents.get(buffer)):
            return
        extent = self.sizes.text(self._extents[buffer])
        inside = f"({at.text} >= 0) & ({at.text} < {extent})"
        if mask.text:
            inside = f"({inside}) | ~({mask.text})"
        message = f"{self._debug}: {what} of {self.origin} reaches outside of {buffer}"
        self.line(f'tl.device_assert({inside}, "{message}")', at.axes | mask.axes)

    def _is_known(self, size: Index | None) -> bool:
        """Return whether a kernel is given all symbols of a size."""
        if size is None:
            return False
        return all(each.name in self.sizes.symbols for each in symbols_of([size]))

    def _order(self, value: Value) -> list[Value]:
        """Return what must be printed for a value, operands first, but nothing of a guarded one."""
        found: list[Value] = []
        seen: set[int] = set()
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            each, done = stack.pop()
            if done:
                found.append(each)
            elif id(each) not in seen and self._known(each) is None:
                seen.add(id(each))
                stack.append((each, True))
                stack.extend((part, False) for part in reversed(self._parts(each)))
        return found

    def _parts(self, value: Value) -> Sequence[Value]:
        """Return what is printed before a value."""
        if isinstance(value, Guarded):
            return ()
        special = operands_of_form(value, exact=self._exact)
        return operands(value) if special is None else special

    def _print(self, value: Value) -> None:
        if self._known(value) is not None:
            return
        shown = self._printed(value)
        self._lines(shown.axes).known[self._key(value)] = shown

    def _printed(self, value: Value) -> Shown:
        if isinstance(value, Const):
            return Shown(const_text(value))
        if isinstance(value, Local):
            return self.locals[value.name]
        if isinstance(value, Load):
            return self._load(value)
        if isinstance(value, Position):
            return self._position(value)
        if isinstance(value, Guarded):
            return self._guarded(value)
        return self._op(value)

    def _op(self, op: Op) -> Shown:
        folded = constant_of(op)
        if folded is not None:
            return Shown(const_text(folded))
        special = special_form(self, op)
        if special is not None:
            return special
        args = [self.shown(arg) for arg in op.args]
        numbers = [constant_of(arg) for arg in op.args]
        bare = op.name in INFIX and None in numbers
        texts = [
            arg.text if number is None else const_text(number, bare=bare)
            for arg, number in zip(args, numbers, strict=True)
        ]
        axes, buffers = union(args)
        text = op_text(op, texts)
        if self.is_loose(op) and (is_logistic(op) or self._is_of_row(op, *args)):
            text = f"{texts[0]} / {texts[1]}"  # 2 ULP
        return self.variable(text, axes, op.origin, buffers=buffers)

    def _is_of_row(self, op: Op, *args: Shown) -> bool:
        """Return whether every element of a row is divided by one number."""
        if op.name != "div":
            return False
        dividend, divisor = args
        rows = {axis.name for axis in self.layout.grid}
        return bool(dividend.axes - rows) and not divisor.axes - rows

    def number(self, value: Value) -> int:
        """Return a number that is the same for values that are the same."""
        return self._numbers.of(value)

    def recall(self, key: object) -> Shown | None:
        """Return what was kept under a key, if it still stands."""
        for lines in (self.loop, self.top):
            if lines is not None and key in lines.known:
                return lines.known[key]
        return None

    def keep(self, key: object, shown: Shown) -> Shown:
        """Keep a printed value under a key, as long as its variable exists."""
        self._lines(shown.axes).known[key] = shown
        return shown

    def number_axis(self, name: str, axis: Axis) -> None:
        """Let a variable of index expressions stand for an axis."""
        self._axes[name] = axis

    def is_loose(self, value: Value) -> bool:
        """Return whether a value may be rounded in another way."""
        return not self._exact and value.dtype == torch.float32

    def _load(self, load: Load) -> Shown:
        runs = None if self._guard.text or self._debug else in_runs(self.layout, load.index)
        if runs is not None:
            return self._load_runs(load, runs)
        return self._load_each(load)

    def _load_runs(self, load: Load, runs: Runs) -> Shown:
        """Load one element for each run of positions that read the same, and spread it."""
        axis, key = runs.axis, ("runs", runs)
        parts = self.recall(key) or self.keep(
            key, self.variable(f"tl.arange(0, {runs.count})[None, :]", frozenset(), prefix="i")
        )
        each = self._load_each(replace(load, index=runs.index(load.index, parts.text)))
        rows = self.layout.grid[-1].block_name if "x" in each.axes else "1"
        spread = f"tl.broadcast_to({each.text}[:, :, None], [{rows}, {runs.count}, {runs.length}])"
        text = f"tl.reshape({spread}, [{rows}, {axis.block_name}])"
        return self.variable(text, each.axes | {axis.name}, buffers=each.buffers)

    def _load_each(self, load: Load) -> Shown:
        at_axes, buffers = self._dependence(self._of_blocks(load.index))
        mask = self.mask((a for a in self._axes.values() if a.name in at_axes), self._guard)
        pointer, at = self.pointer(load.buffer, load.index, mask.axes)
        self.check("a load", load.buffer, at, mask)
        policy = self.eviction.get(load.buffer, "")
        extra = f", mask={mask.text}" if mask.text else ""
        extra += f', eviction_policy="{policy}"' if policy else ""
        return self.variable(f"tl.load({pointer}{extra})", at.axes, buffers=buffers | {load.buffer})

    def _position(self, position: Position) -> Shown:
        number = constant_of(position)
        if number is not None:
            return Shown(const_text(number))
        at = self.index(position.index)
        return self.variable(
            f"({at.text}).to({TYPES[position.dtype]})", at.axes, buffers=at.buffers
        )

    def _guarded(self, value: Guarded) -> Shown:
        condition, other = self.shown(value.condition), self.shown(value.other)
        before = self._guard
        both = self.mask((), before, condition)
        self._guard = both if not before.text else self.variable(both.text, both.axes)
        inner = self.value(value.value)
        self._guard = before
        axes, buffers = union((condition, inner, other))
        text = f"tl.where({condition.text}, {inner.text}, {other.text})"
        return self.variable(text, axes, value.origin, buffers=buffers)

    def _indirect(self, atom: Indirect) -> str:
        value = indirect_value(atom)
        shown = self.value(value)
        if self._debug and self._is_known(atom.size):
            self._check_position(atom, shown)
        return shown.text if self.layout.wide else self._narrow(value, shown)

    def _narrow(self, value: Value, shown: Shown) -> str:
        """Return a position that the kernel reads in 32 bits."""
        key = "narrow", shown.text
        if value.dtype.itemsize <= 4 or isinstance(value, Const):
            return shown.text
        found = self.recall(key)
        if found is None:
            text = f"{shown.text}.to(tl.int32)"
            found = self.keep(key, self.variable(text, shown.axes, buffers=shown.buffers))
        return found.text

    def _check_position(self, atom: Indirect, shown: Shown) -> None:
        size = self.sizes.text(atom.size)
        axes = (axis for axis in self._axes.values() if axis.name in shown.axes)
        mask = self.mask(axes, self._guard)
        inside = f"({shown.text} >= 0) & ({shown.text} < {size})"
        if mask.text:
            inside = f"({inside}) | ~({mask.text})"
        message = f"{self._debug}: a position of {self.origin} is outside of its dimension"
        self.line(f'tl.device_assert({inside}, "{message}")', shown.axes | mask.axes)

    def _define(self, text: str, index: Index) -> str:
        axes, buffers = self._dependence(index)
        key = "index", text
        found = self.recall(key)
        if found is None:
            found = self.keep(key, self.variable(text, axes, buffers=buffers, prefix="i"))
        return found.text

    def _of_blocks(self, index: Index) -> Index:
        """Return an index with quotients that are one number for a whole block as such.

        `xindex // 1024` is `xstart // 1024` if blocks begin at multiples of their length, and that
        divides 1024: what is read there (the scale of a channel) is read once, and is no block.
        """
        if not any(isinstance(atom, Var) and atom.name in self._starts for atom in index.atoms):
            return index
        return index.replace(self._of_block)

    def _of_block(self, atom: Atom) -> Index | None:
        if not isinstance(atom, Quotient):
            return None
        axis = next((a for a in self._starts.values() if atom.value == a.number), None)
        divisor = atom.divisor.number
        if axis is None or divisor is None or divisor % axis.block:
            return None
        return of_atom(Var(axis.start, axis.numel)) // divisor

    def _dependence(self, index: Index) -> tuple[frozenset[str], frozenset[str]]:
        """Return the axes on which an index depends, and what is loaded for it."""
        names = [atom.name for atom in index.atoms if isinstance(atom, Var)]
        own = [self._axes[name] for name in names if name in self._axes]  # no start of a block
        self.used.update(names)
        inner = [self.shown(value) for value in indirect(index)]
        axes, buffers = union(inner)
        return axes | {axis.name for axis in own}, buffers

    def shown(self, value: Value) -> Shown:
        found = self._known(value)
        return found if found is not None else self.value(value)

    def _known(self, value: Value) -> Shown | None:
        number = self._numbers.of(value)
        found = self.recall((number, self._guard.text))
        return found if found is not None else self.recall((number, ""))

    def _key(self, value: Value) -> object:
        return self._numbers.of(value), self._guard.text

    def _lines(self, axes: frozenset[str]) -> Lines:
        if self.loop is not None and self.looped is not None and self.looped.name in axes:
            return self.loop
        return self.top


def _summand(text: str) -> str:
    return f"({text})" if " " in text and not text.endswith(")") else text
