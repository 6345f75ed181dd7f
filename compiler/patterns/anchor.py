"""The anchor of a pattern: a chain of operators that every match has; the cheapest check.

    view(bmm(view(softmax(...)), v))   has the chain   view, bmm, view, softmax

The chain goes from the root of the pattern along first operands, up to `LENGTH` calls; it stops
where operands may be swapped, because the call may then stand at either place.
"""

from torch.fx import Node

from ctk.compiler.patterns.expression import Op, Reshape
from ctk.compiler.patterns.solve import CLONE, UNSAFE_VIEW

LENGTH = 4

Chain = tuple[tuple[object, ...], ...]
"""The operators that may stand at each place, the root first."""


def chain_of(root: Op) -> Chain:
    """Return the operators of a pattern along first operands."""
    found: list[tuple[object, ...]] = []
    part: object = root
    while isinstance(part, Op) and len(found) < LENGTH:
        is_reshape = isinstance(part, Reshape)
        found.append((part.target, UNSAFE_VIEW) if is_reshape else (part.target,))
        is_end = part.swaps == (0, 1) or not part.operands
        part = None if is_end else part.operands[0]
    return tuple(found)


def has_chain(node: Node, chain: Chain) -> bool:
    """Return whether the calls along first operands are those of a chain.

    A copy before an `_unsafe_view` is passed over, as in a `Reshape`; an operand that is given by
    name is not looked at.
    """
    value: object = node
    for targets in chain:
        if not isinstance(value, Node) or value.target not in targets:
            return False
        if not value.args:
            return True
        is_copied = value.target is UNSAFE_VIEW
        value = value.args[0]
        if is_copied and isinstance(value, Node) and value.target is CLONE:
            value = value.args[0]
    return True
