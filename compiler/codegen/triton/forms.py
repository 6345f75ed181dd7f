"""Forms of values that are printed in another way than operation by operation."""

from dataclasses import dataclass

import torch

from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.lowering.ir import Const, Op, Position, Value
from ctk.compiler.lowering.vocabulary import COMPARISON
from ctk.compiler.lowering.walk import operands
from ctk.compiler.sizes.index import Atom, Index, Quotient, Var, as_index, of_atom

_FOLDED = (torch.float32, torch.float64)

_SHORTEST_RUN = 8


def constant_of(value: Value) -> Const | None:
    """Return a value as a number if it is one: a size, perhaps converted."""
    if isinstance(value, Const):
        return value
    if isinstance(value, Position) and value.index.number is not None:
        return Const(value.index.number, value.dtype)
    if isinstance(value, Op) and value.name == "cast" and value.dtype in _FOLDED:
        inner = constant_of(value.args[0])
        if inner is not None and not inner.dtype.is_floating_point:
            return Const(float(inner.value), value.dtype)
    return None


def compares_positions(value: Value) -> bool:
    """Return whether a value is a comparison of positions, which need not be in 64 bits."""
    if not isinstance(value, Op) or value.name not in COMPARISON:
        return False
    return all(isinstance(arg, Position) for arg in value.args)


def one_plus(value: Value) -> Op | None:
    """Return the curve of `erf(x) + 1` or `tanh(x) + 1`."""
    return _plus_one(value, ("erf", "tanh"))


def is_logistic(value: Op) -> bool:
    """Return whether a value is `x / (1 + exp(y))`, whose divisor is not exact anyway."""
    return value.name == "div" and _plus_one(value.args[1], ("exp",)) is not None


def _plus_one(value: Value, names: tuple[str, ...]) -> Op | None:
    """Return the operation of one of these names to which a sum adds 1, on either side."""
    if not isinstance(value, Op) or value.name != "add":
        return None
    for curve, other in (value.args, value.args[::-1]):
        number = constant_of(other)
        if isinstance(curve, Op) and curve.name in names:
            return curve if number is not None and number.value == 1 else None
    return None


def word_as_float(value: Value) -> tuple[Op, int] | None:
    """Return the philox and the shift of a word of 32 bits that becomes a float.

    Shifted by one and more it is a positive integer of 32 bits, which converts quickly.
    """
    if not isinstance(value, Op) or value.name != "cast" or value.dtype != torch.float32:
        return None
    shifted = value.args[0]
    if not isinstance(shifted, Op) or shifted.name != "shr":
        return None
    word, by = shifted.args
    number = constant_of(by)
    if not isinstance(word, Op) or word.name != "philox" or number is None:
        return None
    return (word, int(number.value)) if 1 <= number.value < 32 else None


def counter_of_fours(word: Op, name: str) -> tuple[Index, Atom] | None:
    """Return the counter of a philox whose lane runs with an axis, and the quarter of the axis.

    `philox(seed, a + x // 4, x % 4)`, and nothing else in the counter depends on `x`: then four
    neighbours share a counter.
    """
    counter, lane = word.args[1:]
    if not isinstance(counter, Position) or not isinstance(lane, Position):
        return None
    number = next((a for a in lane.index.atoms if isinstance(a, Var) and a.name == name), None)
    if number is None or lane.index != of_atom(number) % 4:
        return None
    quarter = of_atom(number) // 4
    (atom,) = quarter.terms[0][0]
    rest = counter.index - quarter
    return (counter.index, atom) if number not in rest.atoms else None


def operands_of_form(value: Value, *, exact: bool) -> tuple[Value, ...] | None:
    """Return the operands that are printed before a value of a form; None if it has none."""
    float_of = word_as_float(value)
    if float_of is not None:
        return float_of[0].args[:1]
    if isinstance(value, Op) and value.name == "philox":
        return value.args[:1]
    if compares_positions(value):
        return tuple(part for arg in operands(value) for part in operands(arg))
    curve = None if exact or value.dtype != torch.float32 else one_plus(value)
    return None if curve is None else curve.args


@dataclass(frozen=True, slots=True)
class Runs:
    """An axis that is one full block, in runs of positions that read the same element.

        weight[rindex // 1024]    for a row of 8192 positions: 8 elements, each for 1024 positions

    Loaded position by position, each element is read 1024 times, in a layout of its own, and
    converted to the layout of the row through shared memory. Loaded once and spread, a thread reads
    the elements of its own positions.
    """

    axis: Axis
    length: int

    @property
    def count(self) -> int:
        return self.axis.block // self.length

    def index(self, index: Index, name: str) -> Index:
        """Return an index with the number of the run, a variable, for its quotient."""
        number = of_atom(Var(name, as_index(self.count)))

        def change(atom: Atom) -> Index | None:
            return number if self._is_number(atom) else None

        return index.replace(change)

    def _is_number(self, atom: Atom) -> bool:
        if not isinstance(atom, Quotient):
            return False
        return atom.value == self.axis.number and atom.divisor.number == self.length


def in_runs(layout: Layout, index: Index) -> Runs | None:
    """Return the runs of a row within which an index does not change; None if there are none."""
    for axis in layout.axes[len(layout.grid) :]:
        if axis.looped or not axis.whole or axis.place != 1:
            continue
        for atom in index.atoms:
            length = _length(axis, atom)
            if length is not None:
                runs = Runs(axis, length)
                rest = runs.index(index, "")
                alone = all(not isinstance(a, Var) or a.name != axis.index for a in rest.atoms)
                return runs if alone else None
    return None


def _length(axis: Axis, atom: Atom) -> int | None:
    if not isinstance(atom, Quotient) or atom.value != axis.number:
        return None
    length = atom.divisor.number
    if length is None or length < _SHORTEST_RUN or axis.block % length:
        return None
    return length if length & (length - 1) == 0 else None
