"""Positions of a block: index expressions, masks and addresses, over the axes of a layout.

Masks stand on loads and stores only: positions beyond the end of an axis are computed like any
other, and a reduction puts its neutral element there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.codegen.triton.printed_values import BodyCode, Printed, union
from ctk.compiler.lowering.ir import Const, Value
from ctk.compiler.lowering.walk import indirect
from ctk.compiler.sizes.index import (
    Atom,
    Extreme,
    Index,
    Indirect,
    Quotient,
    Symbol,
    Var,
    is_nonnegative,
    of_atom,
)
from ctk.compiler.sizes.size_guards import symbols_of


class Positions:
    """Prints index expressions, as blocks over the axes on which they depend.

    Attributes:
        used: The variables of axes that the code mentions: `xindex`, `xmask`, `xstart`, ...
    """

    def __init__(
        self,
        layout: Layout,
        code: BodyCode,
        arguments: Mapping[str, str],
        symbols: dict[str, str],
        *,
        value: Callable[[Value], Printed],
        indirect: Callable[[Indirect], str],
    ) -> None:
        self.layout = layout
        self.used: set[str] = set()
        self._code = code
        self._value = value
        self._arguments = arguments
        self._axes = {axis.index: axis for axis in layout.axes}
        self._starts = {axis.index: axis for axis in layout.grid if axis.block > 1}
        self._symbols = symbols
        self._indices = _IndexPrinter(indirect, self._define, symbols)
        self._sizes = _IndexPrinter(indirect, lambda text, _: f"({text})", symbols)

    def index(self, index: Index) -> Printed:
        """Return an index expression."""
        index = self._by_block(index)
        for value in indirect(index):
            self._value(value)
        return Printed(self._indices.text(index), *self._dependence(index))

    def size(self, size: Index) -> str:
        """Return a size as one expression, without variables of its own."""
        return self._sizes.text(size)

    @property
    def index_type(self) -> str:
        return "tl.int64" if self.layout.wide else "tl.int32"

    def mask(self, axes: Iterable[Axis], *extra: Printed) -> Printed:
        """Return the mask of some axes and conditions; its text is empty if none is needed."""
        masked = [axis for axis in axes if not axis.whole]
        self.used.update(axis.mask for axis in masked)
        more = [each for each in extra if each.text]
        names = [axis.mask for axis in masked] + [each.text for each in more]
        of = frozenset(axis.name for axis in masked).union(*(each.axes for each in more))
        return Printed(" & ".join(names), of)

    def mask_of(self, index: Index, guard: Printed) -> tuple[Printed, frozenset[str]]:
        """Return the mask of a load at an index, and the buffers that its index reads."""
        axes, buffers = self._dependence(self._by_block(index))
        return self.mask_over(axes, guard), buffers

    def mask_over(self, names: frozenset[str], guard: Printed) -> Printed:
        """Return the mask of the axes of these names, and of a condition."""
        return self.mask((axis for axis in self._axes.values() if axis.name in names), guard)

    def pointer(self, buffer: str, index: Index, over: frozenset[str]) -> tuple[str, Printed]:
        """Return the address of an element with a shape of at least some axes, and its index."""
        at = self.index(index)
        axes = at.axes | over
        text = at.text if axes == at.axes else self._spread(at, axes)
        name = self._arguments[buffer]
        return (name if text == "0" else f"{name} + {_summand(text)}"), Printed(text, axes)

    def address(self, buffer: str) -> str:
        """Return the argument that is a buffer's address."""
        return self._arguments[buffer]

    def shape(self, axes: Iterable[str]) -> str:
        """Return the shape of a block over some axes."""
        sizes = ["1"] * self.layout.rank
        chosen = set(axes)
        for axis in self.layout.axes:
            if axis.name in chosen:
                sizes[axis.place] = axis.block_name
        return f"[{', '.join(sizes)}]"

    def add_axis(self, name: str, axis: Axis) -> None:
        """Let a variable of index expressions stand for an axis."""
        self._axes[name] = axis

    def narrow(self, value: Value, shown: Printed) -> str:
        """Return a position that the kernel reads, in the type of positions."""
        if self.layout.wide or value.dtype.itemsize <= 4 or isinstance(value, Const):
            return shown.text
        key = "narrow", shown.text
        narrow = self._code.recall(key)
        if narrow is None:
            text = f"{shown.text}.to(tl.int32)"
            narrow = self._code.keep(
                key, self._code.variable(text, shown.axes, buffers=shown.buffers)
            )
        return narrow.text

    def is_known(self, size: Index | None) -> bool:
        """Return whether the kernel is given all symbols of a size."""
        return size is not None and all(s.name in self._symbols for s in symbols_of([size]))

    def require_inside(self, at: Printed, size: Index, mask: Printed, message: str) -> None:
        """Assert on the device that positions are within a size where the mask holds."""
        inside = f"({at.text} >= 0) & ({at.text} < {self.size(size)})"
        if mask.text:
            inside = f"({inside}) | ~({mask.text})"
        self._code.line(f'tl.device_assert({inside}, "{message}")', at.axes | mask.axes)

    def _spread(self, shown: Printed, axes: frozenset[str]) -> str:
        shape = self.shape(axes)
        if shown.text.lstrip("-").isdigit():
            return f"tl.full({shape}, {shown.text}, {self.index_type})"
        return f"tl.broadcast_to({shown.text}, {shape})"

    def _define(self, text: str, index: Index) -> str:
        axes, buffers = self._dependence(index)
        key = "index", text
        variable = self._code.recall(key)
        if variable is None:
            variable = self._code.keep(
                key, self._code.variable(text, axes, buffers=buffers, prefix="i")
            )
        return variable.text

    def _by_block(self, index: Index) -> Index:
        """Return an index with each quotient that is constant over a block computed once for it.

        `xindex // 1024` is `xstart // 1024` if blocks begin at multiples of their length, and that
        divides 1024: an element read there (the scale of a channel) is read once, as a scalar.
        """
        if not any(isinstance(atom, Var) and atom.name in self._starts for atom in index.atoms):
            return index
        return index.replace(self._quotient_of_start)

    def _quotient_of_start(self, atom: Atom) -> Index | None:
        if not isinstance(atom, Quotient):
            return None
        axis = next((a for a in self._starts.values() if atom.value == a.number), None)
        divisor = atom.divisor.number
        if axis is None or divisor is None or divisor % axis.block:
            return None
        return of_atom(Var(axis.start, axis.numel)) // divisor

    def _dependence(self, index: Index) -> tuple[frozenset[str], frozenset[str]]:
        names = [atom.name for atom in index.atoms if isinstance(atom, Var)]
        own = [self._axes[name] for name in names if name in self._axes]  # no start of a block
        self.used.update(names)
        axes, buffers = union(map(self._value, indirect(index)))
        return axes | {axis.name for axis in own}, buffers


