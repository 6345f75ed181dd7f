"""The in-process oracle: each verdict, and the signature that makes two failures the same."""

import itertools
import os
import types

import pytest
import torch
from torch import fx

from ctk.compiler.observe import PassId
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.raise_site import find_raise_site
from ctk.toolkit.execution.execute import Outcome
from ctk.toolkit.oracle.questions.judge import error_signature, judge
from tests.helpers.fake_target import FakeTarget

WRONG = Signature("accuracy")
PLAIN = Modes()


def as_is(gm, example_inputs):
    return gm.forward


def giving(function):
    """Return a target that compiles everything to `function`."""
    return lambda gm, example_inputs: function


def generated(source: str, filename: str, module: str):
    """Return the function `call` of code that a compiler would have written to `filename`."""
    made = types.ModuleType(module)
    exec(compile(source, filename, "exec"), made.__dict__)
    return made.call


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_a_right_program_passes(judged):
    answer = judged(lambda x: x.relu() + 1, (X,), as_is)
    assert (answer.verdict, answer.signature) == (Verdict.PASSES, None)


def test_another_order_of_a_sum_passes(judged):
    x = torch.randn(10_000)
    answer = judged(lambda x: x.sum(), (x,), giving(lambda x: x.view(100, 100).sum(0).sum()))
    assert answer.verdict is Verdict.PASSES


def raising(error):
    def compiled(x):
        raise error

    return giving(compiled)


def out_of_range(x):
    return x[torch.tensor([9])] * 2


def test_a_program_that_fails_alike_on_both_sides_is_healthy(judged):
    answer = judged(out_of_range, (X,), as_is)
    assert answer.verdict is Verdict.PASSES
    assert "eager and compiled raise IndexError: index 9 is out of bounds" in answer.detail
    kernel = RuntimeError("kernel, /tmp/a.cpp:21, index out of bounds: 0 <= tmp2 < 4L")
    assert judged(out_of_range, (X,), raising(kernel)).verdict is Verdict.PASSES


def test_an_error_that_only_eager_raises_is_missing_at_its_node(judged):
    answer = judged(out_of_range, (X,), giving(lambda x: x * 2))
    assert answer.verdict is Verdict.REPRODUCES
    seen = answer.signature
    assert seen is not None
    assert (seen.kind, seen.exception, seen.where) == ("missing-error", "IndexError", "getitem")
    assert "index 9 is out of bounds" in seen.message
    assert judged(out_of_range, (X,), giving(lambda x: x), expected=WRONG).verdict is (
        Verdict.DIFFERENT
    )


def test_another_error_than_eagers_is_a_failure(judged):
    answer = judged(out_of_range, (X,), raising(ArithmeticError("kernel crashed")))
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.exception) == ("other-error", "ArithmeticError")
    assert "eager raises IndexError" in answer.signature.message

    def compile_graph(gm, example_inputs):
        raise AssertionError("index out of range while the pass looks at nodes")

    answer = judged(out_of_range, (X,), compile_graph)
    assert answer.signature is not None and answer.signature.kind == "other-error"


def test_an_error_that_eager_raises_only_now_and_then_is_flaky(judged):
    calls = itertools.count()  # what a list holds is put back after each run

    def sometimes(x):
        if next(calls) == 0:
            raise ValueError("the first call fails")
        return x

    graph = fx.Graph()
    graph.output(graph.call_function(sometimes, (graph.placeholder("x"),)))
    answer = judged(fx.GraphModule({}, graph), (X,), giving(lambda x: x))
    assert answer.verdict is Verdict.FLAKY
    assert "and nothing when it is run again" in answer.detail


def test_a_backward_pass_that_raises_is_an_outcome_too(judged):
    def program(x):
        y = x.exp()
        y.detach().mul_(2)
        return y

    x = X.clone().requires_grad_()
    backward = Modes(backward=True)
    assert judged(program, (x,), as_is, modes=backward).verdict is Verdict.PASSES
    healed = giving(lambda x: x.exp() * 2)
    answer = judged(program, (x,), healed, modes=backward)
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.where) == ("missing-error", "backward")


