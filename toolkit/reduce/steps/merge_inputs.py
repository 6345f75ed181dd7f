"""Read one input in the place of others of the same form, and inputs in the place of constants.

A part that is taken twice out of what a node returns is taken once.
"""

import operator
from collections.abc import Iterator, Sequence

from torch.fx import Node

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.roles import HELD
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import Replace
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset
from ctk.toolkit.reduce.steps import simplify_dtypes
from ctk.toolkit.reduce.value_edits import changeable


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose the first of each form in the place of any others; then each one's predecessor.

    A form is shape, dtype and device. An input whose sizes are symbolic is left alone.
    """
    firsts: list[tuple[str, str]] = []
    nexts: list[tuple[str, str]] = []
    for names in _alike(case, facts):
        firsts += [(name, names[0]) for name in names[1:]]
        nexts += [(names[i], names[i - 1]) for i in range(2, len(names))]
    twice = list(_taken_twice(case))
    return [Subset(Replace, tuple(pairs)) for pairs in (firsts, nexts, twice) if pairs]


def _taken_twice(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each part that an earlier node takes out of the same tuple, with that node."""
    parts: dict[object, Node] = {}
    for node in case.graph.graph.find_nodes(op="call_function", target=operator.getitem):
        source, index = node.args
        if type(index) is int and isinstance(node.args[0], Node):
            first = parts.setdefault((source, index), node)
            if first is not node:
                yield node.name, first.name


def all_merged(case: Case, facts: Facts) -> Replace | None:
    """Return the edit that keeps the first of each shape and device, once dtypes are the usual."""
    groups = _alike(case, facts, as_usual=True)
    pairs = [(name, names[0]) for names in groups for name in names[1:]]
    return Replace(tuple(pairs)) if pairs else None


def _alike(case: Case, facts: Facts, *, as_usual: bool = False) -> list[list[str]]:
    """Return the inputs and constants of each form, if there are several, in program order."""
    own = changeable(case)
    groups: dict[object, list[str]] = {}
    for node in case.graph.graph.nodes:
        key = HELD + str(node.target) if node.op == "get_attr" else node.name
        info = facts.infos[node.name]
        is_value = node.op in ("placeholder", "get_attr") and isinstance(info, TensorInfo)
        if is_value and isinstance(info, TensorInfo) and key in own and key not in case.dynamic:
            dtype = simplify_dtypes.usual(info.dtype) if as_usual else info.dtype
            groups.setdefault((info.shape, dtype, info.device), []).append(node.name)
    return [names for names in groups.values() if names[1:]]


STEP = Step("merge_inputs", propose)
