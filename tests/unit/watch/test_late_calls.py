"""Failures late in a program: every N-th call, conditions on results, the ring of last calls."""

import pytest
import torch

from ctk.toolkit.case.store import load_case
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.watch.hooks import install


def above(limit, wrong):
    """Return a backend that is wrong once a value of the first input exceeds a limit."""

    def backend(gm, example_inputs):
        def run(*args):
            results = gm.forward(*args)
            tensors = [each for each in args if isinstance(each, torch.Tensor)]
            if max(float(each.detach().abs().max()) for each in tensors) > limit:
                return tuple(wrong(each) for each in results)
            return results

        return run

    return backend


plus_one_above_7 = above(7.0, lambda each: each + 1)
nan_above_7 = above(7.0, lambda each: each * float("nan"))


def raise_above_7(gm, example_inputs):
    def run(*args):
        if float(args[0].max()) > 7:
            raise RuntimeError("no kernel for large numbers")
        return gm.forward(*args)

    return run


class WrongWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * float("nan") if float(x.abs().max()) > 7 else grad


def nan_gradient_above_7(gm, example_inputs):
    def run(*args):
        return tuple(WrongWeight.apply(each) for each in gm.forward(*args))

    return run


def watching(folder, **options):
    return install(dump=folder, **{"on_failure": "warn", **options})


def failing(hooks):
    return [failure.graph for failure in hooks.session.failures]


def assert_they_fail(hooks):
    for failure in hooks.session.failures:
        assert judge(load_case(failure.folder, trust=True)).fails


def count_up(program, calls=20):
    """Call a program with tensors of 0.5, 1.0, 1.5, ..."""
    for number in range(1, calls + 1):
        program(torch.full((4,), number / 2))


@pytest.mark.filterwarnings("ignore:ctk")
def test_every_fifth_call_is_compared(tmp_path):
    with watching(tmp_path, check_every=5) as hooks:
        count_up(torch.compile(lambda x: x * 2, backend=plus_one_above_7))
    assert failing(hooks) == ["graph0_call15", "graph0_call20"]
    assert hooks.session.checked == 5  # the first, and four
    assert_they_fail(hooks)


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_nan_that_eager_has_not_is_compared_once(tmp_path):
    with watching(tmp_path, check_when="nan") as hooks:
        count_up(torch.compile(lambda x: x * 2, backend=nan_above_7))
    assert failing(hooks) == ["graph0_call15"]
    assert_they_fail(hooks)


def test_a_nan_that_eager_has_as_well_is_no_failure(tmp_path, caplog):
    with watching(tmp_path, check_when="nan,inf") as hooks:
        count_up(torch.compile(lambda x: (5 - x).sqrt(), backend="eager"))
    assert failing(hooks) == []
    (notice,) = [each for each in caplog.messages if "call 11 of graph0" in each]
    assert "it is not a failure of the compiler" in notice


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_loss_above_its_bound(tmp_path):
    def program(x):
        loss = x.sum()
        return x.mean(), loss

    with watching(tmp_path, check_when="loss>28") as hooks:
        count_up(torch.compile(program, backend=plus_one_above_7))
    assert failing(hooks) == ["graph0_call15"]  # at call 14 it is 28, and right


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_wrong_backward_before_the_nan_is_found_in_the_ring(tmp_path, caplog):
    weight = torch.nn.Parameter(torch.full((4,), 6.0))
    with watching(tmp_path, check_when="nan", ring=3) as hooks:
        program = torch.compile(lambda w, x: w * x, backend=nan_gradient_above_7)
        for _ in range(8):
            program(weight, torch.ones(4)).sum().backward()
            with torch.no_grad():
                weight += 0.3 * weight.grad
            weight.grad = None
    assert failing(hooks) == ["graph0_call5"]
    assert "grad" in hooks.session.failures[0].summary
    assert_they_fail(hooks)
    assert "such numbers were in its input l_w_ before the call" in caplog.text
    assert "next: comparing 2 calls before it, from the ring" in caplog.text


@pytest.mark.filterwarnings("ignore:ctk")
def test_an_exception_at_a_late_call_has_the_inputs_before_it(tmp_path):
    def program(x):
        x.add_(0.25)
        return x * 2

    with watching(tmp_path, ring=2) as hooks:
        compiled = torch.compile(program, backend=raise_above_7)
        x = torch.zeros(4)
        with pytest.raises(RuntimeError, match="no kernel"):
            for _ in range(50):
                compiled(x)
    assert failing(hooks) == ["graph0_call30"]
    assert float(load_case(hooks.session.failures[0].folder, trust=True).inputs[0][0]) == 7.25


def test_the_ring_keeps_the_last_calls_with_their_weights(tmp_path):
    model = torch.nn.Linear(4, 4)
    ring = None
    with watching(tmp_path, ring=3) as hooks:
        compiled = torch.compile(model, backend="eager")
        for number in range(10):
            compiled(torch.full((2, 4), float(number)))
            with torch.no_grad():
                model.bias.fill_(number)
        ring = hooks.session.ring
        calls = ring.calls_of("graph0")
    assert [call.number for call in calls] == [10, 9, 8]
    for call in calls:
        case = load_case(call.folder)
        assert {"bias", "weight"} <= {str(name).split("_")[-2] for name in case.roles}
        values = {tuple(value.shape): value for value in case.inputs}
        assert float(values[(2, 4)][0, 0]) == call.number - 1
        assert float(values[(4,)][0].detach()) == call.number - 2
        assert torch.equal(values[(4, 4)], model.weight)
    weights = {(call.folder / "values" / "0.safetensors").stat().st_ino for call in calls}
    assert len(weights) == 1
    ring.close(is_clean=True)
    assert not ring.folder.exists()