def _summand(text: str) -> str:
    return f"({text})" if " " in text and not text.endswith(")") else text


@dataclass(slots=True)
class _IndexPrinter:
    """Prints index expressions; quotients and remainders become variables of their own.

    `//` and `%` of Triton are those of C, so values that may be negative are divided by other
    means.
    """

    indirect: Callable[[Indirect], str]
    define: Callable[[str, Index], str]
    symbols: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, index: Index) -> str:
        """Return an index expression as a sum."""
        if not index.terms:
            return "0"
        text = ""
        for monomial, factor in index.terms:
            sign = "-" if factor < 0 else "+"
            parts = [self._atom(atom) for atom in monomial]
            if abs(factor) != 1 or not parts:
                parts.append(str(abs(factor)))
            product = " * ".join(parts)
            if text:
                text += f" {sign} {product}"
            else:
                text = f"-{product}" if sign == "-" else product
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.symbols.get(atom.name, atom.name)
        if isinstance(atom, Var):
            return atom.name
        if isinstance(atom, Indirect):
            return self.indirect(atom)
        if isinstance(atom, Extreme):
            name = "maximum" if atom.kind == "max" else "minimum"
            return f"tl.{name}({self.text(atom.left)}, {self.text(atom.right)})"
        value, divisor = self._factor(atom.value), self._factor(atom.divisor)
        text = f"{value} % {divisor}"
        is_quotient = isinstance(atom, Quotient)
        if not is_nonnegative(atom.value):
            text = f"({text} + {divisor}) % {divisor}"
            text = f"({value} - {text}) // {divisor}" if is_quotient else text
        elif is_quotient:
            text = f"{value} // {divisor}"
        return self.define(text, Index((((atom,), 1),)))

    def _factor(self, index: Index) -> str:
        text = self.text(index)
        return f"({text})" if " " in text else text
