"""Playing a program: what counts as a difference between eager and compiled."""

import os
import textwrap
from types import ModuleType

import numpy as np
import pytest
import torch

from ctk.compiler.errors import ConfigError
from ctk.repro_templates.graph.exceptions import Raised
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.program.program_arguments import Arguments
from ctk.repro_templates.program.program_compare import EagerPlays, compare_plays
from ctk.repro_templates.program.program_play import How, Playable, play, playable_of
from ctk.repro_templates.program.program_sides import Died, compare_sides, in_own_process, play_by
from ctk.repro_templates.program.program_values import pack, read_values, write_values


def names_of(text):
    module = ModuleType("played")
    exec(compile(textwrap.dedent(text), "played.py", "exec"), vars(module))
    return vars(module)


def judged(text, compiled, *, strides=False, **how):
    """Play a program with a stand-in for `torch.compile`, each side from fresh globals."""

    def side(is_compiled, how):
        program = playable_of(names_of(text))
        return {"calls": pack(play(program, how, compiled if is_compiled else None))}

    return compare_sides(side, How(**how), strides=strides)


def compared(text, compiled, **how):
    found = judged(text, compiled, **how)
    return [(each.kind, each.name) for each in found.differences]


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


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_numbers_that_torch_does_not_compare_are_compared():
    text = PLAIN.replace("x * 2", "x.clone()").replace(
        "torch.arange(4.0).reshape(2, 2)", "torch.tensor([1j, 2, 3, 4]).to(torch.complex32)"
    )
    assert compared(text, lambda f: f, more=("values",)) == []
    assert compared(text, lambda f: lambda x: f(x).conj().resolve_conj()) == [
        ("accuracy", "call1.out0")
    ]


def test_numbers_of_numpy_and_huge_ones_in_a_models_state_are_kept(tmp_path):
    values = {"a": np.float64(2.5), "b": np.complex128(1 - 2j), "c": 10**20_000, "d": True}
    write_values(values, tmp_path / "values")
    assert read_values(tmp_path / "values") == {**values, "c": f"int {10**20_000:#x}"}


SPARSE = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.eye(2).to_sparse())
            self.freed = torch.ones(8)
            self.freed.untyped_storage().resize_(0)
        def forward(self, x):
            return torch.sparse.mm(self.table, x) * 2
    def model():
        return Net()
    def inputs():
        return torch.ones(2, 2)
"""


def test_what_has_no_neighbours_and_no_memory_keeps_nothing_from_being_compared():
    assert compared(SPARSE, lambda f: f) == []
    assert compared(SPARSE, lambda f: lambda x: f(x) + 1) == [("accuracy", "call1.out0")]


HELPED = """
    import torch
    import helper
    def model():
        def f(x):
            helper.NUMBER += 1
            return x + 1
        return f
    def inputs():
        return torch.ones(2)
