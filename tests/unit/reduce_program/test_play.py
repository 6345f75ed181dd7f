"""Playing a program: what counts as a difference between eager and compiled."""

import textwrap
from types import ModuleType

import pytest
import torch

from ctk.repro_templates.program_play import play
from ctk.repro_templates.program_sides import DEFAULTS, Unanswered, differences, find_differences


def names_of(text):
    module = ModuleType("played")
    exec(compile(textwrap.dedent(text), "played.py", "exec"), vars(module))
    return vars(module)


def compared(text, compiled, **how):
    """Play a program with a stand-in for `torch.compile`, each side from fresh globals."""
    wanted = {**DEFAULTS, **how}

    def side(is_compiled, how):
        return play(names_of(text), compiled if is_compiled else None, how)

    return [(each.kind, each.name) for each in find_differences(side, wanted)]


PLAIN = """
    import torch
    CALLS = []
    def model():
        def f(x):
            CALLS.append(1)
            return x * 2
        return f
    def inputs():
        return torch.arange(4.0).reshape(2, 2)
"""


def test_a_program_agrees_with_itself():
    assert compared(PLAIN, lambda f: f) == []


def test_a_value_a_dtype_and_a_shape_are_told_apart():
    assert compared(PLAIN, lambda f: lambda x: f(x) + 1) == [("accuracy", "call1.out0")]
    assert compared(PLAIN, lambda f: lambda x: f(x).double()) == [("dtype", "call1.out0")]
    assert compared(PLAIN, lambda f: lambda x: f(x)[0]) == [("shape", "call1.out0")]
    assert ("structure", "call1.structure") in compared(PLAIN, lambda f: lambda x: (f(x),))


def test_strides_count_when_asked():
    def transposed(f):
        return lambda x: f(x).t().contiguous().t()

    assert compared(PLAIN, transposed) == []
    assert compared(PLAIN, transposed, strides=True) == [("stride", "call1.out0")]


def test_python_state_counts():
    found = compared(PLAIN, lambda f: lambda x: x * 2)
    assert found[0] == ("state", "call1.state:CALLS")


def test_aliasing_and_mutated_inputs_count():
    text = PLAIN.replace("x * 2", "x")
    assert compared(text, lambda f: lambda x: f(x).clone()) == [("alias", "call1.alias")]
    assert ("accuracy", "call1.in0") in compared(PLAIN, lambda f: lambda x: f(x).add_(x.zero_()))


def test_requires_grad_counts():
    text = PLAIN.replace("reshape(2, 2)", "reshape(2, 2).requires_grad_()")
    found = compared(text, lambda f: lambda x: f(x).detach())
    assert ("requires-grad", "call1.requires_grad") in found


def test_exceptions_are_outcomes():
    def raising(kind, words="no"):
        def call(*args):
            raise kind(words)

        return lambda f: call

    raises = PLAIN.replace("return x * 2", "raise ValueError('no')")
    assert compared(PLAIN, raising(TypeError))[0] == ("runtime-error", "call1.error")
    assert compared(raises, lambda f: lambda x: x)[0] == ("missing-error", "call1.error")
    assert compared(raises, raising(KeyError, "lost"))[0] == ("other-error", "call1.error")
    assert compared(raises, lambda f: f) == []


def test_an_error_in_other_words_is_the_same_outcome():
    """As for the graph of a case: shapes that do not fit are one error, whoever says so."""
    program = PLAIN.replace("CALLS.append(1)", "pass").replace("x * 2", "x.view(3)")

    def compiled(words, kind=RuntimeError):
        def call(*args):
            raise kind(words)

        return lambda f: call

    fits_not = "Cannot view a tensor with shape torch.Size([2, 2]) as a tensor with shape (3,)"
    assert compared(program, compiled(fits_not, ValueError)) == []
    assert compared(program, compiled("out of memory"))[0] == ("other-error", "call1.error")


def test_the_wrappers_of_a_compiler_are_taken_off():
    class BackendCompilerFailed(RuntimeError):
        def __init__(self, inner):
            super().__init__("backend='inductor' raised")
            self.inner_exception = inner

    def lost(f):
        def call(*args):
            raise BackendCompilerFailed(KeyError("lost"))

        return call

    program = names_of(PLAIN)
    values = play(program, lost, DEFAULTS)
    assert values["call1.error"] == ("KeyError", "'lost'", False)


def test_the_second_call_counts_and_between_is_done_before_it():
    text = """
        import torch
        class M(torch.nn.Module):
            scale = 1
            def forward(self, x):
                return x * self.scale
        def model():
            return M()
        def warmups():
            return [(torch.ones(2),)]
        def between(m):
            m.scale = 3
        def inputs():
            return (torch.ones(2),)
    """

    def remembering(f):
        scale = f.scale
        return lambda x: x * scale

    assert compared(text, lambda f: f) == []
    assert compared(text, remembering) == [("accuracy", "call2.out0")]


def test_a_gradient_counts_only_with_a_backward_pass():
    text = PLAIN.replace("reshape(2, 2)", "reshape(2, 2).requires_grad_()")

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    def wrong(f):
        return lambda x: (f(x), Wrong.apply(x))[1]

    assert compared(text, wrong) == []
    assert compared(text, wrong, backward=True) == [("accuracy", "call1.grad_in0")]


def test_a_program_that_is_not_repeatable_is_flaky():
    text = "import random\n" + textwrap.dedent(PLAIN).replace(
        "x * 2", "x * random.SystemRandom().random()"
    )
    with pytest.raises(Unanswered) as reason:
        compared(text, lambda f: f)
    assert reason.value.is_flaky


def test_a_reference_that_draws_other_numbers_is_none():
    eager = {"call1.out0": torch.tensor([1.0, 2.0])}
    compiled = {"call1.out0": torch.tensor([1.0, 3.0])}
    assert differences(eager, compiled, {}, DEFAULTS)
