"""The `exact` mode: kernels only of operations with the bits of eager.

Rules, for the kernels of one node of the graph:
    1. operations are those whose result IEEE arithmetic or integers fix (`vocabulary.EXACT`)
    2. no sums, products and extremes of many floats, and no scatters of them: the order counts
    3. a product is in no sum: torch's own compiler may have made one rounding of two (`fma`)
    4. with 16 bits there is one rounding: operators differ in whether they round in between
    5. no kernel rounds a value that another kernel of the node has rounded
All other nodes are library calls. Between nodes eager rounds, and so do kernels in this mode.
"""

from collections.abc import Iterable, Sequence

from ctk.compiler.lowering.arrays import compute_type
from ctk.compiler.lowering.ir import Kernel, Op, Reduce, Scan, Statement, Step, Store, Value
from ctk.compiler.lowering.vocabulary import EXACT
from ctk.compiler.lowering.walk import reads, walk, writes
from ctk.compiler.sizes.size_guards import NotLowered

_ORDERED = frozenset(("sum", "prod", "mean_m2", "logsumexp", "max", "min"))
"""Reductions that depend on the order of floats; of extremes the sign of a zero does."""

_ROUNDING = frozenset(("add", "sub", "mul", "div"))


def require_exact(steps: Iterable[Step]) -> None:
    """Raise `NotLowered` if the kernels of a node may have other bits than eager."""
    rounded: set[str] = set()
    for step in steps:
        if not isinstance(step, Kernel):
            continue
        for statement in step.statements:
            _require(statement)
        values = walk(*step.statements)
        roundings = [op for op in values if isinstance(op, Op) and _is_rounding(op)]
        _require_roundings(roundings, values)
        if roundings and not rounded.isdisjoint(reads(step)):
            raise NotLowered("eager may round between its parts")
        if roundings:
            rounded |= writes(step)


def _require(statement: Statement) -> None:
    floating = statement.value.dtype.is_floating_point
    if floating and isinstance(statement, (Reduce, Scan)) and statement.kind in _ORDERED:
        raise NotLowered(f"the bits of a {statement.kind} depend on the order")
    if floating and isinstance(statement, Store) and statement.mode != "set":
        raise NotLowered("the bits of floats that are combined at one place depend on the order")
    for value in walk(statement):
        if isinstance(value, Op) and value.name not in EXACT:
            raise NotLowered(f"the bits of {value.name} are not fixed by IEEE arithmetic")


def _require_roundings(roundings: Sequence[Op], values: Sequence[Value]) -> None:
    """Raise `NotLowered` if eager may round more or less often."""
    if len(roundings) > 1 and any(compute_type(value.dtype) != value.dtype for value in values):
        raise NotLowered("eager may round to 16 bits in between")
    sums = [op for op in roundings if op.name in ("add", "sub")]
    if any(_is_product(operand) for op in sums for operand in op.args):
        raise NotLowered("eager may round a product and a sum at once")


def _is_rounding(op: Op) -> bool:
    return op.name in _ROUNDING and op.dtype.is_floating_point


def _is_product(value: Value) -> bool:
    while isinstance(value, Op) and value.name == "neg":
        (value,) = value.args
    return isinstance(value, Op) and value.name == "mul"