"""


def test_state_in_a_module_of_the_user_is_compared(tmp_path, monkeypatch):
    (tmp_path / "helper.py").write_text("NUMBER = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def side(is_compiled, how):
        def work():
            program = playable_of(names_of(HELPED))
            return {"calls": pack(play(program, how, off if is_compiled else None))}

        return in_own_process(work, 60.0)

    def off(f):
        return lambda x: x + 1

    found = compare_sides(side, How(), strides=False)
    assert [each.name for each in found.differences] == ["call1.state.helper.NUMBER"]


def test_large_integers_are_compared_to_the_last_bit():
    text = PLAIN.replace("x * 2", "x * 2**60 + 3").replace("torch.arange(4.0)", "torch.arange(4)")
    assert compared(text, lambda f: f, more=("sizes", "values")) == []
    assert compared(text, lambda f: lambda x: f(x) + 1) == [("accuracy", "call1.out0")]


def test_a_side_that_ends_its_process_well_has_ended_all_the_same():
    assert in_own_process(lambda: os._exit(0), 60.0) == {"died": "exit with status 0"}


def test_weights_of_a_closure_are_in_float64_in_a_reference_and_themselves_after_it():
    layer = torch.nn.Linear(4, 4)
    before = layer.weight.data_ptr()

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x).float()

    given = Arguments((torch.randn(2, 4),))
    (found,) = play(Playable(run, [given], lambda: given), How(in_float64=True))
    assert found.error is None and found.run.values["out0"].dtype == torch.float64
    assert layer.weight.dtype == torch.float32 and layer.weight.data_ptr() == before


def test_gradients_of_a_float64_play_are_those_of_the_same_program():
    def played(*, in_float64):
        torch.manual_seed(0)
        layers = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)
        model = torch.nn.Sequential(*layers)

        def run(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(x).float()

        given = Arguments((torch.randn(3, 8),))
        how = How(backward=True, in_float64=in_float64)
        return play(Playable(run, [given], lambda: given), how)

    (found,), (exact,) = played(in_float64=False), played(in_float64=True)
    names = [name for name in found.run.values if "grad." in name]
    assert len(names) == 6
    for name in names:
        ours, reference = found.run.values[name], exact.run.values[name]
        assert torch.allclose(ours, reference.float(), atol=0.1, rtol=0.05), name


def test_a_value_a_dtype_and_a_shape_are_told_apart():
    assert compared(PLAIN, lambda f: lambda x: f(x) + 1) == [("accuracy", "call1.out0")]
    assert compared(PLAIN, lambda f: lambda x: f(x).double()) == [("dtype", "call1.out0")]
    assert compared(PLAIN, lambda f: lambda x: f(x)[0]) == [("shape", "call1.out0")]
    assert ("structure", "call1.out") in compared(PLAIN, lambda f: lambda x: (f(x),))


def test_strides_count_when_asked():
    def transposed(f):
        return lambda x: f(x).t().contiguous().t()

    assert compared(PLAIN, transposed) == []
    assert compared(PLAIN, transposed, strides=True) == [("stride", "call1.out0")]


def test_python_state_counts():
    found = compared(PLAIN, lambda f: lambda x: x * 2)
    assert found[0] == ("state", "call1.state.CALLS[0]")


def test_aliasing_and_mutated_inputs_count():
    text = PLAIN.replace("x * 2", "x")
    assert compared(text, lambda f: lambda x: f(x).clone()) == [("alias", "call1.out0")]
    writes = compared(PLAIN, lambda f: lambda x: f(x).add_(x.zero_()))
    assert ("accuracy", "call1.held.in0") in writes


def test_requires_grad_counts():
    text = PLAIN.replace("reshape(2, 2)", "reshape(2, 2).requires_grad_()")
    found = compared(text, lambda f: lambda x: f(x).detach())
    assert ("requires-grad", "call1.out0") in found


def test_a_compiled_side_that_nothing_can_be_differentiated_of_is_a_difference():
    text = PLAIN.replace("reshape(2, 2)", "reshape(2, 2).requires_grad_()")
    found = compared(text, lambda f: lambda x: f(x).detach(), backward=True)
    assert ("requires-grad", "call1.out0") in found


def test_a_call_of_another_batch_size_counts_where_eager_takes_it():
    def wrong(f):
        return lambda x: f(x) + (len(x) > 2)

    assert compared(PLAIN, wrong) == []
    assert compared(PLAIN, wrong, more=("sizes",)) == [("accuracy", "call2.out0")]
    assert compared(PLAIN.replace("x * 2", "x @ x"), wrong, more=("sizes",)) == []


def test_what_is_kept_of_a_call_shows_in_one_with_other_values():
    def keeps(f):
        known = []
        return lambda x: (known or known.append(f(x)) or known)[0].clone()

    program = PLAIN.replace("CALLS.append(1)", "pass")
    assert compared(program, keeps, calls=2) == []
    found = compared(program, keeps, calls=2, more=("values",))
    assert found == [("accuracy", "call3.out0")]
    raises = program.replace("x * 2", "x * 2 if x[0, 0] == 0 else x @ 'no'")
    assert compared(raises, lambda f: lambda x: x * 2, more=("values",)) == []


def test_a_result_that_a_later_call_writes_over_counts():
    def into_one_buffer(f):
        buffer = torch.empty(2, 2)
        return lambda x: buffer.copy_(f(x))

    assert compared(PLAIN, into_one_buffer) == []
    assert compared(PLAIN, into_one_buffer, calls=2) == [("alias", "call2.out0")]
    keeps = PLAIN.replace("x * 2", "CALLS[0]").replace("append(1)", "append(x)")
    assert compared(keeps, lambda f: f, calls=2) == []


def test_modes_of_torch_and_its_generator_count():
    def leaks(f):
        def call(x):
            torch.set_grad_enabled(False)
            return f(x)

        return call

    def draws(f):
        return lambda x: (torch.rand(1), f(x))[1]

    assert compared(PLAIN, leaks) == [("state", "call1.state.torch.grad")]
    assert compared(PLAIN, draws) == []
    assert compared(PLAIN, draws, calls=2) == [("state", "call1.state.torch.generator")]


def test_a_float64_reference_is_given_the_random_numbers_of_eager():
    text = PLAIN.replace("x * 2", "torch.rand(2, 2) - x")
    played = EagerPlays(lambda how: play(playable_of(names_of(text)), how), How())
    values, _ = played.exact
    (own,), (exact,) = played.first, values
    assert exact.run.values["out0"].dtype == torch.float64
    assert torch.equal(own.run.values["out0"], exact.run.values["out0"].float())


def test_what_a_call_gave_comes_back_from_another_process():
    text = PLAIN.replace("x * 2", "{'y': x.t(), 'n': CALLS}")
    (call,) = play(playable_of(names_of(text)), How(records=True))
    read = in_own_process(lambda: {"calls": pack([call])}, 60)
    (found,) = play_by(lambda *_: read, False, How())
    assert compare_plays(EagerPlays(lambda _: [call], How()), [found]).answer == "passes"
    assert (found.form, found.run.layout, found.tape) == (call.form, call.run.layout, [])


def test_a_process_that_ends_is_told():
    died = {"died": "signal 11"}
    (found,) = compare_sides(
        lambda is_compiled, _: died if is_compiled else {"calls": pack([])}, How(), strides=False
    ).differences
    assert (found.kind, found.detail) == ("signal", "11")
    with pytest.raises(Died):
        compare_sides(lambda *_: died, How(), strides=False)


def test_a_compiler_that_is_missing_is_no_failure():
    def compiled(error):
        def work():
            raise error

        values = in_own_process(work, 30.0)
        return lambda is_compiled, _: values if is_compiled else {"calls": pack([])}

    for error in (CannotTell("no such backend"), ConfigError("no such backend")):
        with pytest.raises(CannotTell, match="no such backend"):
            compare_sides(compiled(error), How(), strides=False)
    found = compare_sides(compiled(TypeError("its own")), How(), strides=False).differences
    assert [(each.kind, each.detail) for each in found] == [("structure", "TypeError: its own")]


def test_exceptions_are_outcomes():
    def raising(kind, words="no"):
        def call(*args):
            raise kind(words)

        return lambda f: call

    raises = PLAIN.replace("return x * 2", "raise ValueError('no')")
    assert compared(PLAIN, raising(TypeError))[0] == ("runtime-error", "call1.error")
    assert compared(raises, lambda f: lambda x: x)[0] == ("missing-error", "call1.error")
    assert compared(raises, raising(KeyError, "lost"))[0] == ("other-error", "call1.error")
    assert compared(raises, raising(KeyError))[0] == ("other-error", "call1.error")
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

    (call,) = play(playable_of(names_of(PLAIN)), How(), lost)
    assert call.error == Raised("KeyError", "'lost'", is_check=False)


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
    assert compared(text, wrong, backward=True) == [("accuracy", "call1.grad.in0")]


def test_a_program_that_is_not_repeatable_is_flaky():
    text = "import random\n" + textwrap.dedent(PLAIN).replace(
        "x * 2", "x * random.SystemRandom().random()"
    )
    assert judged(text, lambda f: f).answer == "flaky"
