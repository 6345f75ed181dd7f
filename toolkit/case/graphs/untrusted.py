"""What only the graph of a trusted case may do: call certain operators, hand out certain texts.

An operator counts wherever it stands: `with_effects(token, aten._print.default, "x")` calls
`aten._print`. What it does not do: what no graph may do, trusted or not (`callables`).
"""

from collections.abc import Sequence

from ctk.compiler.errors import TrustError
from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.case.formats.plain_text import quoted
from ctk.toolkit.case.graphs.callable_places import leaves
from ctk.toolkit.case.graphs.callables import target_to_name
from ctk.toolkit.case.graphs.raw_memory import why_refused
from ctk.toolkit.case.graphs.texts import unsafe_text


def check_untrusted(op: str, target: str, values: Sequence[object], where: str) -> None:
    """Check a node, or an attribute, of a graph that is not trusted.

    Args:
        op: The op of the node; `get_attr` for an attribute.
        target: Its target as JSON names it.
        values: Its arguments, decoded.
        where: Names it in errors.

    Raises:
        TrustError: It calls, or says, what only a trusted case may.
    """
    found = list(leaves(values))
    called = [target, *(target_to_name(leaf) for leaf in found if operators.kind_of(leaf))]
    reasons = ((name, why_refused(op, name)) for name in called)
    refused = next((f"{name} {reason}" for name, reason in reasons if reason), None)
    text = unsafe_text(op, target, found)
    if refused is None and text is not None:
        refused = f"{target} is given {quoted(text)}, a text that could be read as a program"
    if refused is not None:
        raise TrustError(
            f"{where}: {refused}; if you trust the case, say so: --trust, or "
            "load_case(folder, trust=True)"
        )
