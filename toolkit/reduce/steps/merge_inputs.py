"""Read one input in place of others of the same form, and inputs in place of constants."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.fx import Node

from ctk.compiler.fx.walk import by_name
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.roles import HELD
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import Replace
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step, Subset
from ctk.toolkit.reduce.reconnection import reconnect
from ctk.toolkit.reduce.steps import simplify_dtypes
from ctk.toolkit.reduce.validity import reject_invalid
from ctk.toolkit.reduce.value_edits import changeable

Form = tuple[tuple[int, ...], torch.dtype, str]
"""Shape, dtype and device."""


@dataclass(frozen=True, slots=True)
class ReadInstead:
    """Read one input in place of one of another form: pairs (gone, kept)."""

    pairs: tuple[tuple[str, str], ...]

    def says(self) -> str:
        return Replace(self.pairs).says()

    def apply(self, case: Case, facts: Facts) -> Case | None:
        names = frozenset(name for name, _ in self.pairs)
        return reject_invalid(reconnect(case, facts, names, dict(self.pairs)), case, facts)


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose the first of each form (shape, dtype, device) for others; then its neighbours."""
    firsts: list[tuple[str, str]] = []
    nexts: list[tuple[str, str]] = []
    befores: list[tuple[str, str]] = []
    nodes = by_name(case.graph)
    for names in _alike(case, facts):
        firsts += [(name, names[0]) for name in names[1:]]
        nexts += [(names[i], names[i - 1]) for i in range(2, len(names))]
        befores += [pair for pair in pairwise(names) if _is_there(nodes[pair[1]], nodes[pair[0]])]
    twice = list(_has_duplicates(case))
    same = [Subset(Replace, tuple(pairs)) for pairs in (firsts, nexts, befores, twice) if pairs]
    others = list(_of_other_ranks(case, facts))
    tables = (dict(firsts) | dict(other.atoms) for other in others if firsts)
    whole = tuple(ReadInstead(tuple(table.items())) for table in tables)
    return [*([Guesses(whole)] if whole else []), *same, *others]


def _of_other_ranks(case: Case, facts: Facts) -> Iterator[Subset[tuple[str, str]]]:
    """Yield, for the first input of each form, the inputs that it may replace."""
    nodes = by_name(case.graph)
    forms = _forms(case, facts).items()
    for form, (kept, *_) in forms:
        pairs = tuple(
            (name, kept)
            for other, names in forms
            if other != form and _without_ones(other) == _without_ones(form)
            for name in names
            if _is_there(nodes[kept], nodes[name])
        )
        if pairs:
            yield Subset(ReadInstead, pairs)


def _is_there(kept: Node, gone: Node) -> bool:
    return kept.op == "placeholder" or kept < gone


def _without_ones(form: Form) -> Form:
    shape, dtype, device = form
    return (tuple(size for size in shape if size != 1), dtype, device)


def _has_duplicates(case: Case) -> Iterator[tuple[str, str]]:
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
    forms = _forms(case, facts, as_usual=as_usual)
    return [names for names in forms.values() if names[1:]]


def _forms(case: Case, facts: Facts, *, as_usual: bool = False) -> dict[Form, list[str]]:
    own = changeable(case)
    groups: dict[Form, list[str]] = {}
    for node in case.graph.graph.nodes:
        key = HELD + str(node.target) if node.op == "get_attr" else node.name
        info = facts.infos[node.name]
        is_value = node.op in ("placeholder", "get_attr") and isinstance(info, TensorInfo)
        if is_value and isinstance(info, TensorInfo) and key in own and key not in case.dynamic:
            dtype = simplify_dtypes.usual(info.dtype) if as_usual else info.dtype
            groups.setdefault((info.shape, dtype, info.device), []).append(node.name)
    return groups


STEP = Step("merge_inputs", propose, detail="inputs")
