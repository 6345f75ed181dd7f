"""Patterns beyond trees: shared nodes, several results, arguments as the schema fills them."""

from functools import partial

import pytest
import torch

from ctk.compiler.patterns.expression import ANY, Dim, Match, Op, Size, Var
from ctk.compiler.patterns.matcher import (
    HandlerRule,
    Rule,
    RuleTable,
    apply_rules,
    explain,
    why_not,
)
from ctk.compiler.patterns.solve import find, matches
from ctk.compiler.rewriting.base import Pass
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten = torch.ops.aten
X, Y = torch.randn(4, 4), torch.randn(4, 4)
A, B, C = Var("a"), Var("b"), Var("c")


def last(function, *inputs):
    output = aten_graph(function, *inputs).graph.output_node()
    return output.all_input_nodes[-1]


def is_found(pattern, function, *inputs):
    return isinstance(find(pattern, last(function, *inputs)), Match)


def test_a_part_used_twice_is_one_node():
    sine = Op(aten.sin.default, (A,))
    pattern = Op(aten.mul.Tensor, (sine, sine))

    def shared(x):
        y = x.sin()
        return y * y

    assert is_found(pattern, shared, X)
    assert not is_found(pattern, lambda x: x.sin() * x.sin(), X)
    assert is_found(
        Op(aten.mul.Tensor, (Op(aten.sin.default, (A,)), Op(aten.sin.default, (A,)))),
        lambda x: x.sin() * x.sin(),
        X,
    )


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x: aten.sum.dim_IntList(x, [1]), True),
        (lambda x: aten.sum.dim_IntList(x, [1], False), True),
        (lambda x: aten.sum.dim_IntList(x, [1], False, dtype=None), True),
        (lambda x: aten.sum.dim_IntList(x, [1], keepdim=True), False),
        (lambda x: aten.sum.dim_IntList(x, [0]), False),
        (lambda x: aten.sum.dim_IntList(x, [0, 1]), False),
        (lambda x: aten.sum.dim_IntList(x, [1], dtype=torch.float64), False),
    ],
)
def test_arguments_are_compared_as_the_schema_fills_them(function, found):
    for pattern in (
        Op(aten.sum.dim_IntList, (A, [1])),
        Op(aten.sum.dim_IntList, (A,), {"dim": [1], "keepdim": False}),
    ):
        assert is_found(pattern, function, X) is found


def test_arguments_that_an_operator_does_not_take_are_an_error():
    with pytest.raises(TypeError, match=r"aten.sin.default takes no .*'alpha'"):
        Op(aten.sin.default, (A,), {"alpha": 1})


def test_variables_in_lists():
    pattern = Op(aten.cat.default, ([A, A], 1))
    assert is_found(pattern, lambda x: torch.cat([x, x], 1), X)
    assert not is_found(pattern, lambda x, y: torch.cat([x, y], 1), X, Y)
    assert not is_found(pattern, lambda x: torch.cat([x, x, x], 1), X)


def test_dimensions_counted_from_the_end():
    pattern = Op(aten.transpose.int, (A, Dim(-2), Dim(-1)))
    for dims in ((0, 1), (1, 0), (-1, 0), (-2, -1)):
        assert is_found(pattern, partial(torch.transpose, dim0=dims[0], dim1=dims[1]), X)
    assert not is_found(pattern, lambda x: x.transpose(0, 1), X[None])


def test_sizes():
    function = lambda x: x.view(16)  # noqa: E731
    assert is_found(Op(aten.view.default, (A, [Size("16")])), function, X)
    assert is_found(Op(aten.view.default, (A, ANY)), function, X)
    assert not is_found(Op(aten.view.default, (A, [Size("8")])), function, X)


