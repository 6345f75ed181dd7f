"""Positions of callables in a graph: only arguments that an operator calls, and only of its kind.

A callable is a sub-graph (a `get_attr` node that reads a `GraphModule`) or an operator overload. No
other value of a graph can be called, so a computed value never becomes a function:

    cond(pred, true_graph, false_graph, (x,))      arguments 1 and 2 are sub-graphs
    with_effects(token, aten._print.default, "x")  argument 1 is an operator
    wrap(getattr, x, "__class__")                  refused: argument 0 must be a sub-graph
    add(x, true_graph)                             refused: add takes no sub-graph

The places are those of the operators' signatures in torch 2.11 and 2.13.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch.fx import Graph, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.case.formats.plain_text import quote_value

CallableKind = Literal["sub-graph", "operator", "mask"]
"""`mask`: a tuple that ends with a sub-graph, as the block mask of flex attention."""


@dataclass(frozen=True, slots=True)
class CallablePlace:
    """An argument that is called: by position, or by name for a keyword argument."""

    index: int
    name: str
    kind: CallableKind = "sub-graph"


_FIRST = (CallablePlace(0, "fn"),)
_LOOP = (CallablePlace(0, "cond_fn"), CallablePlace(1, "body_fn"))
_MUTATING = (CallablePlace(0, "_mutable_op", "operator"),)
_OPERATOR = (CallablePlace(0, "op", "operator"),)
_SECOND_OPERATOR = (CallablePlace(1, "op", "operator"),)

PLACES: Mapping[str, tuple[CallablePlace, ...]] = {
    "associative_scan": (CallablePlace(0, "combine_fn"),),
    "auto_functionalized": _MUTATING,
    "auto_functionalized_v2": _MUTATING,
    "autograd_function_apply": (CallablePlace(0, "fwd"), CallablePlace(1, "bwd")),
    "cond": (CallablePlace(1, "true_fn"), CallablePlace(2, "false_fn")),
    "dynamo_bypassing_wrapper": (CallablePlace(1, "inner_fn"),),
    "flex_attention": (CallablePlace(3, "score_mod"), CallablePlace(4, "block_mask", "mask")),
    "flex_attention_backward": (
        CallablePlace(7, "fw_graph"),
        CallablePlace(8, "joint_graph"),
        CallablePlace(9, "block_mask", "mask"),
    ),
    "foreach_map": _FIRST,
    "graphsafe_run_with_rng_state": _OPERATOR,
    "hints_wrapper": (CallablePlace(0, "body_fn"),),
    "invoke_quant": (CallablePlace(0, "subgraph"),),
    "invoke_quant_packed": (CallablePlace(0, "subgraph"),),
    "invoke_subgraph": (CallablePlace(0, "subgraph"),),
    "local_map_hop": (CallablePlace(0, "gm"),),
    "map_impl": (CallablePlace(0, "f"),),
    "out_dtype": _OPERATOR,
    "print": (),
    "register_hook": (CallablePlace(1, "hook_body"),),
    "run_and_save_rng_state": _OPERATOR,
    "run_const_graph": (CallablePlace(0, "graph"),),
    "run_dtensor_rng_op": (CallablePlace(2, "op", "operator"),),
    "run_with_rng_state": _SECOND_OPERATOR,
    "scan": (CallablePlace(0, "combine_fn"),),
    "strict_mode": (CallablePlace(0, "callable"),),
    "tag_activation_checkpoint": (CallablePlace(0, "gmod"),),
    "triton_kernel_wrapper_functional": (),
    "triton_kernel_wrapper_mutation": (),
    "while_loop": _LOOP,
    "while_loop_stack_output": _LOOP,
    "with_effects": _SECOND_OPERATOR,
    "wrap": (CallablePlace(0, "func"),),
    "wrap_activation_checkpoint": (CallablePlace(0, "function"),),
    "wrap_with_autocast": (CallablePlace(4, "wrapped_func"),),
    "wrap_with_set_grad_enabled": (CallablePlace(1, "wrapped_func"),),
}
"""The higher-order operators that a graph may call, and the arguments that they call.

Not listed, so refused: delegates and TorchBind methods (`executorch_call_delegate`,
`call_torchbind`), inline assembly.
"""


def check_callables(graph: Graph, subgraphs: Collection[str], where: str) -> None:
    """Raise `CaseError` unless callables occur only, and always, where an operator calls."""
    for node in graph.nodes:
        called = _places(node)
        for key, value in _arguments(node):
            place = called.get(key)
            spot = f"{where}: node {node.name}: argument {key!r}"
            if place is not None:
                value = _check_called(value, place, subgraphs, spot, str(node.target))
            for leaf in leaves(value):
                if _is_subgraph(leaf, subgraphs) or _is_callable(leaf):
                    raise CaseError(
                        f"{spot}: {_describe_leaf(leaf)} stands where the operator calls nothing; "
                        "a graph may only be handed to an operator that runs it"
                    )


def _places(node: Node) -> dict[int | str, CallablePlace]:
    if node.op != "call_function" or operators.kind_of(node.target) != "higher_order":
        return {}
    places = PLACES.get(str(node.target), ())
    return {key: place for place in places for key in (place.index, place.name)}


def _arguments(node: Node) -> Iterator[tuple[int | str, object]]:
    yield from enumerate(node.args)
    yield from node.kwargs.items()


def _check_called(
    value: object, place: CallablePlace, subgraphs: Collection[str], spot: str, operator: str
) -> object:
    """Check an argument that is called; return its uncalled rest (of a mask)."""
    rest: object = None
    if place.kind == "mask":
        parts = cast("tuple[object, ...]", value) if isinstance(value, tuple | list) else ()
        value, rest = (parts[-1], parts[:-1]) if parts else (value, None)
    fits = (
        operators.kind_of(value) == "overload"
        if place.kind == "operator"
        else _is_subgraph(value, subgraphs)
    )
    if fits:
        return rest
    wanted = "an operator overload" if place.kind == "operator" else "a sub-graph"
    raise CaseError(f"{spot}: {operator} calls {wanted} there, found {_describe_leaf(value)}")


def _is_subgraph(value: object, subgraphs: Collection[str]) -> bool:
    return isinstance(value, Node) and value.op == "get_attr" and str(value.target) in subgraphs


def _is_callable(value: Any) -> bool:
    """Return whether a value is a function or an operator; a dtype is not one."""
    return not isinstance(value, Node) and (operators.kind_of(value) is not None or callable(value))


def leaves(value: object) -> Iterator[object]:
    """Yield the leaves of an argument, through lists, tuples, slices and dictionaries with keys."""
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield from leaves(key)
            yield from leaves(item)
    elif isinstance(value, tuple | list):
        for item in cast("tuple[object, ...]", value):
            yield from leaves(item)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def _describe_leaf(value: object) -> str:
    return f"node {value.name}" if isinstance(value, Node) else quote_value(value)
