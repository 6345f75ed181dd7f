"""Apply a graph change to a case: the graph, the inputs that it still has, and their symbolic sizes."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch.fx import GraphModule, Node

from toolkit.case import Case
from toolkit.reduce.facts import by_name, has_gradient, placeholders
from toolkit.reduce.rebuild import Change, fetch, rebuild

Sizes = tuple[str | None, ...]


def changed(
    case: Case, change: Change, new_inputs: Mapping[str, object] | None = None
) -> Case | None:
    """Return a case with a changed graph.

    Symbolic sizes that no remaining input has go together with the last input that had them.

    Args:
        case: Not changed.
        change: What becomes of its nodes.
        new_inputs: Values of the new inputs, by `NewInput.name`.

    Returns:
        The case, or None if the change takes away what is needed, or would leave nothing to differentiate although the
        failure needs a backward pass.
    """
    result = _changed(case, change, new_inputs or {})
    if result is None:
        return None
    lost = _symbols(case.dynamic) - _symbols(result.dynamic)
    orphans = {n.name for n in placeholders(result.graph) if not n.users and symbol_of(n) in lost}
    if orphans:
        result = _changed(result, Change(gone=frozenset(orphans)), {})
    if result is None or (case.modes.backward and not has_gradient(result)):
        return None
    return result


def changed_inside(gm: GraphModule, path: Sequence[str], change: Change) -> GraphModule | None:
    """Return a graph with a change made in the sub-graph that `path` (targets of `get_attr`) leads to."""
    if path:
        inner = fetch(gm, path[0])
        if not isinstance(inner, GraphModule):
            return None
        new = changed_inside(inner, path[1:], change)
        if new is None:
            return None
        change = Change(modules={path[0]: new}, keep_inputs=True)
    built = rebuild(gm, change)
    return built.graph if built else None


def symbol_of(node: Node) -> str:
    """Return the symbol that a placeholder of a symbolic size stands for, else its name."""
    example = node.meta.get("example_value", node.meta.get("val"))
    return str(example) if isinstance(example, torch.SymInt) else node.name


def _changed(case: Case, change: Change, new_inputs: Mapping[str, object]) -> Case | None:
    built = rebuild(case.graph, change)
    if built is None:
        return None
    olds = by_name(case.graph)
    values = dict(zip((n.name for n in placeholders(case.graph)), case.inputs, strict=True))
    values.update(new_inputs)
    folded = {symbol_of(olds[name]) for name in change.substitutes}
    known = _symbols(case.dynamic) - folded
    dynamic: dict[str, Sizes] = {}
    for source, node in zip(built.inputs, placeholders(built.graph), strict=True):
        sizes = _sizes(source, case, olds.get(source), known)
        if any(sizes) and isinstance(values[source], torch.Tensor):
            dynamic[node.name] = sizes
    inputs = tuple(values[source] for source in built.inputs)
    return dataclasses.replace(case, graph=built.graph, inputs=inputs, dynamic=dynamic)


def _sizes(source: str, case: Case, node: Node | None, known: frozenset[str]) -> Sizes:
    """Return an input's symbolic sizes: as the case has them, else what the value's metadata says."""
    sizes: Sequence[object] = case.dynamic.get(source, ())
    if not sizes and node is not None and node.op != "placeholder":
        example = node.meta.get("example_value", node.meta.get("val"))
        sizes = tuple(example.shape) if isinstance(example, torch.Tensor) else ()
    return tuple(str(size) if str(size) in known else None for size in sizes)


def _symbols(dynamic: Mapping[str, Sizes]) -> frozenset[str]:
    return frozenset(size for sizes in dynamic.values() for size in sizes if size)