def test_deep_sums_match_in_any_order():
    pattern = Op(aten.mul.Tensor, (A, A))
    for name in "bcdef":
        pattern = Op(aten.add.Tensor, (pattern, Op(aten.neg.default, (Var(name),))))

    def summed(depth, x):
        total = x * x
        for i in range(depth):
            other = (x + i).neg()
            total = total + other if i % 2 else other + total
        return total

    assert is_found(pattern, lambda x: summed(5, x), X)
    assert not is_found(pattern, lambda x: summed(4, x), X)


def test_a_long_chain_of_sums_is_not_tried_in_all_orders():
    part, depth = Op(aten.sin.default, (A,)), 60
    for _ in range(depth):
        part = Op(aten.add.Tensor, (part, B))

    def function(x, y):
        x = x.cos()
        for _ in range(depth):
            x = y + x
        return x

    missed = []
    assert list(matches(part, last(function, X, Y), missed)) == []
    assert len(missed) < 2 * depth


def both_of_two(x, y):
    out = x.relu()
    return out, torch.where(out > 0, y, 0.0)


OUT = Op(aten.relu.default, (A,))
TWO = (OUT, Op(aten.where.self, (Op(aten.gt.Scalar, (OUT, 0)), B, C)))


def test_a_pattern_with_several_results():
    graph = aten_graph(both_of_two, X, Y).graph
    relu = next(n for n in graph.nodes if n.target is aten.relu.default)
    match = find(TWO, relu)
    assert isinstance(match, Match)
    assert [node.name for node in match.outputs] == ["relu", "where"]
    assert [node.name for node in match.inner] == ["gt"]


def test_a_pattern_with_several_results_needs_all_of_them():
    def other(x, y):
        out = x.relu()
        return out, torch.where(out > 1, y, 0.0), torch.where(x > 0, y, 0.0)

    graph = aten_graph(other, X, Y).graph
    mismatch = find(TWO, next(n for n in graph.nodes if n.target is aten.relu.default))
    assert str(mismatch) == "an operand is 1, not 0"


class Rules(Pass):
    """Applies the rules of a test."""

    name = "rules"
    numerics = "reassociates"

    def __init__(self, *rules):
        object.__setattr__(self, "table", RuleTable(*rules))

    __slots__ = ("table",)

    def run(self, rewriter) -> None:
        apply_rules(rewriter, self.table)


def swap(rewriter, match):
    return rewriter.insert(aten.cos.default, (match.node("a"),), before=match.root)


@pytest.mark.parametrize(("keeps_inner", "fires"), [(True, True), (False, False)])
def test_an_inner_value_that_something_else_needs(keeps_inner, fires):
    pattern = Op(aten.neg.default, (Op(aten.sin.default, (A,)),))
    rule = Rule("neg(sin) -> cos", pattern, swap, keeps_inner=keeps_inner)

    def function(x):
        y = x.sin()
        return y.neg() + 1, y * 2

    gm = aten_graph(function, X)
    node = next(n for n in gm.graph.nodes if n.target is aten.neg.default)
    assert explain(rule, node) == (None if fires else "mul, outside the match, needs sin")
    assert bool(rules_of(run_pass(gm, Rules(rule)))) is fires
    assert any(n.target is aten.sin.default for n in gm.graph.nodes)


def test_all_results_are_replaced_in_one_rewrite():
    def replace(rewriter, match):
        x, y = match.node("a"), match.node("b")
        new = rewriter.insert(aten.clamp.default, (x, 0), before=match.root)
        return new, rewriter.insert(aten.mul.Tensor, (y, new), before=match.outputs[1])

    gm = aten_graph(both_of_two, X, Y)
    record = run_pass(gm, Rules(Rule("two", TWO, replace, keeps_inner=False)))
    assert rules_of(record) == ["two"]
    assert [n.name for n in gm.graph.output_node().all_input_nodes] == [
        "clamp_default",
        "mul_tensor",
    ]


def test_a_handler_rewrites_itself():
    seen = []

    def handler(rewriter, match):
        seen.append(match.root.name)
        rewriter.rewrite("mine", [match.root], lambda graph: None)

    gm = aten_graph(lambda x: x.sin().sin(), X)
    rule = HandlerRule("handler", Op(aten.sin.default, (Op(aten.sin.default, (A,)),)), handler)
    assert rules_of(run_pass(gm, Rules(rule))) == ["mine"]
    assert seen == ["sin_1"]


