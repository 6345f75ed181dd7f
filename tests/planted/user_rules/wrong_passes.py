"""Passes as users write them, each wrong in one corner."""

import torch

from ctk.compiler.fx.types import tensor_of
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten


def calls(rewriter, *targets):
    return [n for n in rewriter.nodes() if n.op == "call_function" and n.target in targets]


def put(rewriter, node, rule, target, *args, **kwargs):
    def edit(graph):
        node.replace_all_uses_with(rewriter.insert(target, args, kwargs, before=node))
        graph.erase_node(node)

    rewriter.rewrite(rule, [node], edit)


class SwapAdd(Pass):
    """Ignores alpha."""

    name = "swap_add"

    def run(self, rewriter: Rewriter) -> None:
        for node in calls(rewriter, aten.add.Tensor):
            a, b = node.args
            ta, tb = tensor_of(a), tensor_of(b)
            if (
                ta is None
                or tb is None
                or ta.shape != tb.shape
                or ta.stride() != tb.stride()
                or ta.dtype != tb.dtype
            ):
                continue
            if node.meta.get("swapped"):
                continue

            def edit(graph, node=node, a=a, b=b):
                new = rewriter.insert(aten.add.Tensor, (b, a), before=node)
                new.meta["swapped"] = True
                node.replace_all_uses_with(new)
                graph.erase_node(node)

            rewriter.rewrite("add(a, b) -> add(b, a)", [node], edit)


class SubToAdd(Pass):
    name = "sub_to_add"

    def run(self, rewriter):
        for node in calls(rewriter, aten.sub.Tensor):
            a, b = node.args
            t = tensor_of(b)
            if t is None or not t.is_floating_point():
                continue

            def edit(graph, node=node, a=a, b=b):
                n = rewriter.insert(aten.neg.default, (b,), before=node)
                node.replace_all_uses_with(rewriter.insert(aten.add.Tensor, (n, a), before=node))
                graph.erase_node(node)

            rewriter.rewrite("a - b -> -b + a", [node], edit)


class UnfuseAddmm(Pass):
    """Ignores beta."""

    name = "unfuse_addmm"
    numerics = "reassociates"

    def run(self, rewriter):
        for node in calls(rewriter, aten.addmm.default):
            bias, x, w = node.args

            def edit(graph, node=node, bias=bias, x=x, w=w):
                n = rewriter.insert(aten.mm.default, (x, w), before=node)
                node.replace_all_uses_with(rewriter.insert(aten.add.Tensor, (n, bias), before=node))
                graph.erase_node(node)

            rewriter.rewrite("addmm -> add(mm)", [node], edit)


class SumAll(Pass):
    """Drops keepdim."""

    name = "sum_all"
    numerics = "reassociates"

    def run(self, rewriter):
        for node in calls(rewriter, aten.sum.dim_IntList):
            t = tensor_of(node.args[0])
            dims = node.args[1]
            if dims is not None and len(dims) == t.dim() and t.dim() and not node.kwargs:
                put(rewriter, node, "sum(all) -> sum", aten.sum.default, node.args[0])


class DropExpand(Pass):
    """Wrong where the other operand does not broadcast."""

    name = "drop_expand"

    def run(self, rewriter):
        for node in calls(rewriter, aten.mul.Tensor):
            a, b = node.args
            if (
                not isinstance(a, torch.fx.Node)
                or a.target is not aten.expand.default
                or not isinstance(b, torch.fx.Node)
            ):
                continue
            if (
                len(tensor_of(a.args[0]).shape)
                == len(tensor_of(a).shape)
                == len(tensor_of(b).shape)
            ):
                put(rewriter, node, "mul(expand(x), y) -> mul(x, y)", aten.mul.Tensor, a.args[0], b)


class IgnoreRounding(Pass):
    name = "ignore_rounding"

    def run(self, rewriter):
        for node in calls(rewriter, aten.div.Tensor_mode):
            if tensor_of(node).is_floating_point() and node.kwargs.get("rounding_mode") != "floor":
                put(rewriter, node, "div(x, y, mode) -> div(x, y)", aten.div.Tensor, *node.args)


class Softplus(Pass):
    """Overflows."""

    name = "softplus"
    numerics = "reassociates"

    def run(self, rewriter):
        for node in calls(rewriter, aten.softplus.default):
            if len(node.args) != 1:
                continue

            def edit(graph, node=node):
                e = rewriter.insert(aten.exp.default, (node.args[0],), before=node)
                node.replace_all_uses_with(rewriter.insert(aten.log1p.default, (e,), before=node))
                graph.erase_node(node)

            rewriter.rewrite("softplus -> log1p(exp)", [node], edit)


class CloneClone(Pass):
    """Ignores the memory format."""

    name = "clone_clone"

    def run(self, rewriter):
        for node in calls(rewriter, aten.clone.default):
            inner = node.args[0]
            if (
                inner.target is aten.clone.default
                and len(inner.users) == 1
                and not rewriter_writes(rewriter)
            ):
                put(
                    rewriter, node, "clone(clone(x)) -> clone(x)", aten.clone.default, inner.args[0]
                )


def rewriter_writes(rewriter):
    return any(str(n.target).endswith("fill_.Scalar") for n in rewriter.nodes())


class ReluInPlace(Pass):
    """The inner value may have another user."""

    name = "relu_in_place"

    def run(self, rewriter):
        for node in calls(rewriter, aten.relu.default):
            inner = node.args[0]
            if inner.op == "call_function" and inner.target is aten.add.Tensor:
                put(rewriter, node, "relu(add) -> relu_(add)", aten.relu_.default, inner)


