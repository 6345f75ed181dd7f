"""Custom operators whose Python code gives other results when a compiler traces it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.operator_faults import find_operator_faults
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check_case
from ctk.toolkit.oracle.questions.judge import judge


def is_traced(x: Tensor) -> bool:
    """Tell a trace by the types of its tensors, as some libraries do."""
    return any(word in type(x).__name__ for word in ("Fake", "Functional"))


def cube(x: Tensor) -> Tensor:
    return x**3


def keep_input(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])


def keep_factor(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.factor = 1 if torch.compiler.is_compiling() else 3


def define(name: str, backward, setup=keep_input):
    operator = torch.library.custom_op(f"traced::{name}", cube, mutates_args=())
    operator.register_fake(torch.empty_like)
    operator.register_autograd(backward, setup_context=setup)
    return operator


def by_types(ctx, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad * (2 if is_traced(x) else 3) * x**2


def by_flag(ctx, grad: Tensor) -> Tensor:
    return grad * (2 if torch.compiler.is_compiling() else 3) * ctx.saved_tensors[0] ** 2


def by_factor(ctx, grad: Tensor) -> Tensor:
    return grad * ctx.factor * ctx.saved_tensors[0] ** 2


def by_numpy(ctx, grad: Tensor) -> Tensor:
    return grad * torch.from_numpy(3 * ctx.saved_tensors[0].numpy() ** 2)


def rightly(ctx, grad: Tensor) -> Tensor:
    return grad * 3 * ctx.saved_tensors[0] ** 2


types = define("types", by_types)
flag = define("flag", by_flag)
factor = define("factor", by_factor, keep_factor)
numpys = define("numpys", by_numpy)
right = define("right", rightly)


@torch.library.custom_op("traced::both", mutates_args=())
def both(xs: Sequence[Tensor], by: float = 1.0, *, kind: str = "a") -> tuple[Tensor, Tensor]:
    return xs[0] * by + xs[1], xs[0] * xs[1]


@both.register_fake
def _(xs, by=1.0, *, kind="a"):
    return torch.empty_like(xs[0]), torch.empty_like(xs[0])


def keep_both(ctx, inputs, keyword_only_inputs, output) -> None:
    ctx.save_for_backward(*inputs[0])
    ctx.by = inputs[1]


def both_backward(ctx, first: Tensor, second: Tensor):
    a, b = ctx.saved_tensors
    wrong = first * 2 if is_traced(a) else first
    return [first * ctx.by + second * b, wrong + second * a], None


both.register_autograd(both_backward, setup_context=keep_both)

LIBRARY = torch.library.Library("traced_too", "DEF")
LIBRARY.define("composed(Tensor x, int n=2) -> Tensor")
LIBRARY.impl(
    "composed",
    lambda x, n=2: (x.cos() if is_traced(x) else x.sin()) * n,
    "CompositeImplicitAutograd",
)


def with_types(x: Tensor) -> Tensor:
    return types(x.sin()).sum()


def with_flag(x: Tensor) -> Tensor:
    return flag(x.sin()) * x


def with_factor(x: Tensor) -> Tensor:
    return factor(factor(x).tanh())


def with_numpy(x: Tensor) -> Tensor:
    return numpys(x.sin()).sum()


def with_both(x: Tensor) -> Tensor:
    first, second = both([x.sin(), x.cos()], 2.0, kind="b")
    return first + second


def with_composed(x: Tensor) -> Tensor:
    return torch.ops.traced_too.composed(x.exp(), 3)


def in_a_checkpoint(x: Tensor) -> Tensor:
    def region(y: Tensor) -> Tensor:
        return types(y.sin()) * 2

    return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)


def with_right(x: Tensor) -> Tensor:
    return right(x.sin()).sum()


def case_of(program, target: str = "aot_eager") -> Case:
    torch._dynamo.reset()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    own = UserProgram(program, (x,), {}, program.__name__, Path(__file__))
    (case,) = capture_cases(own, target=target, backward=True)
    return case


sees_traces = pytest.mark.skipif(
    not hasattr(torch.compiler, "_compile_session_context"),
    reason="in torch 2.11 is_compiling() is false while AOTAutograd traces, so nothing differs",
)

FORMULA = "has an autograd formula that gives other values when it is traced"


@pytest.mark.parametrize(
    ("program", "operator", "evidence"),
    [
        (with_types, "traced::types", FORMULA),
        pytest.param(with_flag, "traced::flag", FORMULA, marks=sees_traces),
        pytest.param(with_factor, "traced::factor", FORMULA, marks=sees_traces),
        (with_both, "traced::both", FORMULA),
        (in_a_checkpoint, "traced::types", FORMULA),
        (with_numpy, "traced::numpys", "raises when it is traced: RuntimeError"),
        (
            with_composed,
            "traced_too::composed",
            "has an implementation that gives other values when it is traced",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
def test_an_operator_that_differs_in_a_trace_is_the_culprit(program, operator, evidence):
    search = find_culprit(case_of(program))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == (f"operator/trace.{operator}", True)
    assert search.culprit.evidence.startswith(evidence)
    assert search.compiles == 2, "one to see the failure, one for the counterfactual"


@pytest.mark.parametrize("target", ["ctk", "inductor"])
def test_it_is_the_culprit_with_each_compiler(target):
    search = find_culprit(case_of(with_types, target))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == ("operator/trace.traced::types", True)


@sees_traces
def test_a_check_names_it() -> None:
    report = check_case(case_of(with_flag))
    assert report.wrong[0].where == "operator/trace.traced::flag"
    assert FORMULA in report.wrong[0].what


def test_a_formula_that_is_traced_rightly_has_no_fault() -> None:
    case = case_of(with_right)
    assert judge(case).verdict is Verdict.PASSES
    assert find_operator_faults(case) == ()


def sine_for_cosine(gm, inputs):
    from functorch.compile import aot_function

    def wrong(graph, _):
        for node in graph.graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default
        graph.recompile()
        return graph

    return aot_function(gm, fw_compiler=wrong)


def test_a_compilers_fault_behind_a_right_formula_is_not_the_operators() -> None:
    search = find_culprit(case_of(with_right, f"{__name__}:sine_for_cosine"))
    assert search.culprit is not None
    assert search.culprit.stage != "operator"
