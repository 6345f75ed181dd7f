"""Verify a changed graph: well-formed, and every touched value keeps its type on fake tensors.

Only what changed is computed again, so an idle pass costs nothing. The new types are recorded on
the nodes, which later passes rely on. Does not look at values: that is the toolkit's check.
"""

import operator
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler import torch_compat
from ctk.compiler.errors import VerifyError
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.fx.properties import describe, same_type, value_of
from ctk.compiler.rewriting.base import NodeState, PassRun


def verify(run: PassRun) -> None:
    """Check the graphs that a pass changed.

    Raises:
        VerifyError: A graph is ill-formed, a node cannot run on its operands' types, or a value
            changed its type.
            Names the pass and the node.
    """
    for module, states in run.states.items():
        _lint(run, module)
        mode = torch_compat.fake_mode_of([value_of(node) for node in module.graph.nodes])
        if mode is None:
            continue
        for node in module.graph.nodes:
            if _is_changed(node, states):
                _retype(run, module, node, states, mode)


def _lint(run: PassRun, module: GraphModule) -> None:
    try:
        module.graph.lint()
    except Exception as error:
        raise VerifyError(f"pass {run.id} left an ill-formed graph: {error}") from error


def _is_changed(node: Node, states: dict[Node, NodeState]) -> bool:
    known = states.get(node)
    return known is None or known != (node.target, node.args, node.kwargs)


def _retype(
    run: PassRun, module: GraphModule, node: Node, states: dict[Node, NodeState], mode: object
) -> None:
    if node.op == "output":
        _check_outputs(run, module, node, states)
        return
    if not _is_computable(node):
        return
    old = value_of(node) if node in states else None
    try:
        new = _compute(node, module, mode)
    except Exception as error:
        if torch_compat.is_data_dependent(error):
            return
        raise VerifyError(
            f"pass {run.id} left a node that cannot run on the types of its operands.\n"
            f"  node {node.name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}\n"
            f"{excerpt(module.graph, node.name)}",
            node=node.name,
        ) from error
    if old is not None and not torch_compat.has_unbacked(new) and not same_type(old, new):
        raise _changed_type(run, module, node.name, old, new)
    node.meta["val"] = new


def _is_computable(node: Node) -> bool:
    """Placeholders are given; higher-order ops and modules are verified as graphs of their own."""
    if node.op == "call_function":
        return (
            torch_compat.op_facts(node.target) is not None
            or getattr(node.target, "__module__", "") != "torch._ops"
        )
    return node.op in ("call_method", "get_attr")


def _compute(node: Node, module: GraphModule, mode: object) -> object:
    if node.op == "get_attr":
        return torch_compat.to_fake(operator.attrgetter(str(node.target))(module), mode)
    args = map_arg(node.args, _fake_of)
    kwargs = map_arg(node.kwargs, _fake_of)
    with torch_compat.fake_compute(mode):
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]  # call_function targets are callable


def _fake_of(node: Node) -> Any:
    return value_of(node)


def _check_outputs(
    run: PassRun, module: GraphModule, node: Node, states: dict[Node, NodeState]
) -> None:
    known = states.get(node)
    if known is None:
        return
    old_nodes: list[Node] = []
    new_nodes: list[Node] = []
    map_arg(known[1], old_nodes.append)
    map_arg(node.args, new_nodes.append)
    if len(old_nodes) != len(new_nodes):
        raise VerifyError(
            f"pass {run.id} changed the number of outputs from {len(old_nodes)} to {len(new_nodes)}"
        )
    for old, new in zip(old_nodes, new_nodes, strict=True):
        before, after = value_of(old), value_of(new)
        if before is not None and after is not None and not same_type(before, after):
            raise _changed_type(run, module, new.name, before, after)


def _changed_type(
    run: PassRun, module: GraphModule, name: str, old: object, new: object
) -> VerifyError:
    return VerifyError(
        f"pass {run.id} changed the type of {name} from {describe(old)} to {describe(new)}.\n"
        f"{excerpt(module.graph, name)}\n"
        "Insert a conversion in the pass, or leave the node alone.",
        node=name,
    )
