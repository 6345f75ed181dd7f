"""The values of a kernel as lines of Triton: each once, in the loop where it belongs.

A value gets a variable `v0`, `v1`, ... of the shape of the axes on which it depends: `[XBLOCK, 1]`
for one of a row, so that it is computed once for each row, and outside of the loop over it.

Some forms of several operations are printed as one, because that takes fewer instructions:

    1 + erf(x), 1 + tanh(x)         `device.one_plus_erf`; not in exact kernels
    position < position             in 32 bits where positions are
    philox(seed, a + x // 4, x % 4) each counter once, for the four neighbours that share it
    float32(philox(...) >> n)       converted from 32 bits
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from ctk.compiler.codegen.triton.forms import (
    Runs,
    compares_positions,
    constant_of,
    counter_of_fours,
    in_runs,
    is_logistic,
    one_plus,
    operands_of_form,
    word_as_float,
)
from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.codegen.triton.ops import INFIX, TYPES, const_text, op_text
from ctk.compiler.codegen.triton.positions import Positions
from ctk.compiler.codegen.triton.printed_values import BodyCode, Printed, union
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
from ctk.compiler.lowering.walk import Numbers, operands
from ctk.compiler.sizes.index import Atom, Index, Indirect, Var, of_atom


class Body:
    """The body of a kernel while it is printed."""

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
        self.code = BodyCode()
        self.positions = Positions(
            layout, self.code, arguments, symbols, value=self.value, indirect=self._indirect
        )
        self.locals: dict[str, Printed] = {}
        self.eviction: Mapping[str, str] = {}
        self.origin = ""
        self._extents = extents
        self._debug = debug
        self._exact = exact
        self._numbers = Numbers()
        self._guard = Printed("")

    def value(self, value: Value) -> Printed:
        """Return a value, printed if it is not yet."""
        shown = self._recall(value)
        if shown is not None:
            return shown
        for part in self._order(value):
            if self._recall(part) is None:
                self.code.keep(self._key(part), self._print(part))
        shown = self._recall(value)
        assert shown is not None
        return shown

    def check(self, access: str, buffer: str, at: Printed, mask: Printed) -> None:
        """In a debug build, assert that an access ("a load") is within its buffer."""
        extent = self._extents.get(buffer)
        if not self._debug or extent is None or not self.positions.is_known(extent):
            return
        message = f"{self._debug}: {access} of {self.origin} reaches outside of {buffer}"
        self.positions.require_inside(at, extent, mask, message)

    def _order(self, value: Value) -> list[Value]:
        ordered: list[Value] = []
        seen: set[int] = set()
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            each, done = stack.pop()
            if done:
                ordered.append(each)
            elif id(each) not in seen and self._recall(each) is None:
                seen.add(id(each))
                stack.append((each, True))
                stack.extend((part, False) for part in reversed(self._parts(each)))
        return ordered

    def _parts(self, value: Value) -> Sequence[Value]:
        if isinstance(value, Guarded):
            return ()
        of_form = operands_of_form(value, exact=self._exact)
        return operands(value) if of_form is None else of_form

    def _recall(self, value: Value) -> Printed | None:
        number = self._numbers.of(value)
        shown = self.code.recall((number, self._guard.text))
        return shown if shown is not None else self.code.recall((number, ""))

    def _key(self, value: Value) -> object:
        return self._numbers.of(value), self._guard.text

    def _print(self, value: Value) -> Printed:
        if isinstance(value, Const):
            return Printed(const_text(value))
        if isinstance(value, Local):
            return self.locals[value.name]
        if isinstance(value, Load):
            return self._load(value)
        if isinstance(value, Position):
            return self._position(value)
        if isinstance(value, Guarded):
            return self._guarded(value)
        return self._op(value)

    def _load(self, load: Load) -> Printed:
        runs = None if self._guard.text or self._debug else in_runs(self.layout, load.index)
        return self._load_each(load) if runs is None else self._load_runs(load, runs)

    def _load_runs(self, load: Load, runs: Runs) -> Printed:
        """Load one element for each run of positions that read the same, and spread it."""
        axis, key = runs.axis, ("runs", runs)
        parts = self.code.recall(key) or self.code.keep(
            key,
            self.code.variable(f"tl.arange(0, {runs.count})[None, :]", frozenset(), prefix="i"),
        )
        each = self._load_each(replace(load, index=runs.index(load.index, parts.text)))
        rows = self.layout.grid[-1].block_name if "x" in each.axes else "1"
        spread = f"tl.broadcast_to({each.text}[:, :, None], [{rows}, {runs.count}, {runs.length}])"
        text = f"tl.reshape({spread}, [{rows}, {axis.block_name}])"
        return self.code.variable(text, each.axes | {axis.name}, buffers=each.buffers)

    def _load_each(self, load: Load) -> Printed:
        mask, buffers = self.positions.mask_of(load.index, self._guard)
        pointer, at = self.positions.pointer(load.buffer, load.index, mask.axes)
        self.check("a load", load.buffer, at, mask)
        policy = self.eviction.get(load.buffer, "")
        extra = f", mask={mask.text}" if mask.text else ""
        extra += f', eviction_policy="{policy}"' if policy else ""
        text = f"tl.load({pointer}{extra})"
        return self.code.variable(text, at.axes, buffers=buffers | {load.buffer})

    def _position(self, position: Position) -> Printed:
        number = constant_of(position)
        if number is not None:
            return Printed(const_text(number))
        at = self.positions.index(position.index)
        text = f"({at.text}).to({TYPES[position.dtype]})"
        return self.code.variable(text, at.axes, buffers=at.buffers)

    def _indirect(self, atom: Indirect) -> str:
        """Return a position that the kernel reads; in a debug build, assert that it is in range."""
        value = indirect_value(atom)
        shown = self.value(value)
        if self._debug and self.positions.is_known(atom.size):
            mask = self.positions.mask_over(shown.axes, self._guard)
            message = f"{self._debug}: a position of {self.origin} is outside of its dimension"
            self.positions.require_inside(shown, atom.size, mask, message)
        return self.positions.narrow(value, shown)

    def _guarded(self, value: Guarded) -> Printed:
        condition, other = self.value(value.condition), self.value(value.other)
        before = self._guard
        both = self.positions.mask((), before, condition)
        self._guard = both if not before.text else self.code.variable(both.text, both.axes)
        inner = self.value(value.value)
        self._guard = before
        axes, buffers = union((condition, inner, other))
        text = f"tl.where({condition.text}, {inner.text}, {other.text})"
        return self.code.variable(text, axes, value.origin, buffers=buffers)

    def _op(self, op: Op) -> Printed:
        folded = constant_of(op)
        if folded is not None:
            return Printed(const_text(folded))
        if compares_positions(op):
            return self._comparison(op)
        return self._curve(op) or self._random(op) or self._plain(op)

    def _plain(self, op: Op) -> Printed:
        args = [self.value(arg) for arg in op.args]
        numbers = [constant_of(arg) for arg in op.args]
        bare = op.name in INFIX and None in numbers
        texts = [
            arg.text if number is None else const_text(number, bare=bare)
            for arg, number in zip(args, numbers, strict=True)
        ]
        axes, buffers = union(args)
        text = op_text(op, texts)
        if self._is_loose(op) and (is_logistic(op) or self._is_of_row(op, *args)):
            text = f"{texts[0]} / {texts[1]}"  # 2 ULP
        return self.code.variable(text, axes, op.origin, buffers=buffers)

    def _is_of_row(self, op: Op, *args: Printed) -> bool:
        """Return whether every element of a row is divided by one number."""
        if op.name != "div":
            return False
        dividend, divisor = args
        rows = {axis.name for axis in self.layout.grid}
        return bool(dividend.axes - rows) and not divisor.axes - rows

    def _is_loose(self, value: Value) -> bool:
        return not self._exact and value.dtype == torch.float32

    def _comparison(self, op: Op) -> Printed:
        parts = [self.positions.index(arg.index) for arg in op.args if isinstance(arg, Position)]
        axes, buffers = union(parts)
        if not axes:
            parts = [replace(part, text=f"tl.full([], {part.text}, tl.int64)") for part in parts]
        text = op_text(op, [f"({each.text})" if " " in each.text else each.text for each in parts])
        return self.code.variable(text, axes, op.origin, buffers=buffers)

    def _curve(self, op: Op) -> Printed | None:
        curve = one_plus(op) if self._is_loose(op) else None
        if curve is None:
            return None
        arg = self.value(curve.args[0])
        text = f"device.one_plus_{curve.name}({arg.text})"
        return self.code.variable(text, arg.axes, op.origin, buffers=arg.buffers)

    def _random(self, op: Op) -> Printed | None:
        float_of = word_as_float(op)
        if float_of is not None:
            word = self._word(float_of[0])
            text = f"({word.text} >> {float_of[1]}).to(tl.int32).to(tl.float32)"
        elif op.name == "philox":
            word = self._word(op)
            text = f"{word.text}.to(tl.int64)"
        else:
            return None
        return self.code.variable(text, word.axes, op.origin, buffers=word.buffers)

    def _word(self, op: Op) -> Printed:
        key = "word", self._numbers.of(op)
        word = self.code.recall(key)
        if word is not None:
            return word
        seed = self.value(op.args[0])
        axis = self.layout.axes[-1]
        fours = counter_of_fours(op, axis.index) if axis.block % 4 == 0 else None
        if fours is not None:
            return self.code.keep(key, self._words_of_fours(op, seed, axis, *fours))
        parts = [seed, *map(self.value, op.args[1:])]
        axes, buffers = union(parts)
        text = f"device.philox({', '.join(part.text for part in parts)})"
        return self.code.keep(key, self.code.variable(text, axes, op.origin, buffers=buffers))

    def _words_of_fours(
        self, op: Op, seed: Printed, axis: Axis, counter: Index, quarter: Atom
    ) -> Printed:
        name = f"{axis.name}quarter"
        own = Var(name, axis.numel)
        self.positions.add_axis(name, axis)
        by_quarter = counter.replace(lambda atom: of_atom(own) if atom == quarter else None)
        at = self.positions.index(by_quarter)
        text = f"device.philox_of_fours({seed.text}, {at.text})"
        return self.code.variable(text, at.axes | seed.axes, op.origin, buffers=seed.buffers)
