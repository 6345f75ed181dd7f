"""Writes in place, which a pass must see, and signs of complex zeros."""

import pytest
import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ctk.compiler.passes.joint import (
    eliminate_common_subexpressions,
    fold_constants,
    remove_noops,
    scatter_to_where,
    simplify_views,
)
from ctk.compiler.passes.post_grad import fuse_addmm, simplify_split_cat
from ctk.compiler.torch_compat.fake import fake_tensors as fake
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
        given = tuple(named(arg, nodes) for arg in args)
        nodes[name] = graph.call_function(target, given)
    graph.output([nodes[calls[-1][0]]])
    return typed(fx.GraphModule(root, graph), *(torch.ones(2, 2) for _ in inputs))


def named(arg, nodes):
    """Return an argument with nodes in place of their names."""
    if isinstance(arg, list):
        return [named(each, nodes) for each in arg]
    return nodes.get(arg, arg) if isinstance(arg, str) else arg


def typed(gm, *inputs):
    """Write the type of each node on it."""
    mode = fake.new_fake_mode()
    fakes = [fake.to_fake(each, mode) for each in inputs]
    with torch.no_grad():
        FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)
    return gm


def test_complex_numbers_keep_both_negations():
    """neg(neg(-0.0)) of a vector of complex numbers is 0.0, not -0.0."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    result = graph.call_function(NEG, (graph.call_function(NEG, (x,)),))
    graph.output([graph.call_function(aten.clone.default, (result,))])
    given = torch.ones(2, 2, dtype=torch.complex128)
    gm = typed(fx.GraphModule(torch.nn.Module(), graph), given)
    assert not rules_of(run_pass(gm, simplify_views.PASS))


MM, ADD, NEG, FILL = aten.mm.default, aten.add.Tensor, aten.neg.default, aten.fill_.Scalar
SIN, CLONE, VIEW = aten.sin.default, aten.clone.default, aten.view.default
SELECT, SLICE = aten.select.int, aten.slice.Tensor
CASES = [
    (fuse_addmm, "abc", "", [("p", MM, "ab"), ("r", ADD, "pc")], ("w", FILL, ("a", 3)), 1),
    (simplify_views, "x", "", [("n", NEG, "x"), ("m", NEG, "n"), ("r", ADD, "mm")],
     ("w", FILL, ("n", 3)), 1),
    (eliminate_common_subexpressions, "x", "", [("n", NEG, "x"), ("m", NEG, "x"), ("r", ADD, "nm")],
     ("w", FILL, ("n", 3)), 2),
    (remove_noops, "x", "", [("s", SIN, "x"), ("c", CLONE, "s"), ("r", ADD, "cs")],
     ("w", FILL, ("c", 3)), 2),
    (simplify_split_cat, "x", "", [("c", CLONE, "x"), ("a", SELECT, ("c", 0, 0)),
     ("b", SELECT, ("c", 0, 1)), ("s", aten.stack.default, (["a", "b"],)), ("r", NEG, "s")],
     ("w", FILL, ("c", 3)), 1),
    (simplify_split_cat, "xy", "", [("c", aten.cat.default, (["x", "y"],)),
     ("p", SLICE, ("c", 0, 0, 2)), ("r", NEG, "p")], ("w", FILL, ("c", 3)), 1),
    (scatter_to_where, "x", "", [("u", aten.zeros_like.default, "x"), ("v", VIEW, ("u", [4])),
     ("i", aten.argmax.default, ("x", 1, True)), ("s", aten.scatter.value, ("u", 1, "i", 2.0)),
     ("r", NEG, "s")], ("w", FILL, ("v", 3)), 2),
    (fold_constants, "x", "c", [("n", NEG, "c"), ("r", ADD, "nx")], ("w", FILL, ("c", 3)), 0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0].PASS.name for case in CASES])
def test_a_write_in_place_keeps_a_rule_from_firing(case):
    module, inputs, constants, calls, write, at = case
    stage = "forward" if "post_grad" in module.__name__ else "joint"
    gm = build(calls, inputs=inputs, constants=constants)
    assert rules_of(run_pass(gm, module.PASS, stage=stage))
    written = build([*calls[:at], write, *calls[at:]], inputs=inputs, constants=constants)
    assert not rules_of(run_pass(written, module.PASS, stage=stage))


def test_a_constant_that_a_write_reads_is_folded() -> None:
    calls = [("n", NEG, "c"), ("w", aten.copy_.default, "xn"), ("r", ADD, "wx")]
    made = run_pass(build(calls, inputs="x", constants="c"), fold_constants.PASS, stage="joint")
    assert len(rules_of(made)) == 1
    calls = [("n", NEG, "c"), ("w", aten.copy_.default, "nx"), ("r", ADD, "nx")]
    assert not rules_of(run_pass(build(calls, inputs="x", constants="c"), fold_constants.PASS))
