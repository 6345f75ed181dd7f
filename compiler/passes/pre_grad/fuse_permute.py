"""Let products read and give transposed operands, without the copies that make them contiguous.

Rules, `T(x)` swapping the last two dimensions of two or three (`transpose`, `permute`, `t`), and
`copy` being `contiguous` or a contiguous `clone`:
    1. matmul(copy(T(x)), y) -> matmul(T(x), y)      either operand; also `mm` and `bmm`
    2. linear(copy(T(x)), w, b) -> linear(T(x), w, b)
    3. copy(T(linear(x, w, b))) -> addmm(b[:, None], w, T(x))
Preconditions: removed nodes have no other user; nothing is written and no mode is set between the
first node and the last; all are of one floating dtype, the operands of 1. of one rank; `b` is a
row. Of three dimensions 2. and 3. are a `baddbmm` with `w` expanded, for inference with a known
batch: there would be a gradient of `w` for each matrix of the batch. Reassociates.

Source: `permute_linear_fusion`, `linear_permute_fusion` and `permute_matmul_fusion` in
`torch/_inductor/fx_passes/pre_grad.py` rewrite every permutation, so that the gain depends on the
layout of the product; these rules fire only if a copy is saved (15 to 30 % on a CPU).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node
from torch.fx.node import Argument

from ctk.compiler.fx.effects import is_barred
from ctk.compiler.fx.torch_calls import TorchCall, call_of, function_of, plain_tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_PRODUCTS = (torch.matmul, torch.mm, torch.bmm)
_TURNS = (torch.transpose, torch.permute, torch.t)


class FusePermute(Pass):
    """Let products read and give transposed operands without copies."""

    name = "fuse_permute"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if _is_copy(node):
                _fuse_result(rewriter, node)
            elif function_of(node) in (*_PRODUCTS, F.linear):
                for copy in dict.fromkeys(node.all_input_nodes):
                    _fuse_operand(rewriter, node, copy)


def _is_copy(node: Node) -> bool:
    if node.op == "call_method" and node.target == "contiguous":
        return len(node.args) == 1 and not node.kwargs
    call = call_of(node) if function_of(node) is torch.clone else None
    return call is not None and call.arguments["memory_format"] is torch.contiguous_format


def _turned(node: object) -> Node | None:
    """Return `x` if a node is `T(x)`."""
    call, tensor = call_of(node), plain_tensor_of(node)
    if call is None or call.function not in _TURNS or tensor is None or tensor.dim() not in (2, 3):
        return None
    rank = tensor.dim()
    order = call.arguments.get("dims", [1, 0])  # those of `t`
    if call.function is torch.transpose:
        swapped = _axes([call.arguments["dim0"], call.arguments["dim1"]], rank)
        is_last_two = {*swapped} == {rank - 1, rank - 2}
        order = [*range(rank - 2), rank - 1, rank - 2] if is_last_two else []
    is_turned = _axes(order, rank) == [*range(rank - 2), rank - 1, rank - 2]
    return call.node("input") if is_turned else None


def _axes(values: object, rank: int) -> list[int]:
    """Return dimensions counted from 0; empty if one is not a known number."""
    given = [*values] if isinstance(values, (tuple, list)) else []
    known = [each for each in given if isinstance(each, int) and -rank <= each < rank]
    return [each % rank for each in known] if len(known) == len(given) else []


def _fuse_operand(rewriter: Rewriter, node: Node, copy: Node) -> None:
    """Rules 1 and 2."""
    turned = copy.args[0] if _is_copy(copy) and copy.args else None
    call = call_of(node)
    if call is None or not isinstance(turned, Node) or _turned(turned) is None:
        return
    if len(copy.users) != 1 or is_barred(copy, node) or not _is_uniform(node, call):
        return
    if call.function is not F.linear:
        _drop_copy(rewriter, node, copy, turned, "matmul(copy(T(x)), y) -> matmul(T(x), y)")
    elif call.node("input") is copy and _rank(copy) == 2:
        _drop_copy(rewriter, node, copy, turned, "linear(copy(T(x))) -> linear(T(x))")
    elif call.node("input") is copy and _is_batched(copy):
        _batch(rewriter, node, copy, turned, call)


def _is_uniform(node: Node, call: TorchCall) -> bool:
    """Return whether operands and result have one floating dtype, those of a product one rank."""
    operands = [plain_tensor_of(operand) for operand in node.all_input_nodes]
    types = [plain_tensor_of(node), *operands]
    dtypes = {each.dtype if each is not None else None for each in types}
    dtype = next(iter(dtypes))
    if len(dtypes) != 1 or dtype is None or not dtype.is_floating_point:
        return False
    ranks = {operand.dim() for operand in operands if operand is not None}
    return call.function is F.linear or (len(ranks) == 1 and ranks <= {2, 3})


def _rank(node: Node) -> int | None:
    tensor = plain_tensor_of(node)
    return tensor.dim() if tensor is not None else None


def _is_batched(node: Node) -> bool:
    """Return whether a baddbmm may stand for a linear: see the preconditions."""
    tensor = plain_tensor_of(node)
    if tensor is None or tensor.dim() != 3 or torch.is_grad_enabled():
        return False
    return not fake.is_symbolic(tensor.shape[0])


def _drop_copy(rewriter: Rewriter, node: Node, copy: Node, turned: Node, rule: str) -> None:
    def edit(graph: Graph) -> None:
        node.replace_input_with(copy, turned)
        graph.erase_node(copy)

    rewriter.rewrite(rule, [node, copy], edit)


def _batch(rewriter: Rewriter, node: Node, copy: Node, turned: Node, call: TorchCall) -> None:
    insert = rewriter.inserter(before=node)

    def make() -> Node:
        weight = insert(torch.t, call.arguments["weight"])
        return _product(insert, call.node("bias"), turned, _expand(insert, weight, copy))

    if _is_plain(call):
        rule = "linear(copy(T(x))) -> baddbmm(T(x))"
        rewriter.replace_by(rule, [node, copy], make, erase=[copy])


def _is_plain(call: TorchCall) -> bool:
    """Return whether the weight of a linear is a matrix and its bias a row, if it has one."""
    weight, bias = call.node("weight"), call.node("bias")
    is_matrix = weight is not None and _rank(weight) == 2
    return is_matrix and (call.arguments["bias"] is None or (bias is not None and _rank(bias) == 1))


def _fuse_result(rewriter: Rewriter, copy: Node) -> None:
    """Rule 3."""
    turned = copy.args[0] if copy.args else None
    linear = _turned(turned)
    call = call_of(linear) if linear is not None and function_of(linear) is F.linear else None
    if linear is None or call is None or not isinstance(turned, Node):
        return
    if len(turned.users) != 1 or len(linear.users) != 1 or is_barred(linear, copy):
        return
    if not _is_uniform(linear, call) or not _is_plain(call):
        return
    if _rank(linear) == 2 or _is_batched(linear):
        _turn(rewriter, copy, turned, linear, call)


def _turn(rewriter: Rewriter, copy: Node, turned: Node, linear: Node, call: TorchCall) -> None:
    insert = rewriter.inserter(before=copy)

    def make() -> Node:
        weight, bias = call.arguments["weight"], call.node("bias")
        if bias is not None:
            bias = insert(torch.unsqueeze, bias, 1)
        if _rank(linear) == 3:
            weight = _expand(insert, weight, linear)
        other = insert(torch.transpose, call.arguments["input"], -2, -1)
        return _product(insert, bias, weight, other)

    rule = "copy(T(linear(x, w, b))) -> addmm(b, w, T(x))"
    rewriter.replace_by(rule, [copy, turned, linear], make, erase=[turned, linear])


Insert = Callable[..., Node]


def _expand(insert: Insert, matrix: Argument, like: Node) -> Node:
    """Return a matrix once per item of a batch, without a copy."""
    tensor = plain_tensor_of(like)
    assert tensor is not None  # _is_batched has looked
    return insert(torch.Tensor.expand, insert(torch.unsqueeze, matrix, 0), tensor.shape[0], -1, -1)


def _product(insert: Insert, bias: Node | None, left: Argument, right: Argument) -> Node:
    is_batched = isinstance(left, Node) and _rank(left) == 3
    if bias is None:
        return insert(torch.bmm if is_batched else torch.mm, left, right)
    return insert(torch.baddbmm if is_batched else torch.addmm, bias, left, right)


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule."""
    x, y, w, b = torch.ones(3, 2), torch.ones(3, 4), torch.ones(4, 3), torch.ones(4)
    return [
        (lambda x, y: torch.matmul(x.transpose(0, 1).contiguous(), y), (x, y)),
        (lambda x, w, b: F.linear(x.t().contiguous(), w, b), (x, w, b)),
        (lambda x, w, b: F.linear(x, w, b).t().contiguous(), (torch.ones(2, 3), w, b)),
    ]


PASS = FusePermute()