def test_symbols_that_do_not_fit_are_invalid(monkeypatch):
    target = FakeTarget(lambda gm, _inputs: gm.forward)
    monkeypatch.setattr("ctk.toolkit.execution.execute.resolve_target", lambda spec: target)
    case = Case(fx.symbolic_trace(lambda x: x + 1), (X,), dynamic={"x": ("s0",)})
    assert judge(case).verdict is Verdict.INVALID


@pytest.mark.parametrize("kind", ["accuracy", "nan", "dtype", "shape", "structure"])
def test_each_mismatch_reproduces_with_its_kind(judged, kind):
    wrong = {
        "accuracy": lambda x: (x + 1) * 1.01,
        "nan": lambda x: (x + 1).log(),
        "dtype": lambda x: (x + 1).double(),
        "shape": lambda x: (x + 1).flatten(),
        "structure": lambda x: (x + 1, x),
    }[kind]
    answer = judged(lambda x: x + 1, (X - 1,), giving(wrong))
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None and answer.signature.kind == kind


def test_a_spoiled_input_is_a_mismatch(judged):
    answer = judged(lambda x: x + 1, (X,), giving(lambda x: x.add_(1)))
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.output) == ("accuracy", "in0")


def test_a_wrong_gradient_is_a_mismatch(judged):
    def compiled(x):
        return (x * 2).detach() + x * 3 - (x * 3).detach()

    answer = judged(
        lambda x: x * 2, (X.clone().requires_grad_(),), giving(compiled), modes=Modes(backward=True)
    )
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.output) == ("accuracy", "grad_in0")


def test_another_failure_is_different(judged):
    double = giving(lambda x: (x + 1).double())
    assert judged(lambda x: x + 1, (X,), double, expected=WRONG).verdict is Verdict.DIFFERENT
    same = Signature("dtype", output="out7", message="said otherwise")
    assert judged(lambda x: x + 1, (X,), double, expected=same).verdict is Verdict.REPRODUCES


def test_the_expected_failure_is_found_among_several(judged):
    compiled = giving(lambda x: ((x + 1).log() * 0 - 5, x * 2.1))
    answer = judged(lambda x: (x + 1, x * 2), (X,), compiled, expected=WRONG)
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None and answer.signature.output == "out1"


def transposed(x):
    return (x + 1).t().contiguous().t()


def test_strides_that_the_compiler_chose_are_a_failure_only_on_demand(judged):
    arguments = (lambda x: x + 1, (X,), giving(transposed))
    answer = judged(*arguments)
    assert answer.verdict is Verdict.PASSES
    assert answer.detail.startswith("strides of out0 differ, values agree; --strides ")
    assert judged(*arguments, expected=Signature("stride")).verdict is Verdict.PASSES
    answer = judged(*arguments, modes=Modes(strides=True))
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.output) == ("stride", "out0")


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: (x.mT.copysign(y), x.relu()),
        lambda x, y: (x.sin(), torch.copysign(x.mT.exp(), y)),
        lambda x, y: (torch.copysign(x.mT, y).tanh() + 1, y),
    ],
)
def test_strides_that_a_fake_kernel_promised_wrongly_are_a_failure(judged, program):
    """The compiled program gives the strides of the fake tensors: copysign's are contiguous."""
    x, y = torch.randn(6, 5), torch.randn(5, 6)
    compiled = giving(lambda x, y: tuple(each.contiguous() for each in program(x, y)))
    assert judged(program, (x, y), compiled).signature.kind == "stride"
    agreeing = judged(program, (x.mT.contiguous().mT, y), compiled)
    assert agreeing.verdict is Verdict.PASSES, "eager's strides are contiguous too"


