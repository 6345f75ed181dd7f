"""References and values: the program in float64 where it can be, every value when produced."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from ctk.compiler.errors import PrecisionRefused
from ctk.repro_templates.graph.running import tangent
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.execution.execute import run_eager, run_reference
from ctk.toolkit.execution.node_values import graph_values
from tests.helpers.executions import captured, cond_graph, trace, values


def test_the_reference_is_the_whole_program_in_float64():
    def program(x, w):
        low = x.half().float() + torch.full(x.shape, 0.1, dtype=torch.float32)
        return low @ w.to(torch.float32), (x * 10).to(torch.int32), torch.zeros(x.shape)

    x, w = torch.rand(3), torch.rand(3, 2, dtype=torch.bfloat16)
    case = Case(trace(program), (x, w))
    result = run_reference(case, run_eager(case))
    assert result.dtype is torch.float64 and not result.note
    found = values(result)
    assert found["out0"].dtype is torch.float64
    assert found["out1"].dtype is torch.int32
    assert found["out2"].dtype is torch.float64
    torch.testing.assert_close(found["out0"], (x.double() + 0.1) @ w.double(), rtol=1e-15, atol=0)


def test_a_program_without_float64_form_is_its_own_reference():
    case = Case(trace(lambda x: x.view(torch.int32) + 1), (torch.rand(3),))
    reference = run_reference(case, run_eager(case))
    assert reference.dtype is None
    assert "view" in reference.note
    assert torch.equal(values(reference)["out0"], values(run_eager(case))["out0"])


def test_an_op_that_refuses_float64_is_named():
    def picky(x):
        if x.dtype is torch.float64:
            raise NotImplementedError("no double")
        return x + 1

    graph = fx.Graph()
    graph.output(graph.call_function(picky, (graph.placeholder("x"),), name="fussy"))
    gm = fx.GraphModule({}, graph)
    case = Case(gm, (torch.zeros(2),))
    reference = run_reference(case, run_eager(case))
    assert reference.dtype is None
    assert "node fussy (picky) refuses float64" in reference.note
    with pytest.raises(PrecisionRefused, match="fussy"):
        graph_values(gm, (torch.zeros(2),), dtype=torch.float64)


def test_the_reference_draws_the_same_numbers():
    def program(x):
        noise = torch.rand(x.shape) + torch.randn(x.shape, dtype=torch.float32)
        return F.dropout(x + noise, 0.5, True), torch.bernoulli(torch.sigmoid(x))

    case = Case(trace(program), (torch.randn(64, requires_grad=True),), modes=Modes(backward=True))
    eager = run_eager(case)
    assert eager.drew_random
    reference = run_reference(case, eager)
    assert reference.dtype is torch.float64, reference.note
    ours, theirs = values(eager), values(reference)
    for name in ("out0", "out1", "grad_in0"):
        torch.testing.assert_close(ours[name].double(), theirs[name], rtol=1e-5, atol=1e-6)


def test_random_numbers_inside_a_branch_are_not_guessed():
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x * 1.0, (x,))

    case = Case(captured(program, torch.ones(3)), (torch.ones(3),))
    reference = run_reference(case, run_eager(case))
    assert reference.run is not None
    assert reference.dtype is None
    assert "random" in reference.note


def test_tangents_are_one_for_a_loss_and_in_part_for_others():
    loss = torch.zeros((), requires_grad=True)
    assert tangent(0, loss).item() == 1.0
    assert tangent(3, loss.bfloat16()).dtype is torch.bfloat16
    wide = torch.zeros(100, dtype=torch.float64)
    first = tangent(0, wide)
    assert 30 < int((first == 1.0).sum()) < 70
    assert not torch.equal(first, tangent(1, wide))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        torch.testing.assert_close(tangent(0, wide.to(dtype)).double(), first, rtol=0, atol=1e-6)
    assert torch.view_as_real(tangent(0, wide.to(torch.complex64)))[:, 1].std() > 0.5


def test_values_are_read_right_after_their_node():
    gm = trace(lambda x, n: (x + 1, x.mul_(n)))
    x = torch.ones(2)
    found = graph_values(gm, (x, 3))
    assert torch.equal(found["add"], torch.full((2,), 2.0))
    assert torch.equal(found["x"], torch.ones(2))
    assert found["n"] == 3
    assert torch.equal(found["mul_"], torch.full((2,), 3.0))
    assert torch.equal(found["input.0"], torch.full((2,), 3.0))
    assert torch.equal(found["output.1"], torch.full((2,), 3.0))
    assert torch.equal(x, torch.ones(2))


def test_values_of_a_program_with_branches():
    gm, inputs = cond_graph()
    found = graph_values(gm, inputs)
    assert torch.equal(found["output.0"], inputs[0] @ inputs[1])
    wide = graph_values(gm, inputs, dtype=torch.float64)
    assert wide["output.0"].dtype is torch.float64


def test_values_in_float64_replay_the_random_numbers():
    gm = trace(lambda x: torch.rand_like(x) * x)
    x = torch.rand(32)
    own, wide = graph_values(gm, (x,)), graph_values(gm, (x,), dtype=torch.float64)
    torch.testing.assert_close(own["rand_like"].double(), wide["rand_like"], rtol=0, atol=0)
