"""Loads that read one element for a run of neighbouring positions of a row.

    weight[rindex // 1024]    for a row of 8192 positions: 8 elements, each for 1024 positions

Loaded position by position, each element is read 1024 times, in a layout of its own, and converted
to the layout of the row through shared memory. Loaded once and spread, a thread reads the elements
of its own positions.
"""

from dataclasses import dataclass

from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.sizes.index import Atom, Index, Quotient, Var, as_index, of_atom

_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Runs:
    """An axis that is one full block, in runs of positions that read the same."""

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
    if length is None or length < _SHORTEST or axis.block % length:
        return None
    return length if length & (length - 1) == 0 else None
