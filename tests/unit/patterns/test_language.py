"""Lists, repeated parts, several targets, methods, modules and keywords in patterns."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ctk.compiler.patterns import (
    ANY,
    ListOf,
    Op,
    Repeated,
    RuleTable,
    Var,
    explain,
    register_handler,
    register_rule,
    why_not,
)
from ctk.compiler.patterns.solve import matches
from ctk.compiler.rewriting.base import Pass
from tests.helpers.passes import rules_of, run_pass, torch_graph

X = torch.randn(4, 3)
x, i = Var("x"), Var("i")
split = Op(torch.split, (x, ANY), {"dim": Var("dim")})
item = Op(operator.getitem, (split, i))
joined = Op((torch.cat, torch.stack), (ListOf(item, same=(split,)), ANY))
squeezed = Repeated(Op((torch.squeeze, "squeeze"), (item, Var("dim"))), of=split)


class Table(Pass):
    """Runs a table of rules."""

    name = "table"

    def __init__(self, table):
        object.__setattr__(self, "table", table)

    def run(self, rewriter):
        self.table(rewriter)


def node_of(gm, target):
    return next(node for node in gm.graph.nodes if node.target == target)


def apply(table, gm):
    return rules_of(run_pass(gm, Table(table), stage="pre_grad"))


def split_and_joined(x):
    a, b, c = torch.split(x, [1, 1, 1], 1)
    return torch.cat([c, a, b], dim=1)


def test_a_list_matches_any_number_of_items():
    cat = node_of(torch_graph(split_and_joined, X), torch.cat)
    (match,) = matches(joined, cat)
    assert match.bound["i"] == (2, 0, 1)
    assert match.bound["dim"] == 1
    assert [node.target for node in match.inner].count(operator.getitem) == 3
    assert match.node("x").op == "placeholder"


def two_splits(x):
    a, b, c = torch.split(x, [1, 1, 1], 1)
    d, e, f = torch.split(x.sin(), [1, 1, 1], 1)
    return torch.cat([a, d], 1), b, c, e, f


def test_a_call_of_all_items_stands_for_one_node():
    gm = torch_graph(two_splits, X)
    other = Op(torch.cat, (ListOf(item), ANY))
    cat = node_of(gm, torch.cat)
    assert not [*matches(joined, cat)]
    table = RuleTable()
    register_rule(table, joined, name="join")(lambda rewriter, match: match.node("x"))
    (rule,) = table.rules
    reason = "item 1 of the list: an operand is split_1, not split"
    assert explain(rule, cat) == reason
    assert why_not(rule, gm.graph) == f"at cat: 3 of 3 nodes match, then {reason}"
    (match,) = matches(other, cat)  # a split of its own in each
    assert [node.op for node in match.bound["x"]] == ["placeholder", "call_method"]


def test_a_partial_list_skips_items_but_not_all():
    partial = Op(torch.cat, (ListOf(item, same=(split,), partial=True), ANY))
    gm = torch_graph(lambda x: torch.cat([x, torch.split(x, 1, 1)[2]], 1), X)
    (match,) = matches(partial, node_of(gm, torch.cat))
    assert match.bound["i"] == (None, 2)
    gm = torch_graph(lambda x: torch.cat([x, x.sin()], 1), X)
    assert not [*matches(partial, node_of(gm, torch.cat))]
    gm = torch_graph(lambda x: torch.cat(torch.split(x, 1, 1), 1), X)
    assert not [*matches(partial, node_of(gm, torch.cat))]  # a list is one node here


def squeezes(x):
    a, b, c = torch.split(x, 1, 1)
    return a.squeeze(1) + torch.squeeze(b, dim=1) * torch.squeeze(c, 1)


def test_a_repeated_part_matches_every_use_at_the_first():
    table = RuleTable()

    @register_rule(table, squeezed, guard=lambda match: None)
    def unbound(rewriter, match):
        call = rewriter.inserter(match.root)
        new = call(torch.unbind, match.node("x"), 1)
        return [call(operator.getitem, new, place) for place in match.bound["i"]]

    gm = torch_graph(squeezes, X)
    assert apply(table, gm) == ["unbound"]
    assert torch.equal(gm(X), squeezes(X))
    assert {node.target for node in gm.graph.nodes}.isdisjoint({torch.split, torch.squeeze})
    gm = torch_graph(lambda x: squeezes(x) + torch.split(x, 1, 1)[0].squeeze(1), X)
    assert apply(table, gm) == ["unbound", "unbound"]


def test_a_repeated_part_names_the_use_that_differs():
    table = RuleTable()
    register_rule(table, squeezed, name="unbind")(lambda rewriter, match: match.outputs)

    def program(x):
        a, b, c = torch.split(x, 1, 1)
        return a.squeeze(1) + b.sin() * c.squeeze(1)

    gm = torch_graph(program, X)
    reason = "item 1 of the list: sin is a sin, not a "
    assert reason in why_not(table.rules[0], gm.graph)
    last = [node for node in gm.graph.nodes if node.target == "squeeze"][-1]
    assert explain(table.rules[0], last) == "squeeze is found first, with the other uses"
    with pytest.raises(ValueError, match="is not an operand of the repeated part"):
        Repeated(item, of=joined)


class Activations(nn.Module):
    """One function in three spellings, and a module of a subclass."""

    def __init__(self):
        super().__init__()
        self.act, self.six = nn.ReLU(), nn.ReLU6()

    def forward(self, x):
        return self.act(F.relu(x.relu())), self.six(x.relu())


ACTIVATIONS = (F.relu, "relu", nn.ReLU)


def test_targets_are_functions_methods_and_modules():
    table, seen = RuleTable(), []

    @register_handler(table, Op(ACTIVATIONS, (x,)))
    @register_handler(table, Op(nn.Hardtanh, (x,)), name="clamp")
    def note(rewriter, match):
        seen.append(match.root.name)

    apply(table, torch_graph(Activations(), X))
    assert seen == ["relu", "relu_1", "act", "relu_2", "six"]


def test_operands_are_modules_too():
    inner = Op(ACTIVATIONS, (x,))
    table = RuleTable()
    register_rule(table, Op(ACTIVATIONS, (inner,)), name="relu twice")(
        lambda rewriter, match: match.inner[0]
    )
    gm = torch_graph(Activations(), X)
    assert apply(table, gm) == ["relu twice", "relu twice"]
    for new, old in zip(gm(X), Activations()(X), strict=True):
        assert torch.equal(new, old)
    six = node_of(gm, "six")
    assert explain(table.rules[0], six) == (f"six is a ReLU6, not a {F.relu} or relu or ReLU")
    assert why_not(table.rules[0], torch_graph(lambda x: x.sin(), X).graph) == (
        f"no node calls {F.relu} or relu or ReLU"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.sum(x, 1, True),
        lambda x: torch.sum(x, dim=1, keepdim=True),
        lambda x: x.sum(1, keepdim=True),
        lambda x: torch.sum(input=x, keepdim=True, dim=1),
    ],
)
def test_arguments_match_by_name_and_by_position(function):
    pattern = Op((torch.sum, "sum"), (x,), {"keepdim": True, "dim": Var("dim")})
    gm = torch_graph(function, X)
    (root,) = gm.graph.output_node().all_input_nodes
    (match,) = matches(pattern, root)
    assert match.bound["dim"] == 1
    assert not [*matches(Op((torch.sum, "sum"), (x, 1)), root)]  # it does not keep the dimension


def test_a_call_that_may_stay_has_other_users():
    def program(x):
        y = torch.sin(x)
        return torch.neg(y), y

    def rule_of(may_stay):
        table = RuleTable()
        inner = Op(torch.sin, (x,), may_stay=may_stay)
        register_rule(table, Op(torch.neg, (inner,)), name="odd")(
            lambda rewriter, match: rewriter.insert(
                torch.sin,
                (rewriter.insert(torch.neg, (match.node("x"),), before=match.root),),
                before=match.root,
            )
        )
        return table

    gm = torch_graph(program, X)
    assert apply(rule_of(False), gm) == []
    assert apply(rule_of(True), gm) == ["odd"]
    torch.testing.assert_close(gm(X), program(X))
    assert [node.target for node in gm.graph.nodes].count(torch.sin) == 2


def test_a_pattern_needs_a_target_and_its_arguments():
    with pytest.raises(TypeError, match="an Op needs a target"):
        Op((), (x,))
    with pytest.raises(TypeError, match="takes no"):
        Op((torch.ops.aten.sin.default, torch.ops.aten.add.Tensor), (x,))