class AbsNotNegative(Pass):
    """abs(int min) is negative; NaN."""

    name = "abs_not_negative"

    def run(self, rewriter):
        for node in calls(rewriter, aten.ge.Scalar):
            inner, number = node.args
            if (
                inner.target is aten.abs.default
                and type(number) is int
                and number == 0
                and not tensor_of(inner).is_floating_point()
            ):
                put(
                    rewriter,
                    node,
                    "abs(x) >= 0 -> ones",
                    aten.ones_like.default,
                    inner,
                    dtype=torch.bool,
                    memory_format=torch.preserve_format,
                )


class AnyToAmax(Pass):
    """Empty."""

    name = "any_to_amax"

    def run(self, rewriter):
        for node in calls(rewriter, aten.any.default):
            if tensor_of(node.args[0]).dtype == torch.bool:
                put(rewriter, node, "any -> amax", aten.amax.default, *node.args)


class VarDefault(Pass):
    """Ignores the correction."""

    name = "var_default"
    numerics = "reassociates"

    def run(self, rewriter):
        for node in calls(rewriter, aten.var.correction):
            if not node.kwargs.get("keepdim") and node.args[1:] and node.args[1]:
                put(
                    rewriter,
                    node,
                    "var(correction) -> var(dim)",
                    aten.var.dim,
                    node.args[0],
                    node.args[1],
                )


class SubSelf(Pass):
    """inf - inf."""

    name = "sub_self"

    def run(self, rewriter):
        for node in calls(rewriter, aten.sub.Tensor):
            if node.args[0] is node.args[1]:
                put(rewriter, node, "x - x -> 0", aten.zeros_like.default, node.args[0])


class ConjPhysical(Pass):
    name = "conj_physical"

    def run(self, rewriter):
        for node in calls(rewriter, aten.conj_physical.default):
            put(rewriter, node, "conj(x) -> clone(x)", aten.clone.default, node.args[0])


class NegByMul(Pass):
    """-0.0."""

    name = "mul_minus_one"

    def run(self, rewriter):
        for node in calls(rewriter, aten.mul.Tensor):
            x, number = node.args
            if (
                type(number) is int
                and number == -1
                and tensor_of(x) is not None
                and tensor_of(x).dtype != torch.bool
            ):
                put(rewriter, node, "x * -1 -> 0 - x", aten.rsub.Scalar, x, 0)


class WhereToMaximum(Pass):
    """NaN."""

    name = "where_to_maximum"

    def run(self, rewriter):
        for node in calls(rewriter, aten.where.self):
            c, a, b = node.args
            if (
                c.target is aten.gt.Tensor
                and c.args == (a, b)
                and tensor_of(a).dtype == tensor_of(b).dtype
                and tensor_of(a).stride() == tensor_of(b).stride()
            ):
                put(rewriter, node, "where(a > b, a, b) -> maximum", aten.maximum.default, a, b)


class SumDtype(Pass):
    """Ignores dtype."""

    name = "sum_dtype"

    def run(self, rewriter):
        for node in calls(rewriter, aten.sum.default):
            t = tensor_of(node.args[0])
            if t.dim() == 0 and t.dtype.is_floating_point:
                put(rewriter, node, "sum(scalar) -> clone", aten.clone.default, node.args[0])


class FloorDivide(Pass):
    """Large ints lose bits in float."""

    name = "floor_divide"

    def run(self, rewriter):
        for node in calls(rewriter, aten.floor_divide.default):
            a, b = node.args
            if type(b) is int and b != 0 and tensor_of(a).dtype == torch.int64:

                def edit(graph, node=node, a=a, b=b):
                    d = rewriter.insert(aten.div.Tensor, (a, b), before=node)
                    f = rewriter.insert(aten.floor.default, (d,), before=node)
                    node.replace_all_uses_with(
                        rewriter.insert(
                            aten._to_copy.default, (f,), {"dtype": torch.int64}, before=node
                        )
                    )
                    graph.erase_node(node)

                rewriter.rewrite("a // b -> floor(a / b)", [node], edit)


class SliceFromEnd(Pass):
    """Negative starts."""

    name = "whole_slice"

    def run(self, rewriter):
        for node in calls(rewriter, aten.slice.Tensor):
            if (
                len(node.args) == 4
                and node.args[2] is not None
                and node.args[2] <= 0
                and node.args[3] is not None
                and node.args[3] >= tensor_of(node.args[0]).shape[node.args[1]]
            ):
                put(rewriter, node, "slice(0, size) -> alias", aten.alias.default, node.args[0])


class Gelu(Pass):
    """Ignores approximate."""

    name = "gelu"
    numerics = "reassociates"

    def run(self, rewriter):
        for node in calls(rewriter, aten.gelu.default):
            if node.kwargs.get("approximate") is not None:
                put(
                    rewriter,
                    node,
                    "gelu(x, approximate) -> gelu(x)",
                    aten.gelu.default,
                    node.args[0],
                )


class AddSelf(Pass):
    """bool."""

    name = "add_self"

    def run(self, rewriter):
        for node in calls(rewriter, aten.add.Tensor):
            if len(node.args) == 2 and node.args[0] is node.args[1] and not node.kwargs:
                put(rewriter, node, "x + x -> 2 x", aten.mul.Tensor, node.args[0], 2)


class CatOne(Pass):
    """The copy leaves the graph."""

    name = "cat_one"

    def run(self, rewriter):
        for node in calls(rewriter, aten.cat.default):
            if len(node.args[0]) == 1:
                put(rewriter, node, "cat([x]) -> alias(x)", aten.alias.default, node.args[0][0])
