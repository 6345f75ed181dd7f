"""Apply a graph change to a case: graph, inputs and results, symbolic sizes."""

import dataclasses
from collections.abc import Collection, Mapping

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.rebuild import Change, NewInput, Rebuilt, Substitute, rebuild
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import CALLS, attributes, input_names, output_leaves, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import (
    META_KEY,
    describe_dynamic,
    node_value_json,
    symbol_of,
    tensor_value_json,
)
from ctk.toolkit.case.roles import roles_in
from ctk.toolkit.reduce.analysis import Facts, has_gradient
from ctk.toolkit.reduce.eager_values import TensorInfo, describe

_RECORDED = ("val", "example_value", "tensor_meta", META_KEY)
"""Metadata keys that describe the value of a node."""

Sizes = tuple[str | None, ...]


def change_graph(
    case: Case, change: Change, new_inputs: Mapping[str, object] | None = None
) -> Case | None:
    """Return a case with a changed graph.

    A symbolic size is dropped together with the last input that has it.

    Args:
        new_inputs: Values of the new inputs, by `NewInput.name`.

    Returns:
        The case, or None if the change removes a needed value, or leaves nothing to differentiate
        although the failure needs a backward pass.
    """
    result = _rebuild_case(case, change, new_inputs or {})
    if result is None:
        return None
    lost = _symbols(case.dynamic) - _symbols(result.dynamic)
    orphans = {n.name for n in placeholders(result.graph) if not n.users and size_symbol(n) in lost}
    if orphans:
        result = _rebuild_case(result, Change(gone=frozenset(orphans)), {})
    if result is None or (case.modes.backward and not has_gradient(result)):
        return None
    return result


def without_types(case: Case, names: Collection[str]) -> Case:
    """Return the case without the stale metadata of some nodes."""
    if not names:
        return case
    graph = copy_graph_module(case.graph, lazy=True)
    for node in graph.graph.nodes:
        if node.name in names:
            forget_value(node)
    return dataclasses.replace(case, graph=graph)


def forget_value(node: Node) -> None:
    """Drop the stale metadata of a node's value."""
    node.meta = {key: item for key, item in node.meta.items() if key not in _RECORDED}


def with_constants(case: Case, values: Mapping[str, object]) -> Case | None:
    """Return a case whose graph and sub-graphs hold other constants, by dotted target."""
    modules = _modules_with(case.graph, values)
    return None if modules is None else change_graph(case, Change(modules=modules))


def _modules_with(gm: GraphModule, values: Mapping[str, object]) -> dict[str, object] | None:
    """Return the changed attributes of a graph: constants, and sub-graphs with other constants."""
    found: dict[str, object] = {}
    for target, held in attributes(gm).items():
        inner = {n.removeprefix(f"{target}."): v for n, v in values.items() if _is_in(n, target)}
        if target in values:
            found[target] = values[target]
        elif inner and isinstance(held, GraphModule):
            modules = _modules_with(held, inner)
            change = Change(modules=modules, keep_inputs=True) if modules is not None else None
            built = rebuild(held, change) if change else None
            if built is None:
                return None
            found[target] = built.graph
    return found


def _is_in(name: str, target: str) -> bool:
    return name.startswith(f"{target}.")


def with_inputs(case: Case, values: Mapping[str, object], *, keep_parameters: bool = True) -> Case:
    """Return a case with other values for some inputs, by name; a parameter stays one by default.

    If a dtype, shape or stride changes, stale metadata is dropped, and inputs get new descriptions.
    """
    names = input_names(case.graph)
    pairs = zip(names, case.inputs, strict=True)
    like = _like if keep_parameters else lambda new, old: new
    inputs = tuple(like(values[n], old) if n in values else old for n, old in pairs)
    result = dataclasses.replace(case, inputs=inputs)
    pairs = zip(names, inputs, case.inputs, strict=True)
    kept = {name for name, new, old in pairs if describe(new) == describe(old)}
    if len(kept) == len(names):
        return result
    graph = copy_graph_module(case.graph)
    by_name = dict(zip(names, inputs, strict=True))
    for node in graph.graph.nodes:
        if node.name not in kept and not isinstance(value_of(node), torch.SymInt):
            value, known = by_name.get(node.name), node_value_json(node)
            forget_value(node)
            if isinstance(value, torch.Tensor):
                node.meta[META_KEY] = tensor_value_json(value, known)
    return dataclasses.replace(result, graph=graph)


def _like(new: object, old: object) -> object:
    if isinstance(old, torch.nn.Parameter) and type(new) is torch.Tensor:
        return torch.nn.Parameter(new.detach(), requires_grad=old.requires_grad)
    return new


