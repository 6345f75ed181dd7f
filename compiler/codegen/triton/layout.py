"""How the loops of a kernel become blocks: the axes of a program, and the sizes of its blocks.

    flat   no reduction: the outer loops as one axis `x`
    tile   no reduction, one buffer is contiguous along another loop than the rest (a transpose):
           two axes, `y` and `x`, so that both sides are read and written in whole cache lines
    rows   sweeps with inner loops: `x` for the outer loops, `r` for the inner ones. A row that fits
           is one block, read once and kept in registers; a longer one is walked in a loop

An axis is one number: its loops are quotients and remainders of it, and index expressions over
loops that are contiguous in memory simplify back to the number itself.

Source: the axes are those of Inductor's Triton kernels (`torch/_inductor/codegen/triton.py`). Here
a layout is a value, and each layout has its own source.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ctk.compiler.lowering.ir import Kernel, Load, Store, Sweep
from ctk.compiler.lowering.layout import iteration
from ctk.compiler.lowering.walk import walk
from ctk.compiler.sizes.index import Index, Var, of_atom, product


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the blocks of a kernel; the last of its loops is the innermost.

    Attributes:
        name: `x`, `y`; `r` and `r1`, `r2`, ... for the inner loops of sweeps.
        block: How many of its positions a program has at once; a power of two.
        place: Which dimension of a block it is.
        looped: A program walks over all of it, a block at a time.
    """

    name: str
    loops: tuple[Var, ...]
    block: int
    place: int
    looped: bool = False

    @property
    def numel(self) -> Index:
        return product([loop.size for loop in self.loops])

    @property
    def whole(self) -> bool:
        """Whether every block is full, so that nothing needs a mask."""
        number = self.numel.number
        return number is not None and number > 0 and number % self.block == 0

    @property
    def index(self) -> str:
        return f"{self.name}index"

    @property
    def mask(self) -> str:
        return f"{self.name}mask"

    @property
    def start(self) -> str:
        """The variable of a block's first position."""
        return f"{self.name}start"

    @property
    def number(self) -> Index:
        """The position as an expression."""
        return of_atom(Var(self.index, self.numel))

    @property
    def block_name(self) -> str:
        return f"{self.name.upper()}BLOCK"

    def variables(self) -> dict[Var, Index]:
        """Return each loop as an expression of the axis."""
        return iteration(self.number, self.loops)


@dataclass(frozen=True, slots=True)
class Layout:
    """The blocks of a kernel: with the kernel, they determine its source.

    Attributes:
        grid: The axes over which programs are spread, `x` last.
        inner: For each sweep, the axis of its inner loops; None for one without.
        wide: Positions need 64 bits.
        stages: How many iterations of a loop are under way at once.
    """

    grid: tuple[Axis, ...]
    inner: tuple[Axis | None, ...]
    rank: int
    warps: int = 4
    wide: bool = False
    stages: int = 3

    @property
    def axes(self) -> tuple[Axis, ...]:
        inner = dict.fromkeys(axis for axis in self.inner if axis is not None)
        return (*self.grid, *inner)


def accesses_of(kernel: Kernel) -> list[Index]:
    """Return the index expressions with which a kernel touches memory."""
    indexes: list[Index] = []
    for statement in kernel.statements:
        indexes += [value.index for value in walk(statement) if isinstance(value, Load)]
        if isinstance(statement, Store):
            indexes.append(statement.index)
    return indexes


def inner_loops(sweeps: Sequence[Sweep]) -> list[tuple[Var, ...]]:
    """Return the different loop nests of sweeps, in order of appearance."""
    return list(dict.fromkeys(sweep.inner for sweep in sweeps if sweep.inner))
