"""Replace a node by one of its arguments of the same shape, dtype and device.

Unlike removal this keeps values connected: a failure that needs one op to feed another stays.
"""

from collections.abc import Iterator, Sequence

from torch.fx import Node

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import Bypass
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to bypass any nodes by their first fitting argument, then by their second, ...

    Inner nodes and the ends are proposed apart: `drop_suffix` and `drop_prefix` most likely left a
    first and a last unit that the failure needs, and then all others may go at once.
    """
    ends = {name for unit in (*facts.units[:1], *facts.units[-1:]) for name in unit}
    choices = list(bypasses(case, facts))
    inner = [tuple(pair for pair in pairs if pair[0] not in ends) for pairs in choices]
    outer = [tuple(pair for pair in pairs if pair[0] in ends) for pairs in choices]
    return [Subset(Bypass, pairs) for pairs in (*inner, *outer) if pairs]


def bypasses(case: Case, facts: Facts) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield pairs (node, argument): every node's first fitting argument, then every second ..."""
    fitting = {
        node.name: _fitting_arguments(node, facts)
        for node in case.graph.graph.nodes
        if node.op in CALLS
    }
    for rank in range(max((len(found) for found in fitting.values()), default=0)):
        yield tuple((name, found[rank]) for name, found in fitting.items() if rank < len(found))


def _fitting_arguments(node: Node, facts: Facts) -> tuple[str, ...]:
    info = facts.infos[node.name]
    if not isinstance(info, TensorInfo):
        return ()
    arguments = dict.fromkeys(_tensor_arguments(node, facts))
    return tuple(name for name in arguments if info.is_like(facts.infos[name]))


def _tensor_arguments(node: Node, facts: Facts) -> Iterator[str]:
    """Yield the names of a node's arguments; a `getitem` has those of the op it takes apart."""
    for argument in node.all_input_nodes:
        if isinstance(facts.infos[argument.name], tuple):
            yield from _tensor_arguments(argument, facts)
        else:
            yield argument.name


STEP = Step("bypass", propose)