def size_symbol(node: Node) -> str:
    """Return the symbol of a placeholder that is a symbolic size, else its name."""
    return symbol_of(node) or node.name


def _rebuild_case(case: Case, change: Change, new_inputs: Mapping[str, object]) -> Case | None:
    built = rebuild(case.graph, change)
    if built is None:
        return None
    olds = placeholders(case.graph)
    values = dict(zip((node.name for node in olds), case.inputs, strict=True)) | dict(new_inputs)
    folded = {size_symbol(node) for node in olds if node.name in change.substitutes}
    return dataclasses.replace(
        case,
        graph=built.graph,
        inputs=tuple(values[source] for source in built.inputs),
        dynamic=_dynamic(case, built, known=_symbols(case.dynamic) - folded),
        synthetic=_synthetic(case, built),
        roles=roles_in(built.graph, case.roles),
    )


def _dynamic(case: Case, built: Rebuilt, *, known: frozenset[str]) -> dict[str, Sizes]:
    """Return each input's symbolic sizes: the case's, or those of a cut value's metadata."""
    described = describe_dynamic(built.graph)
    old = {node.name for node in placeholders(case.graph)}
    dynamic: dict[str, Sizes] = {}
    for source, node in zip(built.inputs, placeholders(built.graph), strict=True):
        sizes = (case.dynamic if source in old else described).get(source, ())
        dynamic[node.name] = tuple(size if size in known else None for size in sizes)
    return {name: sizes for name, sizes in dynamic.items() if any(sizes)}


def _synthetic(case: Case, built: Rebuilt) -> tuple[str, ...]:
    """Return the inputs whose values are not the program's own, or came from such alone."""
    if not case.synthetic:
        return ()
    only_synthetic: dict[str, bool] = {}
    for node in case.graph.graph.nodes:
        sources = node.all_input_nodes
        own = node.name in case.synthetic
        only_synthetic[node.name] = all(only_synthetic[n.name] for n in sources) if sources else own
    names = zip(built.inputs, placeholders(built.graph), strict=True)
    return tuple(node.name for source, node in names if only_synthetic[source.partition(".")[0]])


def _symbols(dynamic: Mapping[str, Sizes]) -> frozenset[str]:
    return frozenset(size for sizes in dynamic.values() for size in sizes if size)


def first_readers(gm: GraphModule, removed: frozenset[str]) -> dict[str, str]:
    """Return, for each removed node that a kept node reads (outputs aside), the first reader."""
    readers: dict[str, str] = {}
    for node in gm.graph.nodes:
        if node.name in removed or node.op == "output":
            continue
        for argument in node.all_input_nodes:
            if argument.name in removed:
                readers.setdefault(argument.name, node.name)
    return readers


def outputs_without(gm: GraphModule, removed: frozenset[str], facts: Facts) -> tuple[str, ...]:
    """Return the names of the outputs after a removal.

    Remaining results, and kept values that removed nodes read; without any of these, the tensors
    that kept in-place ops change.
    """
    kept = [leaf.name for leaf in output_leaves(gm) if isinstance(leaf, Node)]
    outputs = [name for name in kept if name not in removed]
    listed = frozenset(outputs)
    for node in gm.graph.nodes:
        is_read = any(user.name in removed for user in node.users)
        is_value = node.op in CALLS and isinstance(facts.infos[node.name], TensorInfo)
        if is_read and is_value and node.name not in removed and node.name not in listed:
            outputs.append(node.name)
    if outputs:
        return tuple(outputs)
    kept_nodes = (node for node in gm.graph.nodes if node.name not in removed)
    written = (argument for node in kept_nodes for argument in mutated_arguments(node))
    tensors = (a.name for a in written if isinstance(facts.infos[a.name], TensorInfo))
    return tuple(dict.fromkeys(tensors))


def as_inputs(value: object, name: str, inputs: dict[str, object]) -> Substitute:
    """Return the replacement of a removed value: inputs (added to `inputs`), or numbers."""
    if isinstance(value, torch.Tensor):
        inputs[name] = value
        return NewInput(name)
    if isinstance(value, tuple):
        return tuple(as_inputs(item, f"{name}.{i}", inputs) for i, item in enumerate(value))
    return value


def without_grad(
    gm: GraphModule, removed: frozenset[str], inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the new inputs, with `requires_grad` off if a kept node writes them in place.

    Autograd refuses to change a leaf in place; as an intermediate value it was allowed.
    """
    kept = [node for node in gm.graph.nodes if node.name not in removed]
    written = {argument.name for node in kept for argument in mutated_arguments(node)}
    return {
        name: value.detach() if name in written and isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