def test_why_not_over_a_graph():
    graph = aten_graph(lambda x: (x.cos().neg(), x.exp().sin().neg()), X).graph
    deep = Op(aten.neg.default, (Op(aten.sin.default, (Op(aten.tan.default, (A,)),)),))
    reason = why_not(Rule("r", deep, swap), graph)
    assert reason == (
        "at neg_1: 2 of 3 nodes match, then exp is a aten.exp.default, not a aten.tan.default"
    )
    assert why_not(Rule("r", Op(aten.tan.default, (A,)), swap), graph) == (
        "no node calls aten.tan.default"
    )
    cosine = Op(aten.neg.default, (Op(aten.cos.default, (A,)),))
    assert why_not(Rule("r", cosine, swap), graph) is None
    assert why_not(Rule("r", cosine, swap, lambda match: "no"), graph) == "at neg: no"


def times(constant, x):
    return aten.mul.Tensor(x, constant)


def test_constants_are_compared_with_their_sign_and_type():
    constants = (0.0, -0.0, 1, 1.0, True, float("nan"))
    for constant in constants:
        pattern = Op(aten.mul.Tensor, (A, constant))
        others = [each for each in constants if each is not constant]
        assert is_found(pattern, partial(times, constant), X)
        for other in others:
            assert not is_found(pattern, partial(times, other), X)


def test_a_result_that_is_used_in_a_list_is_found():
    sine = Op(aten.sin.default, (A,))
    graph = aten_graph(lambda x, y: torch.cat([y, x.sin()]), X, Y).graph
    node = next(n for n in graph.nodes if n.target is aten.sin.default)
    assert isinstance(find((sine, Op(aten.cat.default, ([B, sine],))), node), Match)
    missed = find((sine, Op(aten.cos.default, (sine,))), node)
    assert str(missed) == "no aten.cos.default uses sin"


@pytest.mark.parametrize("written", ["operand", "view", "other"])
def test_a_write_between_the_nodes_of_a_match(written):
    def function(x, other):
        y = x.sin()
        {"operand": x, "view": x[0], "other": other}[written].add_(1)
        return y.neg() + 1

    pattern = Op(aten.neg.default, (Op(aten.sin.default, (A,)),))
    rule = Rule("neg(sin) -> cos", pattern, swap, keeps_inner=False)
    graph = aten_graph(function, X, Y).graph
    node = next(n for n in graph.nodes if n.target is aten.neg.default)
    reason = explain(rule, node)
    if written == "other":
        assert reason is None
    else:
        assert reason == "add_ writes, between sin and neg, to their operands"


def test_rules_that_cannot_match_are_not_tried():
    tan = Op(aten.tan.default, (Op(aten.sin.default, (A,)),))
    either = Op(aten.tan.default, (Op(aten.add.Tensor, (A, tan)),))
    rules = [Rule(str(n), each, swap) for n, each in enumerate((either, tan, either))]
    table = RuleTable(*rules)
    for function, found in (
        (lambda x: x.sin().tan(), "1"),
        (lambda x: (x + 1).tan(), "02"),
        (lambda x: x.tan(), ""),
    ):
        assert "".join(rule.name for rule in table.at(last(function, X))) == found


def test_a_replacement_may_use_what_it_replaces():
    def replace(rewriter, match):
        return rewriter.insert(aten.neg.default, (match.root,), before=match.root.next)

    rule = Rule("cos -> neg(cos)", Op(aten.cos.default, (A,)), replace)
    gm = aten_graph(lambda x: x.cos().sin(), X)
    assert rules_of(run_pass(gm, Rules(rule))) == ["cos -> neg(cos)"]
    assert torch.equal(gm(X), X.cos().neg().sin())
