"""Edit a sub-graph as a case of its own, with eager operands as inputs, and lift the edits.

outer:  y = cond(p, true_0, false_0, [x])    inner_case(case, ("true_0",)) is the case
true_0: relu(neg(x))                         relu(neg(x)), x being the operand of cond
edit:   Replace((("neg", "x"),))             SubgraphEdit(("true_0",), edit) edits the whole case
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.copy import copy_node, graph_module
from ctk.compiler.fx.rebuild import Change, rebuild
from ctk.compiler.fx.walk import (
    attributes,
    by_name,
    fetch,
    graphs_by_path,
    output_leaves,
    placeholders,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.eager_values import TensorInfo, values_before
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import (
    Descent,
    GaveUp,
    Guesses,
    Monotone,
    Proposal,
    Step,
    Subset,
)
from ctk.toolkit.reduce.subgraphs import Subgraph, operands_of, subgraphs
from ctk.toolkit.reduce.validity import can_run, foresee_facts

SubgraphPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubgraphEdit:
    """Apply an edit inside a sub-graph, and put the result back.

    Attributes:
        path: The targets of `get_attr` that lead to the sub-graph, from the outside in.
    """

    path: SubgraphPath
    edit: Edit

    def says(self) -> str:
        return f"in {'.'.join(self.path)}: {self.edit.says()}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        inner = inner_case(case, self.path)
        if inner is None:
            return None
        facts = facts_of(inner, may_run=facts.may_run)
        changed = self.edit.apply(inner, facts)
        if changed is None or not _has_results_of(inner, facts, changed):
            return None
        graph = _with_inputs_of(inner.graph, changed.graph)
        whole = _replace_graph(case.graph, self.path, graph) if graph else None
        return dataclasses.replace(case, graph=whole) if whole else None


def inner_case(case: Case, path: SubgraphPath) -> Case | None:
    """Return a sub-graph as a case of its own; None if it is gone."""
    inner: Case | None = case
    for target in path:
        found = inner and next((s for s in subgraphs(inner.graph) if s.target == target), None)
        inner = _inner_case(inner, found) if inner and found else None
    return inner


def inner_cases(
    case: Case, path: SubgraphPath = (), *, may_run: bool = True
) -> Iterator[tuple[SubgraphPath, Case, Facts]]:
    """Yield each sub-graph at any depth as a case of its own, with its facts, outer ones first."""
    for subgraph in subgraphs(case.graph):
        inner = _inner_case(case, subgraph)
        facts = inner and _facts(inner, may_run=may_run)
        if inner is not None and facts is not None:
            inner_path = (*path, subgraph.target)
            yield inner_path, inner, facts
            yield from inner_cases(inner, inner_path, may_run=may_run)


def lift_proposals(
    steps: Sequence[Step], case: Case, *, may_run: bool = True
) -> Iterator[Proposal]:
    """Yield the lifted proposals of steps for each sub-graph; last, `GaveUp` for some."""
    seen = list(inner_cases(case, may_run=may_run))
    for step in steps:
        for path, inner, facts in seen:
            for proposal in step.propose(inner, facts):
                yield _lift(path, proposal)
    names = {".".join(path) for path, _, _ in seen}
    unseen = [path for path in graphs_by_path(case.graph) if path and path not in names]
    if unseen:
        yield GaveUp(f"{', '.join(unseen)}: does not run by itself on the operands of its call")


def _facts(inner: Case, *, may_run: bool) -> Facts | None:
    """Return the facts of a sub-graph; None if it does not run (a map hands on slices)."""
    try:
        return facts_of(inner, may_run=may_run)
    except Exception:  # operators refuse arguments with any exception
        return None


def _lift(path: SubgraphPath, proposal: Proposal) -> Proposal:
    match proposal:
        case Guesses(edits):
            return Guesses(tuple(SubgraphEdit(path, edit) for edit in edits))
        case GaveUp(why):
            return GaveUp(f"in {'.'.join(path)}: {why}")
        case Monotone(make) | Descent(make) | Subset(make):
            return dataclasses.replace(
                proposal, make=lambda chosen: SubgraphEdit(path, make(chosen))
            )


def _inner_case(case: Case, subgraph: Subgraph) -> Case | None:
    call = by_name(case.graph)[subgraph.call]
    operands = operands_of(call, len(placeholders(subgraph.graph)))
    if operands is None:
        return None
    wanted = {operand.name: call.name for operand in operands if isinstance(operand, Node)}
    values = values_before(case, wanted)
    inputs = tuple(values[o.name] if isinstance(o, Node) else o for o in operands)
    modes = dataclasses.replace(case.modes, backward=False)
    return dataclasses.replace(
        case, graph=subgraph.graph, inputs=inputs, modes=modes, dynamic={}, synthetic=(), roles={}
    )


def _has_results_of(inner: Case, facts: Facts, changed: Case) -> bool:
    """Return whether a changed sub-graph still returns the shapes and dtypes of before."""
    try:
        after = foresee_facts(changed, facts)
    except Exception:  # operators refuse arguments with any exception
        return False
    if after is None:
        return can_run(changed, inner, facts) is not False
    if after.raised and not facts.raised:
        return False
    olds, news = _results(inner, facts), _results(changed, after)
    return len(olds) == len(news) and all(map(_is_like, olds, news))


def _results(case: Case, facts: Facts) -> list[object]:
    results = output_leaves(case.graph)
    return [facts.infos[leaf.name] if isinstance(leaf, Node) else leaf for leaf in results]


def _is_like(old: object, new: object) -> bool:
    return old.is_like(new) if isinstance(old, TensorInfo) else type(old) is type(new)


def _with_inputs_of(old: GraphModule, new: GraphModule) -> GraphModule | None:
    """Return a changed sub-graph with its original inputs; None if its caller would notice."""
    names = [node.name for node in placeholders(old)]
    kept = by_name(new)
    is_fed = all(node.name in names for node in placeholders(new))
    are_all_back = len(kept) + len(names) - len(placeholders(new)) == len(old.graph.nodes)
    is_same = are_all_back and len(placeholders(new)) < len(names)  # only inputs went
    if not is_fed or is_same or len(output_leaves(old)) != len(output_leaves(new)):
        return None
    graph, copies = Graph(), dict[Node, Node]()
    for node in placeholders(old):
        copies[kept.get(node.name, node)] = copy_node(graph, node, copies.__getitem__)
    for node in new.graph.nodes:
        if node.op != "placeholder":
            copies[node] = copy_node(graph, node, copies.__getitem__)
    return graph_module(attributes(new), graph, like=old, lazy=False)


def _replace_graph(gm: GraphModule, path: Sequence[str], graph: GraphModule) -> GraphModule | None:
    if not path:
        return graph
    inner = fetch(gm, path[0])
    new = _replace_graph(inner, path[1:], graph) if isinstance(inner, GraphModule) else None
    change = Change(modules={path[0]: new}, keep_inputs=True)
    built = rebuild(gm, change) if new else None
    return built.graph if built else None
