"""Remove calls that return their operand itself.

Rules, if eager returns its operand itself:
    1. `x.contiguous() -> x`, for `x` contiguous already
    2. `x.to(d)`, `x.float()`, `x.cpu()`, `x.type_as(y)`... -> `x`, for `x` of that dtype and device
    3. a module `nn.Identity`, or a dropout module in evaluation mode -> `x`
Preconditions: 1. no memory format is given, and no call of the graph changes the strides of a
tensor in place. 2. no copy and no memory format is requested. 1. and 2. `x` does not come from a
foreign operator, whose fake implementation may give another type than the kernel. 3. nothing hooks
the module.
`detach`, views and copies stay: they are other tensors. Exact.

Source: Inductor's `remove_identity`, which does it for `nn.Identity` alone.
"""

import torch
from torch import nn
from torch.fx import Graph, Node

from ctk.compiler.fx.torch_calls import plain_tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import has_hooks

_CASTS = frozenset(
    (
        *("to", "type_as", "float", "double", "half", "bfloat16", "int", "long", "short", "char"),
        *("byte", "bool", "cpu", "cuda"),
    )
)
_RESHAPING = frozenset(
    (
        *("t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "resize_"),
        *("resize_as_", "set_", "as_strided_", "_set_data", "setattr"),
    )
)
_IDENTITIES = (nn.Identity,)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


class RemoveIdentity(Pass):
    """Remove calls that return their operand itself."""

    name = "remove_identity"

    def run(self, rewriter: Rewriter) -> None:
        tainted: set[Node] = set()
        for node in rewriter.nodes():
            if _is_foreign(node) or not tainted.isdisjoint(node.all_input_nodes):
                tainted.add(node)
            source = node.args[0] if node.args else None
            if not isinstance(source, Node) or node.op not in ("call_method", "call_module"):
                continue
            if _returns(rewriter, node, source) and (
                node.op == "call_module" or node not in tainted
            ):
                called = node.target if node.op == "call_method" else "identity"
                rewriter.replace(node, source, rule=f"{called}(x) -> x")


def _is_foreign(node: Node) -> bool:
    """Return whether a node calls an operator that is not torch's."""
    return getattr(node.target, "namespace", "aten") not in ("aten", "prims")


def _returns(rewriter: Rewriter, node: Node, source: Node) -> bool:
    """Return whether a node's value is its first operand itself."""
    if node.op == "call_module":
        return _is_idle(fetch(rewriter.module, node.target)) and len(node.args) == 1
    if node.target == "contiguous" and len(node.args) == 1 and not node.kwargs:
        return _is_contiguous(source) and not _has_reshaped(rewriter.graph)
    return node.target in _CASTS and _is_cast_to_itself(node, source)


def _is_idle(module: object) -> bool:
    if type(module) not in (*_IDENTITIES, *_DROPOUTS) or not isinstance(module, nn.Module):
        return False
    is_drawing = type(module) in _DROPOUTS and module.training
    return not is_drawing and not getattr(module, "inplace", False) and not has_hooks(module)


def _is_contiguous(node: Node) -> bool:
    tensor = plain_tensor_of(node)
    if tensor is None or tensor.layout is not torch.strided:
        return False
    if any(map(fake.is_symbolic, (*tensor.shape, *tensor.stride()))):
        return False
    return tensor.is_contiguous()


def _has_reshaped(graph: Graph) -> bool:
    return any(getattr(node.target, "__name__", node.target) in _RESHAPING for node in graph.nodes)


def _is_cast_to_itself(node: Node, source: Node) -> bool:
    before, after = plain_tensor_of(source), plain_tensor_of(node)
    if before is None or after is None:
        return False
    if (before.dtype, before.device, before.layout) != (after.dtype, after.device, after.layout):
        return False
    if {"copy", "memory_format"} & set(node.kwargs):
        return False
    is_plain = (torch.dtype, torch.device, str, Node)  # no `copy` and no memory format by position
    return all(isinstance(arg, is_plain) for arg in node.args[1:])


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x = torch.ones(2, 3)
    return [
        (lambda x: torch.sin(x.contiguous()), (x,)),
        (lambda x: x.float() * 2, (x,)),
        (lambda x: torch.sin(x).to(torch.float32), (x,)),
    ]


PASS = RemoveIdentity()
