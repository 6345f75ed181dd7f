"""Later calls: each compared call is judged with its own inputs and state, and saved as a case."""

import threading
from pathlib import Path

import pytest
import torch

from ctk.toolkit.case.store import load_case
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.watch.hooks import install


def without(*names):
    """Return a backend that removes the calls of some functions."""

    def backend(gm, example_inputs):
        for node in list(gm.graph.nodes):
            name = node.target if isinstance(node.target, str) else node.target.__name__
            if name in names:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        gm.recompile()
        return gm.forward

    return backend


without_clamp = without("clamp_min")
without_mask = without("masked_fill")
without_relu = without("relu")


def wrong_gradient_of_negatives(gm, example_inputs):
    class Absolute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.abs()

        @staticmethod
        def backward(ctx, grad):
            return grad  # right for positive numbers only

    return lambda *args: tuple(Absolute.apply(value) for value in args)


def watching(folder: Path, **options):
    keywords = {"check": "output", "on_failure": "warn", "inputs": "failing", "calls": 4}
    return install(dump=folder, **{**keywords, **options})


def cases_of(session):
    return [failure.graph for failure in session.failures]


def assert_they_fail(session):
    for failure in session.failures:
        assert judge(load_case(failure.folder, trust=True)).fails


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_removed_clamp_shows_at_call_four(tmp_path):
    with watching(tmp_path, calls=5) as hooks:
        program = torch.compile(lambda x: (x - 0.3).clamp_min(0).sqrt(), backend=without_clamp)
        for low in (0.4, 0.5, 0.6, 0.1, 0.2, 0.1):
            program(torch.linspace(low, 1.0, 1000))
    assert cases_of(hooks.session) == ["graph0_call4", "graph0_call5"]
    assert "; call 4 of " in hooks.session.failures[0].summary
    assert_they_fail(hooks.session)
    calls = hooks.session.calls
    assert (calls.whole, calls.by_graph.total(), calls.skipped.total(), calls.made) == (3, 2, 1, 6)


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_mask_that_is_empty_at_first(tmp_path):
    with watching(tmp_path) as hooks:
        program = torch.compile(
            lambda x, mask: x.masked_fill(mask, -1.0).sum(), backend=without_mask
        )
        for count in (0, 0, 2):
            program(torch.ones(8), torch.arange(8) < count)
    assert cases_of(hooks.session) == ["graph0_call3"]
    assert_they_fail(hooks.session)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.full((4,), 3.0))

    def forward(self, x):
        self.total.sub_(x)
        return torch.relu(self.total) + 1


@pytest.mark.filterwarnings("ignore:ctk")
def test_state_of_the_call_is_in_its_case(tmp_path):
    with watching(tmp_path) as hooks:
        model = torch.compile(Counter(), backend=without_relu)
        for _ in range(5):
            model(torch.ones(4))
    assert cases_of(hooks.session) == ["graph0_call4"]
    assert_they_fail(hooks.session)


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_wrong_gradient_of_a_later_call(tmp_path):
    with watching(tmp_path) as hooks:
        program = torch.compile(lambda x: x.abs(), backend=wrong_gradient_of_negatives)
        for sign in (1.0, 1.0, -1.0):
            program(torch.full((4,), sign, requires_grad=True)).sum().backward()
    assert cases_of(hooks.session) == ["graph0_call3"]
    assert "grad" in hooks.session.failures[0].summary
    assert_they_fail(hooks.session)


@pytest.mark.filterwarnings("ignore:ctk")
def test_other_shapes_and_several_functions(tmp_path):
    with watching(tmp_path) as hooks:
        first = torch.compile(lambda x: x.clamp_min(0) * 2, backend=without_clamp)
        second = torch.compile(lambda x: torch.relu(x) + 1, backend=without_relu)
        for size, sign in ((4, 1.0), (5, 1.0), (6, 1.0), (7, -1.0)):
            first(torch.full((size,), sign))
            second(torch.full((size,), -sign if size == 6 else 1.0))
    assert sorted(cases_of(hooks.session)) == ["graph2_call4", "graph3_call3"]
    assert_they_fail(hooks.session)


@pytest.mark.filterwarnings("ignore:ctk")
def test_a_process_with_threads_compares_the_graphs_of_later_calls(tmp_path):
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        with watching(tmp_path) as hooks:
            program = torch.compile(lambda x: x.clamp_min(0) * 2, backend=without_clamp)
            for sign in (1.0, 1.0, -1.0):
                program(torch.full((4,), sign))
    finally:
        end.set()
        other.join()
    assert cases_of(hooks.session) == ["graph0_call3"]
    threads = "a process with several threads cannot be forked"
    assert dict(hooks.session.calls.by_graph) == {threads: 3}


@pytest.mark.filterwarnings("ignore:ctk")
def test_values_are_kept_where_a_recipe_does_not_show_the_failure(tmp_path):
    def program(x):  # negative only where all numbers are equal, which no recipe draws
        return ((x.max() - x.min()) - 0.5).clamp_min(0)

    with watching(tmp_path) as hooks:
        compiled = torch.compile(program, backend=without_clamp)
        compiled(torch.linspace(0.0, 1.0, 4000))
        compiled(torch.linspace(0.7, 1.1, 4000))
    assert cases_of(hooks.session) == ["graph0_call2"]
    assert_they_fail(hooks.session)


def test_healthy_programs_pass_all_their_calls(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watching(tmp_path, calls=6) as hooks:
        compiled = torch.compile(model, backend="aot_eager")
        step = torch.compile(optimizer.step, backend="aot_eager")
        for _ in range(4):
            compiled(torch.randn(6, 4)).square().mean().backward()
            step()
            optimizer.zero_grad()
    assert hooks.session.failures == []
    assert hooks.session.checked >= 8


class Negating:
    def __init__(self, gm):
        self.gm, self.calls = gm, 0

    def __call__(self, *args):
        self.calls += 1
        return tuple(-x for x in self.gm(*args)) if self.calls == 3 else self.gm(*args)


def negating_object(gm, example_inputs):
    return Negating(gm)


def negating_closure(gm, example_inputs):
    calls = 0

    def call(*args):
        nonlocal calls
        calls += 1
        return tuple(-x for x in gm(*args)) if calls == 3 else gm(*args)

    return call


COUNTS = {"calls": 0}


def negating_global(gm, example_inputs):
    def call(*args):
        COUNTS["calls"] += 1
        return tuple(-x for x in gm(*args)) if COUNTS["calls"] == 3 else gm(*args)

    return call


@pytest.mark.filterwarnings("ignore:ctk")
@pytest.mark.parametrize("backend", [negating_object, negating_closure, negating_global])
def test_checks_are_no_calls_for_a_backend_that_counts(tmp_path, backend):
    COUNTS["calls"] = 0
    with watching(tmp_path) as hooks:
        program = torch.compile(lambda x: x.exp() + 1, backend=backend)
        signs = [bool((program(torch.arange(3.0) + k) > 0).all()) for k in range(5)]
    assert cases_of(hooks.session) == ["graph0_call3"]
    assert signs == [True, True, False, True, True], "as without a watch"
