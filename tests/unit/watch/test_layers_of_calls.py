"""A layer of a watched call is named only if each of its questions has the same answer twice."""

import contextlib
import json

import pytest
import torch

from ctk.toolkit.watch.hooks import install
from ctk.toolkit.watch.process_fork import Keeper


def watching(folder, **options):
    return install(dump=folder, check="output", **{"on_failure": "warn", "calls": 4, **options})


def returning_its_input(gm, example_inputs):
    """Share the memory of the input from the second call on."""
    calls = []

    def call(*args):
        calls.append(1)
        return (args[0],) if len(calls) > 1 else gm(*args)

    return call


class Toggling:
    def __init__(self, gm):
        self.gm, self.calls = gm, 0

    def __call__(self, *args):
        self.calls += 1
        return (args[0],) if self.calls > 2 else self.gm(*args)


def toggling(gm, example_inputs):
    return Toggling(gm)


TURNS = {"made": 0}


def turning(gm, example_inputs):
    def call(*args):
        TURNS["made"] += 1
        return (args[0],) if TURNS["made"] > 1 else gm(*args)

    return call


@pytest.mark.parametrize(
    ("backend", "layer"),
    [
        (returning_its_input, "a later call (2nd)"),
        (toggling, "a later call (3rd)"),
        (turning, "runtime"),
    ],
)
def test_state_of_a_backend_is_no_missing_guard(tmp_path, backend, layer):
    """Its captured graphs are right, so the guards are innocent."""
    TURNS["made"] = 0
    with watching(tmp_path) as hooks:
        program = torch.compile(lambda x: x.clone(), backend=backend)
        for _ in range(3):
            program(torch.ones(3))
    failure = hooks.session.failures[0]
    assert failure.summary.startswith("alias")
    assert f"layer {layer}," in failure.summary
    answer = json.loads(failure.folder.read_text())
    assert (answer["layer"], answer["confirmed"]) == ("runtime", False)
    assert all(line.endswith(", twice") for line in answer["evidence"])


class Swapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.sub(x)


def test_a_missing_guard_is_shown_by_the_captured_graph(tmp_path):
    model, x = Swapped(), torch.ones(2, 4)
    with watching(tmp_path) as hooks:
        compiled = torch.compile(model, backend="aot_eager")
        compiled(x)
        object.__setattr__(model, "sub", torch.nn.Linear(4, 4))
        compiled(x)
    (failure,) = hooks.session.failures
    assert "layer dynamo (guards)" in failure.summary
    answer = json.loads(failure.folder.read_text())
    assert answer["confirmed"] and len(answer["evidence"]) == 2


def test_a_missing_guard_is_seen_with_any_number_of_threads(tmp_path):
    """A fork has one thread; its compiled calls are those of the program all the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 2)
    try:
        test_a_missing_guard_is_shown_by_the_captured_graph(tmp_path)
    finally:
        torch.set_num_threads(threads)


def handled(x, k):
    try:
        scale = 7 // (k - 3)
    except ZeroDivisionError:
        scale = 2.0
    return x * scale


def suppressed(x, k):
    scale = 1.0
    with contextlib.suppress(ZeroDivisionError):
        scale = 7 // (k - 3)
    return x * scale


def handled_later(x, k):
    try:
        scale = (k + 4) // (k - 3)
    except ZeroDivisionError:
        scale = 2.0
    return x.sin() + x * scale


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [handled, suppressed, handled_later])
def test_an_exception_that_the_program_handles_is_lost_by_dynamo(tmp_path, program):
    """The captured graph raises in eager, so that only the call as a whole shows it."""
    with watching(tmp_path) as hooks:
        compiled = torch.compile(program, backend="inductor", dynamic=True)
        compiled(torch.ones(3), 5)
        compiled(torch.ones(3), 3)
    (failure,) = hooks.session.failures
    assert failure.summary.startswith("accuracy at call2.out0")
    part = "guards" if is_captured_alone(program, torch.ones(3), 3) else "capture"
    assert f"layer dynamo ({part})" in failure.summary


def is_captured_alone(program, *inputs) -> bool:
    """Return whether a first call with these inputs is right, as from torch 2.14 on."""
    torch.compiler.reset()
    try:
        return torch.equal(torch.compile(program, dynamic=True)(*inputs), program(*inputs))
    except RuntimeError:  # Dynamo does not capture it
        return False


@pytest.mark.filterwarnings("ignore")
def test_a_missing_guard_is_not_confirmed_by_another_difference(tmp_path):
    """The captured graph raises in eager, where the kernel computes a number."""
    with watching(tmp_path) as hooks:
        compiled = torch.compile(handled, backend="inductor")
        for k in (5, 6, 3):  # Dynamo makes `k` symbolic for the second call
            compiled(torch.ones(3), k)
    (failure,) = hooks.session.failures
    assert "layer dynamo (guards)" in failure.summary
    answer = json.loads(failure.folder.read_text())
    assert answer["evidence"][-1].endswith("it differs from eager in another way, twice")
    assert not answer["confirmed"]


@pytest.mark.filterwarnings("ignore")
def test_a_capture_is_not_at_fault_if_a_fresh_compile_cannot_be_compared(tmp_path, monkeypatch):
    asked = Keeper.ask

    def ask(keeper, question, *variation):
        return {"died": "signal 9"} if question == "fresh" else asked(keeper, question, *variation)

    monkeypatch.setattr(Keeper, "ask", ask)
    with watching(tmp_path) as hooks:
        compiled = torch.compile(handled, backend="inductor", dynamic=True)
        compiled(torch.ones(3), 5)
        compiled(torch.ones(3), 3)
    assert hooks.session.failures == []


@pytest.mark.parametrize("way", ["fresh", "captured", "again"])
def test_two_answers_that_differ_name_no_layer(tmp_path, monkeypatch, way):
    asked, made = Keeper.ask, []

    def ask(keeper, question, *variation):
        made.append(question)
        is_second = question == way and made.count(way) == 2
        return {"died": "signal 9"} if is_second else asked(keeper, question, *variation)

    monkeypatch.setattr(Keeper, "ask", ask)
    model, x = Swapped(), torch.ones(2, 4)
    with watching(tmp_path) as hooks:
        compiled = torch.compile(model, backend="aot_eager")
        compiled(x)
        object.__setattr__(model, "sub", torch.nn.Linear(4, 4))
        compiled(x)
    assert made.count(way) == 2
    assert hooks.session.failures == []


class Steps(torch.nn.Module):
    """A module that counts in a buffer and in Python."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.register_buffer("steps", torch.zeros(()))
        self.seen = 0

    def forward(self, x):
        self.seen += 1
        self.steps.add_(1)
        return self.norm(x) + self.steps


def product(x):
    return (x.bfloat16() @ x.bfloat16().t()).float().softmax(-1)


def drawn(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [lambda: product, Steps, lambda: drawn])
def test_healthy_programs_have_no_failure(tmp_path, make, backend):
    torch.manual_seed(0)
    with watching(tmp_path, on_failure="raise") as hooks:
        compiled = torch.compile(make(), backend=backend)
        for rows in (16, 16, 24, 40):
            compiled(torch.randn(rows, 8))
    assert hooks.session.failures == []
