"""Suspected nodes: a step that tries them first, and a search for the first wrong one."""

from collections.abc import Collection

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.rebuild import Change
from ctk.repro_templates.numbers.compare import compare_runs
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_compiled, run_eager, run_reference
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.graph_changes import change_graph
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step


def suspects_step(names: Collection[str]) -> Step:
    """Return a step that keeps only the named nodes, or these and their neighbours."""

    def propose(case: Case, facts: Facts) -> Proposals:
        suspects = {name for unit in facts.units for name in unit if name in names}
        if not suspects:
            return []
        near = suspects | _neighbours(case, suspects)
        edits = [edit for kept in (suspects, near) if (edit := _keep(facts, kept)) is not None]
        return [Guesses(tuple(edits))] if edits else []

    return Step("hint", propose)


def _keep(facts: Facts, kept: set[str]) -> RemoveNodes | None:
    removed = tuple(n for unit in facts.units if not kept.intersection(unit) for n in unit)
    return RemoveNodes(removed) if removed else None


def _neighbours(case: Case, names: set[str]) -> set[str]:
    nodes = [node for node in case.graph.graph.nodes if node.name in names]
    operands = {operand.name for node in nodes for operand in node.all_input_nodes}
    return operands | {user.name for node in nodes for user in node.users}


def first_wrong_node(case: Case) -> tuple[str, ...]:
    """Return the first captured node whose compiled value is wrong; empty if the failure hides.

    Costs one compile, with every value as an output. That changes the fusions: it is only a hint.
    """
    facts = facts_of(case)
    nodes = (name for unit in facts.units for name in unit)
    names = [name for name in nodes if isinstance(facts.infos[name], TensorInfo)]
    probe = change_graph(case, Change(outputs=tuple(names))) if names else None
    if probe is None:
        return ()
    eager = run_eager(probe)
    try:
        compiled = run_compiled(probe)
    except CtkError:
        return ()
    if eager.run is None or compiled.run is None:
        return ()
    wrong = compare_runs(eager.values, compiled.values, run_reference(probe, eager).values)
    positions = [int(m.name[3:]) for m in wrong if m.name.startswith("out")]
    return (names[min(positions)],) if positions else ()
