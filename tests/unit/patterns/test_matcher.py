"""Rules: found by their root, commutative in either order, and a reason where one does not fire."""

import logging

import pytest
import torch

from ctk.compiler.passes.joint import simplify_views
from ctk.compiler.passes.post_grad import fuse_addmm
from ctk.compiler.patterns.expression import Match, Op, Var
from ctk.compiler.patterns.matcher import Rule, RuleTable, apply_rules, explain
from ctk.compiler.patterns.solve import find
from ctk.compiler.rewriting.base import Pass
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten = torch.ops.aten
X, Y, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
(ADDMM,) = fuse_addmm.RULES.rules
RULES = {rule.name: rule for rule in (*simplify_views.RULES.rules, ADDMM)}


def last(function, *inputs):
    """Return the node whose value a function returns."""
    output = next(n for n in aten_graph(function, *inputs).graph.nodes if n.op == "output")
    return output.all_input_nodes[-1]


@pytest.mark.parametrize(
    "function", [lambda x, y, b: torch.mm(x, y) + b, lambda x, y, b: b + torch.mm(x, y)]
)
def test_one_rule_covers_both_orders_of_a_commutative_operator(function):
    gm = aten_graph(lambda *values: function(*values).relu(), X, Y, B)
    record = run_pass(gm, fuse_addmm.PASS, stage="forward")
    assert rules_of(record) == ["add(mm(a, b), c) -> addmm(c, a, b)"]
    addmm = next(n for n in gm.graph.nodes if n.target is aten.addmm.default)
    assert [n.name for n in addmm.args] == ["arg2_1", "arg0_1", "arg1_1"]
    assert addmm.meta["val"].shape == (4, 4)


def test_rules_are_found_by_the_operator_of_their_root():
    node = last(lambda x: x.t().t(), X)
    assert [rule.name for rule in simplify_views.RULES.at(node)] == ["t(t(x)) -> x"]
    assert simplify_views.RULES.at(node.args[0].args[0]) == ()  # a placeholder


def test_a_variable_stands_for_the_same_thing_everywhere():
    pattern = Op(aten.mul.Tensor, (Var("x"), Var("x")))
    assert isinstance(find(pattern, last(lambda x: x * x, X)), Match)
    mismatch = find(pattern, last(lambda x, y: x * y, X, Y))
    assert str(mismatch) == "an operand is y_1, not what 'x' stands for"


@pytest.mark.parametrize(
    ("s", "again", "matches"), [(2, 2, True), (2, 2.0, False), (1, True, False)]
)
def test_a_variable_that_is_a_number_stands_for_its_type_too(s, again, matches):
    """`x * 2 * 2.0` makes floats of ints: a rule for `x * s * s` must not take it."""
    pattern = Op(aten.mul.Tensor, (Op(aten.mul.Tensor, (Var("x"), Var("s"))), Var("s")))
    assert isinstance(find(pattern, last(lambda x: x * s * again, X)), Match) is matches


@pytest.mark.parametrize(
    ("rule", "function", "inputs", "expected"),
    [
        ("t(t(x)) -> x", lambda x: x.t().t(), (X,), None),
        (
            "t(t(x)) -> x",
            lambda x: x.sin(),
            (X,),
            "sin is a aten.sin.default, not a aten.t.default",
        ),
        ("t(t(x)) -> x", lambda x: x.exp().t(), (X,), "exp is a aten.exp.default, not a aten.t"),
        ("neg(neg(x)) -> x", lambda x: x.neg().neg(), (X,), "neg_1 leaves the graph: its caller"),
        (ADDMM.name, lambda x, y, b: torch.add(b, x @ y, alpha=2), (X, Y, B), "with other argu"),
        (ADDMM.name, lambda x, y, b: b + x @ y, (X, Y, B.double()), "the bias is float64[4]"),
        (ADDMM.name, lambda x, y, b: b.t() + x @ y, (X, Y, Y), "has another layout"),
    ],
)
def test_a_rule_says_why_it_does_not_fire(rule, function, inputs, expected):
    reason = explain(RULES[rule], last(function, *inputs))
    if expected is None:
        assert reason is None
    else:
        assert expected in reason


def test_the_part_of_the_pattern_that_got_furthest_is_the_reason():
    rule = Rule("r", Op(aten.add.Tensor, (Op(aten.mm.default, (Var("a"), 3)), Var("c"))), None)
    node = last(lambda x, y, b: b + torch.mm(x, y), X, Y, B)
    assert explain(rule, node) == "an operand is y_1, not 3"


def test_a_refusal_is_logged(caplog):
    caplog.set_level(logging.DEBUG, "ctk.patterns")
    gm = aten_graph(lambda x, y, b: (torch.mm(x, y) + b, b + torch.mm(x, y)), X, Y, B.double())
    run_pass(gm, fuse_addmm.PASS, stage="forward")
    messages = [r.getMessage() for r in caplog.records if r.name == "ctk.patterns"]
    assert len(messages) == 2
    assert "does not fire at add: the bias is" in messages[0]


def test_the_first_rule_in_table_order_wins():
    table = RuleTable(
        Rule("first", Op(aten.sin.default, (Var("x"),)), lambda _, match: match.node("x")),
        Rule("second", Op(aten.sin.default, (Var("x"),)), lambda _, match: match.node("x")),
    )
    assert [rule.name for rule in table.at(last(torch.sin, X))] == ["first", "second"]


A, C, D = Var("a"), Var("c"), Var("d")
TWO_WAYS = RuleTable(
    Rule("a + d -> a", Op(aten.add.Tensor, (A, D)), lambda _, match: match.node("a")),
    Rule("any sum -> c", Op(aten.add.Tensor, (C, D)), lambda _, match: match.node("c")),
)


class Sums(Pass):
    """Sums match in two orders and by two rules."""

    name = "sums"

    def run(self, rewriter) -> None:
        apply_rules(rewriter, TWO_WAYS)


def test_a_vetoed_node_is_left_alone_and_later_rewrites_keep_their_numbers():
    def function(x, y):
        return ((x + y).relu() + x).neg()

    vetoed = Recorder(Veto(rewrites=frozenset({1})))
    made = run_pass(aten_graph(function, X, Y), Sums()).rewrites
    left = run_pass(aten_graph(function, X, Y), Sums(), observer=vetoed).rewrites
    assert [(each.id.number, each.vetoed) for each in made] == [(1, False), (2, False)]
    assert [(each.id.number, each.vetoed) for each in left] == [(1, True), (2, False)]
    assert [each.id for each in left] == [each.id for each in made]
