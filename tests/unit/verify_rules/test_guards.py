"""What verify-rules refuted of our passes: writes in place, which they must see."""

import pytest
import torch
from torch import fx

from ctk.compiler.passes.joint import (
    eliminate_common_subexpressions,
    fold_constants,
    simplify_views,
)
from ctk.compiler.passes.post_grad import fuse_addmm
from ctk.toolkit.verify_rules.graphs import DrawnGraph, add_types
from tests.helpers.passes import rules_of, run_pass

aten = torch.ops.aten


def build(calls, *, inputs=(), constants=()):
    """Return a typed graph of `(name, target, args)`, whose last call is the result."""
    graph, root, nodes = fx.Graph(), torch.nn.Module(), {}
    for name in inputs:
        nodes[name] = graph.placeholder(name)
    for name in constants:
        root.register_buffer(name, torch.ones(2, 2))
        nodes[name] = graph.get_attr(name)
    for name, target, args in calls:
        given = tuple(nodes.get(arg, arg) if isinstance(arg, str) else arg for arg in args)
        nodes[name] = graph.call_function(target, given)
    graph.output([nodes[calls[-1][0]]])
    built = DrawnGraph(fx.GraphModule(root, graph), tuple(torch.ones(2, 2) for _ in inputs))
    add_types(built, dynamic=False)
    return built.graph


def test_complex_numbers_keep_both_negations():
    """neg(neg(-0.0)) of a vector of complex numbers is 0.0, not -0.0."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(NEG, (graph.call_function(NEG, (x,)),))
    graph.output([graph.call_function(aten.clone.default, (result,))])
    given = torch.ones(2, 2, dtype=torch.complex128)
    built = DrawnGraph(fx.GraphModule(torch.nn.Module(), graph), (given,))
    add_types(built, dynamic=False)
    assert not rules_of(run_pass(built.graph, simplify_views.PASS))


MM, ADD, NEG, FILL = aten.mm.default, aten.add.Tensor, aten.neg.default, aten.fill_.Scalar
CASES = [
    (fuse_addmm, "abc", "", [("p", MM, "ab"), ("r", ADD, "pc")], ("w", FILL, ("a", 3)), 1),
    (simplify_views, "x", "", [("n", NEG, "x"), ("m", NEG, "n"), ("r", ADD, "mm")],
     ("w", FILL, ("n", 3)), 1),
    (eliminate_common_subexpressions, "x", "", [("n", NEG, "x"), ("m", NEG, "x"), ("r", ADD, "nm")],
     ("w", FILL, ("n", 3)), 2),
    (fold_constants, "x", "c", [("n", NEG, "c"), ("r", ADD, "nx")], ("w", FILL, ("c", 3)), 0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0].PASS.name for case in CASES])
def test_a_write_in_place_keeps_a_rule_from_firing(case):
    module, inputs, constants, calls, write, at = case
    stage = "forward" if module is fuse_addmm else "joint"
    gm = build(calls, inputs=inputs, constants=constants)
    assert rules_of(run_pass(gm, module.PASS, stage=stage))
    written = build([*calls[:at], write, *calls[at:]], inputs=inputs, constants=constants)
    assert not rules_of(run_pass(written, module.PASS, stage=stage))
