"""Wrong passes, one line each, for `test_faults.py`: what a careless author would write."""

import operator
from collections.abc import Callable

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten


def each(target: object, change: Callable[[Node], None]) -> Callable[[GraphModule], None]:
    """Return a pass that changes each call of an operator in place."""

    def wrong(gm: GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.op == "call_function" and node.target is target:
                change(node)

    return wrong


def to(target: object) -> Callable[[Node], None]:
    return lambda node: setattr(node, "target", target)


def args(make: Callable[..., tuple[object, ...]]) -> Callable[[Node], None]:
    return lambda node: setattr(node, "args", make(*node.args))


def kwargs(**changed: object) -> Callable[[Node], None]:
    return lambda node: setattr(node, "kwargs", {**node.kwargs, **changed})


def drop(node: Node) -> None:
    """Take the first operand for the result."""
    node.replace_all_uses_with(node.args[0])
    node.graph.erase_node(node)


def scaled(factor: float) -> Callable[[Node], None]:
    """Multiply the result."""

    def change(node: Node) -> None:
        with node.graph.inserting_after(node):
            more = node.graph.call_function(aten.mul.Tensor, (node, factor))
        node.replace_all_uses_with(more, lambda user: user is not more)

    return change


def raises(error: type[Exception]) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        raise error("planted")

    return change


def constants(change: Callable[[Node], None]) -> Callable[[GraphModule], None]:
    """Return a pass that changes each constant of a frozen graph."""

    def wrong(gm: GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.op == "get_attr" and getattr(gm, node.target).dim() > 1:
                change(node)

    return wrong


# pre_grad: the program's own calls
softmax_over_rows = each(torch.softmax, args(lambda x, *_: (x, 0)))
swap_matmul = each(torch.matmul, args(lambda a, b: (b, a)))
swap_sub = each(torch.sub, args(lambda a, b: (b, a)))
coarse_norm = each(torch.nn.functional.layer_norm, args(lambda x, s, w, b, _: (x, s, w, b, 0.1)))
power_is_times = each(operator.pow, to(operator.mul))

# joint: forward and backward in one
sin_is_cos = each(aten.sin.default, to(aten.cos.default))
exp_is_expm1 = each(aten.exp.default, to(aten.expm1.default))
where_the_other_way = each(aten.where.self, args(lambda c, a, b: (c, b, a)))
no_lower_bound = each(aten.clamp.default, args(lambda x, _, high: (x, None, high)))
no_alpha = each(aten.add.Tensor, kwargs(alpha=1))
max_is_min = each(aten.maximum.default, to(aten.minimum.default))
cube_is_square = each(aten.pow.Tensor_Scalar, args(lambda x, n: (x, 2)))
mean_of_rows = each(aten.mean.dim, args(lambda x, d, *_: (x, [0], False)))
lost_negation = each(aten.neg.default, drop)
raises_on_tanh = each(aten.tanh.default, raises(IndexError))
floor_is_trunc = each(aten.floor.default, to(aten.trunc.default))
sorted_backwards = each(aten.flip.default, drop)

# forward: after the partition
sqrt_is_lost = each(aten.sqrt.default, drop)
less_is_greater = each(aten.lt.Scalar, to(aten.gt.Scalar))
abs_is_lost = each(aten.abs.default, drop)
raises_on_log = each(aten.log.default, raises(KeyError))

# backward
gradient_of_tanh = each(aten.tanh_backward.default, args(lambda g, y: (g, g)))
gradient_of_gelu = each(aten.gelu_backward.default, kwargs(approximate="tanh"))
gradient_negated = each(aten.div.Tensor, scaled(-1.0))
gradient_summed_twice = each(aten.sum.dim_IntList, scaled(2.0))

# frozen: parameters are constants
weights_scaled = constants(scaled(1.1))
tanh_is_sigmoid = each(aten.tanh.default, to(aten.sigmoid.default))
bias_lost = each(aten.addmm.default, lambda n: (to(aten.mm.default)(n), args(lambda b, *m: m)(n)))

# wrong, and hidden by what comes after
slightly_wrong_exp = each(aten.exp.default, scaled(1.25))
slightly_wrong_sqrt = each(aten.sqrt.default, scaled(1.25))
slightly_wrong_weights = constants(scaled(1.5))
slightly_wrong_sub = each(torch.sub, args(lambda a, b: (b, a)))


# pairs
def mark_sines(gm: GraphModule) -> None:
    """Right by itself: it marks what a later pass may take for even functions."""
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            node.meta["even"] = True


def drop_signs(gm: GraphModule) -> None:
    """Drop a negation in front of what is marked as even: only cosines should be."""
    for node in list(gm.graph.nodes):
        if node.meta.get("even") and node.args[0].target is aten.neg.default:
            node.args = (node.args[0].args[0],)


def split_exp(gm: GraphModule) -> None:
    """Right by itself: exp(x) is exp2(x / ln 2)."""
    for node in list(gm.graph.nodes):
        if node.target is aten.exp.default:
            with gm.graph.inserting_before(node):
                scaled_ = gm.graph.call_function(
                    aten.mul.Tensor, (node.args[0], 1.4426950408889634)
                )
            node.target, node.args = aten.exp2.default, (scaled_,)


exp2_is_exp = each(aten.exp2.default, to(aten.exp.default))

for _name, _value in list(globals().items()):
    if callable(_value) and getattr(_value, "__name__", "") == "wrong":
        _value.__name__ = _name