def test_wrong_values_come_first_and_strides_do_not_stand_in_the_way_of_their_proof(judged):
    def program(x):
        return x + 1

    both = giving(lambda x: transposed(x) * 1.1)
    answer = judged(program, (X,), both)
    assert answer.signature is not None and answer.signature.kind == "accuracy"
    healed = judged(program, (X,), giving(transposed), expected=WRONG)
    assert healed.verdict is Verdict.PASSES


ALIASES = {
    "a view of the input becomes a copy": (lambda x: x.t(), lambda x: x.clone().t(), "out0"),
    "a copy becomes the input": (lambda x: x.clone(), lambda x: x, "out0"),
    "outputs share memory": (lambda x: (x + 1, x + 1), lambda x: (x + 1,) * 2, "out0"),
    "outputs no longer do": (lambda x: (x + 1,) * 2, lambda x: (x + 1, x + 1), "out0"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_lost_and_new_aliases_are_failures(judged, name):
    program, compiled, output = ALIASES[name]
    answer = judged(program, (X,), giving(compiled))
    assert answer.signature is not None
    assert (answer.signature.kind, answer.signature.output) == ("alias", output)
    assert "shares memory with" in answer.signature.message
    assert judged(program, (X,), as_is).verdict is Verdict.PASSES


def test_a_lost_and_a_new_gradient_are_failures(judged):
    x = X.clone().requires_grad_()
    with_grad, without = (lambda x: x * 0), (lambda x: x.detach() * 0)
    for program, compiled in ((with_grad, without), (without, with_grad)):
        answer = judged(program, (x,), giving(compiled))
        assert answer.signature is not None and answer.signature.kind == "requires-grad"


# --- errors ---


def test_an_error_of_a_pass_is_placed_by_the_pipeline(judged):
    def fail(gm, example_inputs):
        error = KeyError("lost node")
        error.ctk_where = str(PassId("joint", "fold"))
        raise error

    answer = judged(lambda x: x + 1, (X,), fail)
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None
    expected = Signature("compile-error", "KeyError", "joint/fold")
    assert expected.matches(answer.signature)
    assert "lost node" in answer.signature.message


def test_the_place_is_found_behind_wrappers(judged):
    def fail(gm, example_inputs):
        try:
            try:
                error = IndexError("inner")
                error.ctk_where = "post_grad/reorder"
                raise error
            except IndexError as inner:
                raise ValueError("outer") from inner
        except ValueError as middle:
            wrapper = RuntimeError("wrapped")
            wrapper.inner_exception = middle
            raise wrapper from None

    answer = judged(lambda x: x + 1, (X,), fail)
    assert answer.signature is not None
    assert answer.signature.exception == "ValueError"
    assert answer.signature.where == "post_grad/reorder"


def test_an_error_when_called_is_placed_at_its_innermost_frame(judged):
    call = generated("def call(x):\n    return x.view(5)", "their_backend.py", "their_backend")
    answer = judged(lambda x: x + 1, (X,), giving(call))
    assert answer.signature is not None
    expected = Signature("runtime-error", "RuntimeError", "their_backend:call")
    assert expected.matches(answer.signature)


@pytest.mark.parametrize(
    "filename",
    ["<eval_with_key>.12", "/tmp/torchinductor_someone/ab/cabc.py", "<string>"],
)
def test_generated_code_has_no_name_of_its_own(filename):
    call = generated("def call(x):\n    raise AssertionError", filename, "anything")
    with pytest.raises(AssertionError) as caught:
        call(1)
    assert find_raise_site(caught.value) == "generated"


def test_frames_of_ctk_are_not_the_place():
    call = generated("def call(f):\n    return f()", "user_pass.py", "user_pass")
    ours = generated("def call():\n    raise OSError", "toolkit/x.py", "ctk.toolkit.x")
    with pytest.raises(OSError) as caught:
        call(ours)
    assert find_raise_site(caught.value) == "user_pass:call"
    assert error_signature(Outcome(None, caught.value)).kind == "runtime-error"


def test_an_interrupt_is_not_a_failure(judged):
    def interrupt(gm, example_inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(lambda x: x + 1, (X,), interrupt)


class Unlike(BaseException):
    """Belongs to no family, and tells nothing."""

    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), Unlike()], ids=type)
