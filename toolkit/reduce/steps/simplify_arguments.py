"""Leave out arguments that have defaults, and give calls simpler numbers: 1, powers of two.

Lists of values that a call reads get shorter: `cat([a, b, b])` becomes `cat([a])`. Earlier parts of
a node's value are taken: `split(x, 2)[3]` becomes `[0]`. Sizes are `shrink_dimensions`'.
"""

import operator
from collections.abc import Iterator

from torch.fx import Node

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.argument_edits import (
    DropItems,
    Key,
    SetArgument,
    UseDefaults,
    items_of,
    literals,
    may_go,
    optional,
    parameter,
)
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Proposals, Step, Subset

ARITHMETIC = frozenset((
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.lt,
    operator.gt, operator.le, operator.ge, operator.iadd, operator.isub, operator.imul,
))  # fmt: skip
"""Python's operators, which take numbers without a schema."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose defaults of computed and of literal arguments, shorter lists, simpler numbers."""
    nodes = [node for node in case.graph.graph.nodes if node.op in CALLS]
    given = [(node, key, value) for node in nodes for key, value in literals(node)]
    computed = tuple((node.name, key) for node in nodes for key in optional(node))
    written = tuple(
        (node.name, key) for node, key, value in given if value is not None and may_go(node, key)
    )
    items = tuple((n.name, i) for n in nodes if items_of(n) > 1 for i in range(items_of(n)))
    proposals: list[Proposal] = [Subset(UseDefaults, each) for each in (computed, written) if each]
    if items:
        proposals.append(Subset(DropItems, items))
    for node, key, value in given:
        if isinstance(value, (int, float)) and _is_number(node, key, value):
            proposals.extend(_simpler(node, key, value))
        if node.target is operator.getitem and type(value) is int and value > 0:
            proposals.append(_in_front(node.name, value))
    return proposals


def _in_front(name: str, place: int) -> Monotone:
    return Monotone(lambda n: SetArgument(name, 1, place, place - n), place, strongest_first=True)


def _is_number(node: Node, key: Key, value: float) -> bool:
    if isinstance(value, bool) or value != value:
        return False
    if node.target in ARITHMETIC:
        return True
    found = parameter(node, key)
    if found is None:
        return False
    return "number" in found.type or "float" in found.type or type(found.default) is float


def _simpler(node: Node, key: Key, value: float) -> Iterator[Monotone]:
    numbers = _powers(value)
    if numbers:
        name = node.name
        yield Monotone(
            lambda n: SetArgument(name, key, value, numbers[n - 1]),
            len(numbers),
            strongest_first=True,
        )


def _powers(value: float) -> list[float]:
    """Return simpler numbers of the same type and sign, from mild to strong: ..., 4, 2, 1."""
    size, sign = abs(value), -1 if value < 0 else 1
    if size == 1 or size == 0 or size > 2**62:
        return []
    if size < 1:
        return [float(sign)]
    top = int(size).bit_length()
    powers = [2**bits for bits in range(top, -1, -1) if 2**bits < size]
    return [type(value)(sign * power) for power in powers]


STEP = Step("simplify_arguments", propose, detail="arguments")
