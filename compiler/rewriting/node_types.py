"""The type of a node (shape, dtype, device, strides): computed by running it on fake tensors."""

import operator
from collections.abc import Sequence
from typing import Any, Final

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.regions import regions_around
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.observe import first_line
from ctk.compiler.rewriting.numbering import NodeState, PassRun
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.fx.autocast import enter_regions, open_regions
from ctk.compiler.torch_compat.inductor import onednn
from ctk.compiler.torch_compat.process.process_state import is_in_transform

UNKNOWN: Final = object()
"""A type that cannot be computed (None is the value of operators without a result)."""


def record_type(run: PassRun, module: GraphModule, node: Node) -> None:
    """Record the type of a new node (`meta["val"]`), if the graph has types.

    Raises:
        VerifyError: The node cannot run on the types of its operands.
    """
    mode = fake.mode_of([*map(value_of, node.all_input_nodes)]) or fake_mode_of(module)
    value = compute_type(run, module, node, mode) if mode is not None else UNKNOWN
    if value is not UNKNOWN:
        node.meta["val"] = value
        run.typed[node] = _definition(node)


def is_typed(run: PassRun, node: Node) -> bool:
    """Return whether a node has the type that `record_type` computed, and the same operands."""
    state, values = run.typed.get(node, (None, ()))
    if state is None:
        return False
    now, current = _definition(node)
    return state == now and all(map(operator.is_, values, current))


def _definition(node: Node) -> tuple[NodeState, Sequence[object]]:
    state = (node.target, node.args, node.kwargs)
    return state, [*map(value_of, (node, *node.all_input_nodes))]


def fake_mode_of(module: GraphModule) -> object | None:
    """Return the fake mode of the types that a graph's nodes have; None if it has none."""
    modes = (fake.mode_of([value_of(node)]) for node in module.graph.nodes)
    return next((mode for mode in modes if mode is not None), None)


def compute_type(run: PassRun, module: GraphModule, node: Node, mode: object) -> object:
    """Return the fake value of a node from those of its operands, as autocast at its place has it.

    `UNKNOWN` for a placeholder (its type is given), an operator that calls graphs or a module
    (their graphs are verified separately), a function that sets a mode, a tensor of `vmap` or
    `grad` (outside its level it means nothing), a data-dependent shape, and an operator whose type
    torch computes wrongly.

    Raises:
        VerifyError: The node cannot run on the types of its operands.
    """
    if not _is_computable(node) or any(map(_is_in_transform, (node, *node.all_input_nodes))):
        return UNKNOWN
    try:
        with enter_regions(_regions_at(run, module, node)):
            return _compute(module, node, mode)
    except Exception as error:
        if fake.is_data_dependent(error):
            return UNKNOWN
        what = "left a node that cannot run on the types of its operands"
        seen = f"node {node.name}: {type(error).__name__}: {first_line(error)}"
        advice = f"call {node.target} with operands that it takes: convert them, or add a guard"
        raise run.contract_error(what, seen, advice, module=module, node=node.name) from error


def _regions_at(run: PassRun, module: GraphModule, node: Node) -> list[Node]:
    """Return the nodes that enter the regions of autocast that are open at a node."""
    if not run.regions:
        run.regions.update(regions_around(run.root))
    return [*run.regions.get(module, ()), *open_regions(node)]


def _is_computable(node: Node) -> bool:
    if operators.is_switch(node.target):
        return False
    if node.op == "call_function":
        return not onednn.has_wrong_type(node.target) and not _calls_graphs(node)
    return node.op in ("call_method", "get_attr")


def _is_in_transform(node: Node) -> bool:
    tensor = tensor_of(node)
    return tensor is not None and is_in_transform(tensor)


def _calls_graphs(node: Node) -> bool:
    """Return whether a node is a call of a higher-order operator with graphs, as `torch.cond`."""
    operands = node.all_input_nodes
    return operators.kind_of(node.target) == "higher_order" and any(
        each.op == "get_attr" and value_of(each) is None for each in operands
    )


def _compute(module: GraphModule, node: Node, mode: object) -> object:
    if node.op == "get_attr":
        return fake.to_fake(fetch(module, node.target), mode)
    args = map_arg(node.args, _fake_of)
    kwargs = map_arg(node.kwargs, _fake_of)
    with fake.fake_compute(mode):
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]  # call_function targets are callable


def _fake_of(node: Node) -> Any:
    return value_of(node)
