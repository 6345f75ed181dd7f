"""Choose how a kernel runs: rows or columns, on how many threads, in how many chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ctk.compiler.codegen.c.loops import cost_along, ordered, scans_apart
from ctk.compiler.lowering.ir import Kernel, Load, Op, Reduce, Scan, Sweep, Value
from ctk.compiler.lowering.vocabulary import DIVISION, FUNCTIONS
from ctk.compiler.lowering.walk import walk
from ctk.compiler.sizes.index import ONE, ZERO, Index, Var, product

GRAIN = 16384
"""A loop nest of fewer simple operations than this runs on one thread."""

WIDTHS = (256, 128, 64)
"""How many columns may be computed side by side."""

SHORT = 256
"""Rows of fewer numbers than this are columns instead, where both walk memory in equal steps."""

CHUNKS = 32
"""Into how many chunks a reduction is cut at most, if it has too few rows for the threads."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a kernel runs.

    Attributes:
        width: Columns that are computed side by side, of the last outer loop; 0: row by row.
        chunks: Into how many parts each reduction is cut; 1: the outer loops are shared among
            threads instead.
    """

    width: int
    chunks: int


def laid_out(kernel: Kernel) -> Kernel:
    """Return a kernel with its loops in the order in which they run."""
    kernel = ordered(scans_apart(kernel))
    column = _column(kernel)
    if column is None or column == kernel.outer[-1]:
        return kernel
    return replace(kernel, outer=(*(each for each in kernel.outer if each != column), column))


def plan_of(kernel: Kernel) -> Plan:
    """Return how a kernel runs whose loops are laid out and joined."""
    column = _column(kernel)
    is_column = column is not None and column == kernel.outer[-1]
    width = _width(kernel.outer[-1].size.number) if is_column else 0
    return Plan(width, _chunks(kernel, width))


def is_pointwise(kernel: Kernel) -> bool:
    """Return whether no sweep has loops of its own."""
    return all(not sweep.inner for sweep in kernel.sweeps)


def work_of(kernel: Kernel) -> Index:
    """Return about how many simple operations a kernel makes."""
    outer = product([loop.size for loop in kernel.outer])
    return outer * sum(map(_work, kernel.sweeps), ZERO) if kernel.sweeps else ONE


def _work(sweep: Sweep) -> Index:
    count = product([loop.size for loop in sweep.inner])
    return count * max(
        sum(cost_of(v) for statement in sweep.statements for v in walk(statement)), 1
    )


def cost_of(value: Value) -> int:
    """Return about how long an operation takes, as a multiple of an addition."""
    if isinstance(value, Load):
        return 1
    return _COSTS.get(value.name, 1) if isinstance(value, Op) else 0


_COSTS: Mapping[str, int] = {
    **dict.fromkeys(FUNCTIONS, 16),
    **dict.fromkeys((*DIVISION, "sqrt", "rsqrt"), 4),
    "philox": 40,
}


def _column(kernel: Kernel) -> Var | None:
    """Return the outer loop whose iterations are neighbours in memory where rows' are not."""
    sweeps = [sweep for sweep in kernel.sweeps if sweep.inner]
    if not sweeps:
        return None
    along_rows = sum(cost_along(sweep.inner[-1], sweep.statements) for sweep in sweeps)
    costs = {
        loop: sum(cost_along(loop, sweep.statements) for sweep in sweeps)
        for loop in kernel.outer
        if loop.size.number is None or loop.size.number >= 8
    }
    best = min(reversed(costs), key=lambda loop: costs[loop] or 64, default=None)
    if best is None or not 0 < costs[best] <= along_rows:
        return None
    return best if costs[best] < along_rows or all(map(_is_short, sweeps)) else None


def _is_short(sweep: Sweep) -> bool:
    return (product([loop.size for loop in sweep.inner]).number or SHORT) < SHORT


def _width(columns: int | None) -> int:
    if columns is None:
        return WIDTHS[1]
    return next((width for width in WIDTHS if columns >= 4 * width), WIDTHS[-1])


def _chunks(kernel: Kernel, width: int) -> int:
    if any(isinstance(statement, Scan) for statement in kernel.statements):
        return 1
    rows = product([loop.size for loop in kernel.outer]).number
    if rows is None or not any(isinstance(statement, Reduce) for statement in kernel.statements):
        return 1
    tasks = rows if not width else -(-rows // width)
    longest = max((product([v.size for v in s.inner]).number or 1 << 30) for s in kernel.sweeps)
    size = longest * (width or 1)
    if tasks >= 4 or size < 2 * GRAIN:
        return 1
    return max(2, min(CHUNKS, size // GRAIN))
