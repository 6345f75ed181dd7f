"""Reasons against a CUDA graph that are known before a graph runs.

Refused:
    1. an observer: kernels are compared one by one
    2. nothing on a device, values on the CPU or on a second device
    3. varying sizes, inputs and attributes that are not tensors
    4. operators that wait for a value, whose result's size depends on values, or that are unknown
       (custom ones, sub-graphs)
    5. random numbers of the program's own generator: captures know the device's only
    6. nothing to launch

Rule 2 excepts attention: the seeds of its random numbers are on the CPU in eager, and on the device
in a capture. Other reasons stop the capture itself.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.fx.properties import is_arithmetic, is_view, mutated_bases
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.fx.walk import fetch, flat, placeholders
from ctk.compiler.torch_compat.fake.fake_tensors import is_symbolic
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu import cuda_graphs

_KNOWN = ("aten", "prims", "ctk")

_WAITING = frozenset(
    ("_assert_scalar", "_cudnn_ctc_loss", "_ctc_loss", "allclose", "geqrf", "histc", "inverse",
     "is_nonzero", "item", "multinomial", "ormqr", "segment_reduce")
)  # fmt: skip
_WAITING_FAMILIES = ("linalg_", "_linalg", "cholesky", "_cholesky", "lu_", "_fused_moving_avg")
"""Operators that read sizes, errors or bounds on the host, which they do not declare."""

_BY_PLACES = ("index", "index_put", "_unsafe_index", "_unsafe_index_put", "index_put_")


def reason_against(gm: GraphModule) -> str | None:
    """Return why a graph cannot be a CUDA graph; None if nothing is known against it."""
    return next(_reasons(gm), None)


def device_of(gm: GraphModule) -> int:
    """Return the number of the device of a graph against which nothing is known."""
    return next(each.index or 0 for _, each in _places(gm) if each.type == "cuda")


def written_inputs(gm: GraphModule) -> frozenset[int]:
    """Return the numbers of the inputs that a graph writes to."""
    written = mutated_bases(gm.graph)
    return frozenset(n for n, node in enumerate(placeholders(gm)) if node in written)


def constants_of(gm: GraphModule) -> tuple[Tensor, ...]:
    """Return the attributes of a graph that are tensors."""
    values = (fetch(gm, node.target) for node in gm.graph.find_nodes(op="get_attr"))
    return tuple(value for value in values if isinstance(value, Tensor))


def _reasons(gm: GraphModule) -> Iterator[str]:
    yield from _about_places(gm)
    if all(map(_launches_nothing, gm.graph.nodes)):
        yield "it launches nothing"
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            value = value_of(node)
            if isinstance(value, torch.SymInt) or _varies(node):
                yield f"the size of {node.name} varies"
            elif value is not None and not isinstance(value, (Tensor, int, float)):
                yield f"input {node.name} is a {type(value).__name__}"
        elif node.op == "get_attr":
            value = fetch(gm, node.target)
            if not isinstance(value, Tensor):
                yield f"{node.name} is a {type(value).__name__}"
        elif node.op == "call_function":
            if _varies(node):
                yield f"the size of {node.name} varies"
            reason = _reason_of_call(node)
            if reason is not None:
                yield f"{node.name}: {reason}"


def _about_places(gm: GraphModule) -> Iterator[str]:
    places = {str(device): name for name, device in _places(gm)}
    others = [name for name in places if not name.startswith("cuda")]
    if len(others) == len(places):
        yield "nothing of it is on a CUDA device"
    elif others:
        yield f"{places[others[0]]} is on the {others[0].upper()}"
    elif len(places) > 1:
        yield f"it has values on {' and '.join(sorted(places))}"


def _places(gm: GraphModule) -> Iterator[tuple[str, torch.device]]:
    for node in gm.graph.nodes:
        if node.op == "output" or _is_seed(node):
            continue
        for value in _tensors(value_of(node)):
            if not (_is_attention(node) and value.device.type == "cpu"):
                yield node.name, value.device


def _launches_nothing(node: Node) -> bool:
    return node.op != "call_function" or is_view(node) or is_arithmetic(node)


def _tensors(value: object) -> Iterable[Tensor]:
    return (each for each in flat(value) if isinstance(each, Tensor))


def _is_seed(node: Node) -> bool:
    value = tensor_of(node)
    if value is None or value.device.type != "cpu" or value.dim() > 1:
        return False
    if node.op == "placeholder":
        return bool(node.users) and all(map(_is_attention, node.users))
    return _is_attention(node.all_input_nodes[0]) if len(node.all_input_nodes) == 1 else False


def _is_attention(node: Node) -> bool:
    return "attention" in getattr(node.target, "__name__", "")


def _varies(node: Node) -> bool:
    sizes = (each for value in _tensors(value_of(node)) for each in (*value.shape, *value.stride()))
    return any(map(is_symbolic, sizes))


def _reason_of_call(node: Node) -> str | None:
    if operators.declared_by(node.target) is None:
        return None if is_arithmetic(node) else "its launches are unknown"
    reason = cuda_graphs.reason_of(node.target)
    if reason is not None:
        return reason
    namespace, _, name = operators.qualified_name_of(node.target).partition("::")
    if namespace not in _KNOWN:
        return "an operator of others may wait for the device"
    name = name.partition(".")[0]
    if name in _WAITING or name.startswith(_WAITING_FAMILIES):
        return "it waits for the device"
    if any(isinstance(each, torch.Generator) for each in flat((node.args, node.kwargs))):
        return "it draws from a generator of its own"
    return "it counts the true places of a mask" if _has_mask(node, name) else None


def _has_mask(node: Node, name: str) -> bool:
    if name not in _BY_PLACES:
        return False
    values = (tensor_of(each) for each in flat(node.args[1]))
    return any(value is not None and value.dtype in (torch.bool, torch.uint8) for value in values)
