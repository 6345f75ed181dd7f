"""The type of a node (shape, dtype, device, strides): computed by running it on fake tensors."""

from typing import Any, Final

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.observe import first_line
from ctk.compiler.rewriting.numbering import PassRun
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

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


def fake_mode_of(module: GraphModule) -> object | None:
    """Return the fake mode of the types that a graph's nodes have; None if it has none."""
    return fake.mode_of([value_of(node) for node in module.graph.nodes])


def compute_type(run: PassRun, module: GraphModule, node: Node, mode: object) -> object:
    """Return the fake value of a node from those of its operands.

    `UNKNOWN` for a placeholder (its type is given), a higher-order operator or a module (their
    graphs are verified separately), and a data-dependent shape.

    Raises:
        VerifyError: The node cannot run on the types of its operands.
    """
    if not _is_computable(node):
        return UNKNOWN
    try:
        return _compute(module, node, mode)
    except Exception as error:
        if fake.is_data_dependent(error):
            return UNKNOWN
        what = "left a node that cannot run on the types of its operands"
        seen = f"node {node.name}: {type(error).__name__}: {first_line(error)}"
        advice = f"call {node.target} with operands that it takes: convert them, or add a guard"
        raise run.contract_error(what, seen, advice, module=module, node=node.name) from error


def _is_computable(node: Node) -> bool:
    if node.op == "call_function":
        return (
            operators.declared_by(node.target) is not None
            or getattr(node.target, "__module__", "") != "torch._ops"
        )
    return node.op in ("call_method", "get_attr")


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
