"""Failures late in a program: every N-th call, conditions on results, the ring of last calls."""

import errno
import os
import re
import subprocess
import sys

import pytest
import torch

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.store import load_case
from ctk.toolkit.execution.private_copy import held_tensors
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
    model = torch.nn.Linear(256, 256)
    ring = None
    with watching(tmp_path, ring=3) as hooks:
        compiled = torch.compile(model, backend="eager")
        for number in range(10):
            compiled(torch.full((2, 256), float(number)))
            with torch.no_grad():
                model.bias.fill_(number)
        ring = hooks.session.ring
        calls = ring.calls_of("graph0")
    assert [call.number for call in calls] == [10, 9, 8]
    for call in calls:
        case = load_case(call.folder)
        assert {"bias", "weight"} <= {str(name).split("_")[-2] for name in case.roles}
        values = {tuple(value.shape): value for value in case.inputs}
        assert float(values[(2, 256)][0, 0]) == call.number - 1
        assert float(values[(256,)][0].detach()) == call.number - 2
        assert torch.equal(values[(256, 256)], model.weight)
    files = [path for call in calls for path in call.folder.glob("inputs.?.safetensors")]
    assert len(files) == 3
    assert len({path.stat().st_ino for path in files}) == 1  # the weight, which did not change
    ring.close(is_clean=True)
    assert not ring.folder.exists()


def run_in_child(script, **environment):
    """Run a Python text in a process of its own; return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "CTK_CACHE": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


LOOP = """
import os, sys, torch
program = torch.compile(lambda x: x * 2, backend="ctk")
for number in range(1, 21):
    program(torch.full((4,), float(number)))
    if number == 12:
        {end}
"""


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ("os.kill(os.getpid(), 9)", ["graph0_call11", "graph0_call12"]),
        ("raise ValueError('the loss is too large')", ["graph0_call11", "graph0_call12"]),
        ("raise KeyboardInterrupt", ["graph0_call11", "graph0_call12"]),
        ("sys.exit(0)", []),
        ("pass", []),
        ("if os.fork() == 0: sys.exit(0)", []),
    ],
)
@pytest.mark.clean_process
def test_how_the_process_ends_decides_about_the_ring(tmp_path, end, kept):
    result = run_in_child(LOOP.format(end=end), CTK_RING="2", CTK_DUMP=str(tmp_path))
    rings = [each for each in tmp_path.glob("*/ring/*") if each.name != ".files"]
    assert sorted(each.name for each in rings) == kept, result.stderr
    for each in rings:
        assert float(load_case(each).inputs[0][0]) == float(each.name.rpartition("call")[2])
        assert each.stat().st_mode & 0o077 == 0
    if kept and "kill" not in end:
        assert "the newest: ctk repro " in result.stderr


def test_values_beyond_the_limit_are_left_out_and_reported_once(tmp_path, caplog):
    model = torch.nn.Linear(256, 256)  # 263,168 bytes
    with watching(tmp_path, ring=3, quota=200_000) as hooks:
        compiled = torch.compile(model, backend="eager")
        for _ in range(5):
            compiled(torch.randn(2, 256))
        calls = hooks.session.ring.calls_of("graph0")
    assert [call.number for call in calls] == [5, 4, 3]
    case = load_case(calls[0].folder)
    assert len(case.synthetic) == 1
    assert [each.shape for each in tensors_of(case) if each.numel() > 1000] == [(256, 256)]
    notices = [each for each in caplog.messages if "more values than the 100000 bytes" in each]
    assert len(notices) == 1
    assert "it keeps 2 tensors of 3" in notices[0]


def test_older_calls_make_room_within_the_limit(tmp_path):
    with watching(tmp_path, ring=10, quota=32000) as hooks:
        program = torch.compile(lambda x: x * 2, backend="eager")
        for number in range(8):
            program(torch.full((1000,), float(number)) + torch.arange(1000))
            used = sum(each.stat().st_size for each in tmp_path.glob("*/ring/.files/*"))
            assert used <= 16000
        assert [call.number for call in hooks.session.ring.calls_of("graph0")] == [8, 7, 6]


def test_the_first_error_of_the_disk_ends_the_ring_and_not_the_program(
    tmp_path, caplog, monkeypatch
):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with watching(tmp_path, ring=4) as hooks:
        program = torch.compile(lambda x: x * 2, backend="eager")
        program(torch.ones(4))
        monkeypatch.setattr(os, "link", full)
        for _ in range(3):
            assert torch.equal(program(torch.ones(4)), torch.full((4,), 2.0))
        monkeypatch.undo()
    assert len([each for each in caplog.messages if "No space left" in each]) == 1
    assert [call.number for call in hooks.session.ring.calls_of("graph0")] == [1]
    assert list(hooks.session.ring.folder.glob(".*partial")) == []


def test_each_graph_and_shape_has_calls_of_its_own(tmp_path):
    def program(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    with watching(tmp_path, ring=2, check_every=3) as hooks, torch.no_grad():
        compiled = torch.compile(program, backend="eager")
        for size in (4, 5, 6, 7, 8, 9):
            compiled(torch.ones(size))
        ring = hooks.session.ring
        kept = {
            name: [call.number for call in ring.calls_of(name)] for name in ("graph2", "graph3")
        }
        assert kept == {"graph2": [5, 4], "graph3": [5, 4]}
        case = load_case(ring.calls_of("graph2")[0].folder)
    assert hooks.session.checked == 4 + 2
    assert case.inputs[-1].shape == (9,)
    assert judge(case).verdict.is_no_failure


def test_state_that_a_graph_holds_is_kept_of_each_call(tmp_path):
    total = torch.zeros(4)

    def program(x):
        total.add_(x)
        return total * 2

    with watching(tmp_path, ring=2) as hooks:
        compiled = torch.compile(program, backend="eager")
        for _ in range(4):
            compiled(torch.ones(4))
        case = load_case(hooks.session.ring.calls_of("graph0")[0].folder)
    assert 3.0 in [float(each.flatten()[0]) for each in tensors_of(case)]


def tensors_of(case):
    held = [value for _, value in held_tensors(case.graph)]
    return [each for each in (*case.inputs, *held) if isinstance(each, torch.Tensor)]


def test_a_healthy_program_is_not_changed(tmp_path, caplog):
    def train(calls=40):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(calls):
            loss = compiled(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [each.detach().clone() for each in model.parameters()]

    plain = train()
    torch.compiler.reset()
    with watching(tmp_path, check_every=10, check_when="nan,inf,loss>1e6", ring=3) as hooks:
        watched = train()
    assert all(map(torch.equal, plain, watched))
    assert not hooks.session.failures
    assert [each for each in caplog.messages if "graph" in each] == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"check": "off", "check_every": 3}, "CTK_CHECK=off"),
        ({"check": "off", "check_when": "nan"}, "CTK_CHECK=off"),
        ({"inputs": "none", "ring": 2}, "CTK_INPUTS=none"),
        ({"inputs": "recipe", "ring": 2}, "CTK_INPUTS=recipe"),
        ({"check_when": "los>3"}, "check_when takes nan, inf, loss>NUMBER or loss>=NUMBER"),
        ({"check_every": -1}, "check_every takes a count from 0"),
    ],
)
def test_contradictions_are_refused(tmp_path, options, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        watching(tmp_path, **options)