def test_whatever_a_compiler_raises_is_its_failure(judged, error):
    def leave(*_):
        raise error

    name = type(error).__name__
    for compile_graph, kind in ((leave, "compile-error"), (giving(leave), "runtime-error")):
        signature = judged(lambda x: x + 1, (X,), compile_graph).signature
        assert (signature.kind, signature.exception) == (kind, name)


def test_an_error_does_not_depend_on_random_numbers(judged):
    def fail(gm, example_inputs):
        raise ValueError("no")

    answer = judged(lambda x: x + torch.rand(x.shape), (X,), fail)
    assert answer.verdict is Verdict.REPRODUCES


# --- chance ---


def test_a_target_that_draws_the_same_numbers_is_judged(judged):
    right = judged(lambda x: x + torch.rand(x.shape), (X,), as_is)
    assert right.verdict is Verdict.PASSES
    wrong = giving(lambda x: x + torch.rand(x.shape) * 1.1)
    assert judged(lambda x: x + torch.rand(x.shape), (X,), wrong).verdict is Verdict.REPRODUCES


def test_a_target_with_another_generator_is_flaky(judged):
    generator = torch.Generator().manual_seed(9)
    other = giving(lambda x: x + torch.rand(x.shape, generator=generator))
    answer = judged(lambda x: x + torch.rand(x.shape), (X,), other)
    assert answer.verdict is Verdict.FLAKY
    assert "does not draw the same" in answer.detail


def test_what_does_not_depend_on_the_seed_is_judged_all_the_same(judged):
    generator = torch.Generator().manual_seed(9)
    other = giving(lambda x: (x + torch.rand(x.shape, generator=generator), x * 2.1))
    answer = judged(lambda x: (x + torch.rand(x.shape), x * 2), (X,), other)
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None and answer.signature.output == "out1"


def test_a_wrong_dtype_is_no_matter_of_chance(judged):
    generator = torch.Generator().manual_seed(9)
    other = giving(lambda x: x + torch.rand(x.shape, generator=generator).double())
    answer = judged(lambda x: x + torch.rand(x.shape), (X,), other)
    assert answer.verdict is Verdict.REPRODUCES
    assert answer.signature is not None and answer.signature.kind == "dtype"


def test_a_program_that_is_not_repeatable_is_flaky(judged):
    def race(x):  # a counter in Python would be put back after each run
        return x + int.from_bytes(os.urandom(2)) / 100

    graph = fx.Graph()
    graph.output(graph.call_function(race, (graph.placeholder("x"),)))
    gm = fx.GraphModule({}, graph)
    for shift in (0, 100):  # within the spread of eager's own runs, and far beyond it
        answer = judged(gm, (X,), giving(lambda x, shift=shift: x - shift))
        assert answer.verdict is Verdict.FLAKY
        assert "two eager runs differ" in answer.detail


# --- a real compiler ---


def test_aot_autograd_passes_a_program_with_dropout(judged):
    from torch._dynamo.backends.debugging import aot_eager

    def program(x, w):
        return (torch.nn.functional.dropout(torch.relu(x @ w), 0.5, True).sum(1),)

    inputs = (X, torch.randn(4, 5, requires_grad=True))
    answer = judged(
        program, inputs, lambda gm, ex: aot_eager(gm, list(ex)), modes=Modes(backward=True)
    )
    assert answer.verdict is Verdict.PASSES, answer


def test_a_case_is_judged_twice_alike(judged):
    arguments = (lambda x: x + 1, (X,), giving(lambda x: x + 1.1))
    first, second = judged(*arguments), judged(*arguments)
    assert first == second
