"""Where an error is missing: at the operator that raises it in eager, whatever its node's name."""

import torch
from torch import fx

from ctk.toolkit.case.judgement import Verdict

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def returned(gm, example_inputs):
    return lambda x: x


def graph(op, target, name, size=7):
    made = fx.Graph()
    x = made.placeholder("x")
    made.output((made.create_node(op, target, (x, size), name=name),))
    return fx.GraphModule({}, made)


def test_a_renamed_node_is_the_same_failure(judged):
    first = judged(graph("call_method", "view", "reshaped"), (X,), returned)
    assert first.signature.kind == "missing-error"
    assert first.signature.where == "view"
    for other in (
        graph("call_method", "view", "another_name"),
        graph("call_function", torch.ops.aten.view.default, "aten_name", [7]),
    ):
        seen = judged(other, (X,), returned, expected=first.signature)
        assert seen.verdict is Verdict.REPRODUCES


def test_another_operator_is_another_failure(judged):
    first = judged(graph("call_method", "view", "same"), (X,), returned)
    seen = judged(graph("call_method", "reshape", "same"), (X,), returned, expected=first.signature)
    assert seen.verdict is Verdict.DIFFERENT


def test_a_module_is_named_by_its_type(judged):
    made = fx.Graph()
    made.output((made.call_module("layer", (made.placeholder("x"),)),))
    gm = fx.GraphModule({"layer": torch.nn.Linear(9, 2)}, made)
    assert judged(gm, (X,), returned).signature.where == "Linear"
