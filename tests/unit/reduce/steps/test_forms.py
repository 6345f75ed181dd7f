"""Steps about what tensors and arguments are: dtypes, layouts, gradients, devices, merging."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.argument_edits import SetArgument, UseDefaults
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import Replace
from ctk.toolkit.reduce.form_edits import (
    ConvertDtypes,
    ConvertTensors,
    DropGradients,
    MakeContiguous,
    MoveToCpu,
)
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps import (
    drop_gradients,
    merge_inputs,
    move_to_cpu,
    plain_inputs,
    simplify_arguments,
    simplify_dtypes,
    simplify_layouts,
)
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, op_names
from tests.helpers.reduce_steps import X, edits, proposals, traced

FLOAT, DOUBLE, HALF = torch.float32, torch.float64, torch.float16


def best_of(case: Case, predicate) -> Case:
    result = minimize(Problem(case, FakeOracle(predicate)))
    assert result.finished, result.problems
    return result.best


# --- dtypes ---------------------------------------------------------------------------------------


def mixed(x, y):
    return x.double().sin() + y.to(torch.float64), y.to(dtype=torch.float16)


def test_every_dtype_at_once_then_each_then_tensors():
    case = traced(mixed, X.double(), X.half())
    found = proposals(simplify_dtypes.STEP, case)
    pairs = ((DOUBLE, FLOAT), (HALF, FLOAT))
    assert edits(found[0]) == [ConvertDtypes(pairs)]
    assert edits(found[1]) == [ConvertDtypes((pair,)) for pair in pairs]
    assert edits(found[2]) == [ConvertTensors(("x",), FLOAT)]
    assert edits(found[1])[0].says() == "float64 -> float32 everywhere"


def test_a_dtype_goes_everywhere():
    case = traced(mixed, X.double(), X.half())
    result = ConvertDtypes(((DOUBLE, FLOAT), (HALF, FLOAT))).apply(case, facts_of(case))
    assert result is not None
    assert {v.dtype for v in (*result.inputs, *result.graph(*result.inputs))} == {FLOAT}
    assert ".double(" not in result.graph.code and "float64" not in result.graph.code
    assert case.inputs[0].dtype == DOUBLE and ".double(" in case.graph.code


def test_a_conversion_that_eager_refuses_is_none():
    case = traced(lambda x, y: x @ y, X.double(), X.double())
    assert ConvertTensors(("x",), FLOAT).apply(case, facts_of(case)) is None
    assert ConvertTensors(("x", "y"), FLOAT).apply(case, facts_of(case)) is not None


def test_tensors_that_share_memory_keep_their_dtype():
    case = traced(lambda x, y: x + y, X.double(), X.double())
    case = dataclasses.replace(case, inputs=(case.inputs[0], case.inputs[0].t()))
    assert ConvertDtypes(((DOUBLE, FLOAT),)).apply(case, facts_of(case)) is None


def test_only_the_dtype_that_is_needed_stays():
    case = captured(lambda x, y, i: x.sin() + y.cos()[i], X.double(), X.half(), X[0].int().abs())
    best = best_of(case, lambda c: has_ops("sin")(c) and any(v.dtype == DOUBLE for v in c.inputs))
    assert (op_names(best), [v.dtype for v in best.inputs]) == (["sin"], [DOUBLE])
    best = best_of(case, has_ops("sin"))
    assert (op_names(best), [v.dtype for v in best.inputs]) == (["sin"], [FLOAT])


# --- layouts, gradients, devices ------------------------------------------------------------------


def test_layouts():
    wide = X.repeat(1, 2)
    case = traced(lambda x, y, z: x + y + z, X.t(), wide[:, ::2], X.clone())
    (found,) = proposals(simplify_layouts.STEP, case)
    assert edits(found) == [MakeContiguous(("x",)), MakeContiguous(("y",))]
    best = best_of(case, lambda c: len(c.inputs) == 3 and not c.inputs[1].is_contiguous())
    assert [v.is_contiguous() for v in best.inputs] == [True, False, True]


def test_gradients_go_but_for_those_that_backward_needs():
    parameter = torch.nn.Parameter(X.clone())
    inputs = (parameter, X.clone().requires_grad_(), X)
    case = traced(lambda x, y, z: x + y + z, *inputs)
    (found,) = proposals(drop_gradients.STEP, case)
    assert edits(found) == [DropGradients(("x",)), DropGradients(("y",))]
    both = DropGradients(("x", "y")).apply(case, facts_of(case))
    assert both is not None
    assert [type(v) for v in both.inputs] == [torch.Tensor] * 3
    assert not any(v.requires_grad for v in both.inputs)
    backward = dataclasses.replace(case, modes=Modes(backward=True))
    assert DropGradients(("x", "y")).apply(backward, facts_of(case)) is None
    one = DropGradients(("x",)).apply(backward, facts_of(case))
    assert one is not None and [v.requires_grad for v in one.inputs] == [False, True, False]


def test_roles_go_with_parameters():
    case = captured(torch.nn.Linear(4, 4), X)
    names = tuple(name for name, role in case.roles.items() if role.kind == "parameter")
    result = DropGradients(names).apply(case, facts_of(case))
    assert result is not None and len(names) == 2 and not result.roles


def test_nothing_moves_to_the_cpu_from_there_and_literals_do():
    case = traced(lambda x: x + torch.zeros(4, device=torch.device("cpu")), X)
    assert proposals(move_to_cpu.STEP, case) == []
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.zeros, (4,), {"device": torch.device("cuda:0")})
    sent = graph.call_method("cuda", (x,))
    graph.output((graph.call_function(torch.add, (sent, made)),))
    facts = facts_of(case)
    result = MoveToCpu().apply(Case(torch.fx.GraphModule({}, graph), (X,)), facts)
    assert result is not None and torch.equal(result.graph(X)[0], X)


# --- all at once ----------------------------------------------------------------------------------


def test_all_inputs_become_plain_at_once():
    case = traced(lambda x, y: x + y, X.double().t().requires_grad_(), X.double())
    (found,) = proposals(plain_inputs.STEP, case)
    merged, edit = edits(found)
    one = merged.apply(case, facts_of(case))
    assert one is not None and len(one.inputs) == 1
    result = edit.apply(case, facts_of(case))
    assert result is not None and edit.says().endswith("x = zeros, y = zeros")
    assert all(v.dtype == FLOAT and v.is_contiguous() for v in result.inputs)
    assert not any(v.requires_grad or v.any() for v in result.inputs)
    result = minimize(Problem(case, FakeOracle(has_ops("add"))))
    assert result.statistics["plain_inputs"].useful == 1 and result.questions <= 8


def test_one_idea_alone_is_left_to_its_step():
    assert proposals(plain_inputs.STEP, traced(lambda x: x + 1, X)) == []


# --- merging --------------------------------------------------------------------------------------


def test_inputs_of_one_form_are_merged_into_the_first():
    case = traced(lambda x, y, z, u: x + y + z + u.sum(), X, X + 1, X + 2, X[0].clone())
    found = proposals(merge_inputs.STEP, case)
    assert edits(found[0]) == [Replace((("y", "x"),)), Replace((("z", "x"),))]
    assert edits(found[1]) == [Replace((("z", "y"),))]
    result = Replace((("y", "x"), ("z", "x"))).apply(case, facts_of(case))
    assert result is not None and len(result.inputs) == 2


def test_a_constant_is_read_from_an_input():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", X.clone() + 3)

        def forward(self, x):
            return x.sin() * self.table

    case = traced(Holding(), X)
    best = best_of(case, has_ops("mul"))
    assert len(best.inputs) == 1 and not best.graph.graph.find_nodes(op="get_attr")


def test_an_input_is_read_where_one_of_another_rank_was_if_the_readers_take_it():
    case = traced(lambda b, x, y: torch.addmm(b, x, y).sum() + b, X[0].clone(), X, X + 1)
    found = proposals(merge_inputs.STEP, traced(lambda x, y: x * y, X[0].clone(), X[:1].clone()))
    assert edits(found[0]) == [merge_inputs.ReadInstead((("y", "x"),))]
    assert edits(found[1]) == [merge_inputs.ReadInstead((("x", "y"),))]
    best = best_of(case, has_ops("addmm"))
    assert [tuple(v.shape) for v in best.inputs] == [(1, 1)]
    case = traced(lambda x, y: torch.mv(x, y), torch.ones(1, 1), torch.ones(1))
    oracle = FakeOracle(has_ops("mv"))
    best = minimize(Problem(case, oracle)).best
    assert len(best.inputs) == 2 and all(len(asked.inputs) == 2 for asked in oracle.asked)


def test_a_constant_of_another_rank_is_read_from_an_input():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(1, 1))

        def forward(self, x):
            return x.sin() * self.table, self.table

    best = best_of(traced(Holding(), torch.ones(1)), has_ops("mul"))
    assert len(best.inputs) == 1 and not best.graph.graph.find_nodes(op="get_attr")


def test_inputs_that_must_differ_stay_two():
    case = traced(lambda x, y: x * y, X, X + 1)
    best = best_of(case, lambda c: len(c.inputs) == 2 and not torch.equal(c.inputs[0], c.inputs[1]))
    assert len(best.inputs) == 2


# --- arguments ------------------------------------------------------------------------------------


def test_arguments_with_defaults_and_numbers():
    case = traced(lambda x: F.gelu(x.sum(0, True) * 7.5, approximate="tanh"), X)
    found = proposals(simplify_arguments.STEP, case)
    assert edits(found[0]) == [
        UseDefaults((("sum_1", 1),)),
        UseDefaults((("sum_1", 2),)),
        UseDefaults((("gelu", "approximate"),)),
    ]
    assert [edit.value for edit in edits(found[1])] == [4.0, 2.0, 1.0]
    assert edits(found[1])[0] == SetArgument("mul", 1, 7.5, 4.0)
    both = UseDefaults((("sum_1", 2), ("gelu", "approximate"))).apply(case, facts_of(case))
    assert both is not None
    assert "tanh" not in both.graph.code and "True" not in both.graph.code


def test_lists_of_values_get_shorter():
    case = traced(lambda x, y: torch.cat([x, y, x * 2, y]), X, X)
    best = best_of(case, has_ops("cat"))
    assert len(best.inputs) == 1
    assert "torch.cat([x])" in best.graph.code or "torch.cat([y])" in best.graph.code


def test_lists_that_are_as_long_get_shorter_together():
    def add(x, y):
        return torch._foreach_add([x, y, x], [y, x, y])[1]

    case = traced(add, X, X + 1)
    best = best_of(case, has_ops("_foreach_add"))
    (call,) = (node for node in best.graph.graph.nodes if node.target is torch._foreach_add)
    assert [len(each) for each in call.args] == [1, 1]


def test_an_argument_that_may_be_none_becomes_none():
    case = traced(lambda x: torch.ops.aten.sum.dim_IntList(x, [0]), X)
    best = best_of(case, has_ops("sum.dim_IntList"))
    assert "dim_IntList(x, None)" in best.graph.code


def test_any_input_of_a_form_serves_for_another():
    def needs(case):
        code, values = case.graph.code, [float(each.sum()) for each in case.inputs]
        return "sin" in code and "neg" in code and any(value < 0 for value in values)

    case = traced(lambda a, b: (a.sin(), b.neg()), X.abs(), -X.abs() - 1)
    best = best_of(case, needs)
    assert len(best.inputs) == 1 and float(best.inputs[0].sum()) == -1


def test_what_computes_an_argument_goes_with_it():
    image, kernel, bias = torch.rand(1, 2, 5, 5), torch.rand(3, 2, 2, 2), torch.rand(3)
    case = traced(lambda x, w, b: F.conv2d(x, w, b.exp(), (2, 2)).relu(), image, kernel, bias)
    found = proposals(simplify_arguments.STEP, case)
    assert edits(found[0]) == [UseDefaults((("conv2d", 2),))]
    result = edits(found[0])[0].apply(case, facts_of(case))
    assert "conv2d(x, w, None, (2, 2))" in result.graph.code
    assert len(result.inputs) == 2 and "exp" not in result.graph.code
    best = best_of(case, has_ops("conv2d"))
    assert sum(each.numel() for each in best.inputs) <= 2


class Convolution(torch.nn.Conv2d):
    def forward(self, x):
        return torch.ops.aten.convolution.default(
            x, self.weight, self.bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        )


class Norm(torch.nn.LayerNorm):
    def forward(self, x):
        return torch.ops.aten.native_layer_norm.default(x, [4], self.weight, self.bias, 1e-5)[0]


@pytest.mark.parametrize(
    ("program", "inputs", "op", "text"),
    [
        (Convolution(2, 3, 2), (torch.rand(1, 2, 5, 5),), "convolution.default", "x, None, [1, 1]"),
        (Norm(4), (X,), "native_layer_norm.default", "x, [1], None, None, 1.0"),
        (
            lambda x, m: torch.ops.aten._native_batch_norm_legit_no_training.default(
                x, m, m, m, m, 0.1, 1e-5
            )[0],
            (torch.rand(1, 4, 3, 3), torch.rand(4)),
            "_native_batch_norm_legit_no_training.default", "x, None, None, m, m",
        ),
    ],
)  # fmt: skip
def test_a_tensor_that_may_be_none_goes_although_something_must_be_written(
    program, inputs, op: str, text: str
):
    best = best_of(traced(program, *inputs), has_ops(op))
    assert text in best.graph.code
    assert not best.graph.graph.find_nodes(op="get_attr")


def test_an_argument_that_others_read_too_stays_for_them():
    x, w, b = torch.rand(1, 2, 5, 5), torch.rand(3, 2, 2, 2), torch.rand(3)
    case = traced(lambda x, w, b: F.conv2d(x, w, b).sum() + b, x, w, b)
    result = UseDefaults((("conv2d", 2),)).apply(case, facts_of(case))
    assert len(result.inputs) == 3 and "conv2d(x, w)" in result.graph.code


def test_a_part_is_taken_from_further_in_front():
    case = captured(lambda x: torch.split(x, 1)[3].sin(), X)
    best = best_of(case, has_ops("split", "getitem"))
    assert "[0]" in best.graph.code
    assert best.inputs[0].shape == (1, 1)


def test_a_default_in_the_midst_of_others_is_written_out():
    case = traced(lambda x: torch.clamp(x, -0.5, 0.5), X)
    result = UseDefaults((("clamp", 1),)).apply(case, facts_of(case))
    assert result is not None and "clamp(x, None, 0.5)" in result.graph.code


def test_arguments_become_their_defaults_where_they_are_not_needed():
    case = captured(
        lambda x: F.leaky_relu(torch.add(x, x, alpha=13), negative_slope=0.37).softmax(-1) ** 5.0, X
    )
    best = best_of(case, lambda c: has_ops("add", "leaky_relu")(c) and "13" in c.graph.code)
    assert "0.37" not in best.graph.code and "13" in best.graph.code


def test_an_argument_that_makes_no_sense_without_its_value_is_none():
    case = traced(lambda x: x.sum(0).view(2, 2), X)
    assert SetArgument("view", 1, 2, 1).apply(case, facts_of(case)) is None


def test_a_part_that_is_taken_twice_is_taken_once():
    def program(x):
        parts = torch.split(x, 1)
        return parts[0].sum(0), parts[0].exp()

    best = best_of(traced(program, X), has_ops("sum", "exp", "getitem"))
    assert sorted(op_names(best)) == ["exp", "getitem", "split", "sum"]


def test_complex_numbers_become_zero():
    best = best_of(
        traced(lambda x: torch.neg(x), torch.randn(4, dtype=torch.complex64)), has_ops("neg")
    )
    assert not best.inputs[0].any()
