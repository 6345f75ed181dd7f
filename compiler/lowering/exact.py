"""The `exact` mode: kernels of nothing but what gives the bits of eager.

Exact are operations whose result IEEE arithmetic or integers fix (`vocabulary.EXACT`), in the type
that eager computes in, rounded where eager rounds. Sums and products of floats depend on the order,
and functions such as exp on the library, so these stay calls of the library.
"""

from collections.abc import Iterable

from ctk.compiler.lowering.ir import Kernel, Op, Reduce, Scan, Statement, Step, Store
from ctk.compiler.lowering.sizes import NotLowered
from ctk.compiler.lowering.vocabulary import EXACT
from ctk.compiler.lowering.walk import walk

_ORDERED = frozenset(("sum", "prod", "mean_m2", "logsumexp"))


def require_exact(steps: Iterable[Step]) -> None:
    """Raise `NotLowered` if a kernel may have other bits than eager."""
    for step in steps:
        if isinstance(step, Kernel):
            for statement in step.statements:
                _require(statement)


def _require(statement: Statement) -> None:
    if isinstance(statement, (Reduce, Scan)):
        floating = statement.value.dtype.is_floating_point
        if floating and statement.kind in _ORDERED:
            raise NotLowered(f"the bits of a {statement.kind} depend on the order")
    if isinstance(statement, Store) and statement.mode in ("add", "prod"):
        _require_integers(statement)
    for value in walk(statement):
        if isinstance(value, Op) and value.name not in EXACT:
            raise NotLowered(f"the bits of {value.name} are not fixed by IEEE arithmetic")


def _require_integers(store: Store) -> None:
    if store.value.dtype.is_floating_point:
        raise NotLowered("the bits of what meets at one place depend on the order")
