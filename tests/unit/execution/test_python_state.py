"""What the Python code of a graph keeps: each run starts from the same state and leaves it."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx

from ctk.toolkit.execution.python_state import keep_python_state
from ctk.toolkit.watch.hooks import install
from tests.helpers.training_zoo import copied, differences

CALLS = {"n": 0, "log": []}
TOTAL = torch.zeros(3)
ARRAY = np.zeros(3)
OWN = random.Random(3)
NUMPYS = np.random.default_rng(3)
NUMBER = 0


class Counter:
    def __init__(self) -> None:
        self.n, self.seen = 0, set[int]()

    def count(self) -> int:
        self.n += 1
        self.seen.add(self.n)
        return self.n


COUNTER = Counter()


@torch.library.custom_op("ctk_test_state::counts", mutates_args=())
def counts(x: torch.Tensor) -> torch.Tensor:
    global NUMBER
    NUMBER += 1
    CALLS["n"] += 1
    CALLS["log"].append(NUMBER)
    TOTAL.add_(1)
    ARRAY[:] += 1
    return x * CALLS["n"] + TOTAL + float(ARRAY.sum()) + NUMBER + COUNTER.count()


@torch.library.custom_op("ctk_test_state::draws", mutates_args=())
def draws(x: torch.Tensor) -> torch.Tensor:
    return x + random.random() + float(np.random.rand()) + OWN.random() + float(NUMPYS.random())


for each in (counts, draws):
    each.register_fake(torch.empty_like)


def fresh() -> None:
    global NUMBER
    NUMBER = COUNTER.n = CALLS["n"] = 0
    CALLS["log"].clear()
    COUNTER.seen.clear()
    TOTAL.zero_()
    ARRAY[:] = 0
    random.seed(3)
    np.random.seed(3)
    OWN.seed(3)
    NUMPYS.bit_generator.state = np.random.default_rng(3).bit_generator.state


def state() -> list[object]:
    numpys = [str(np.random.get_state()), str(NUMPYS.bit_generator.state)]
    python = [random.getstate(), OWN.getstate(), repr(CALLS), NUMBER, vars(COUNTER).copy()]
    return [copied(TOTAL), ARRAY.tolist(), [repr(each) for each in (*python, *numpys)]]


@pytest.mark.parametrize("operator", [counts, draws])
@pytest.mark.parametrize("check", ["output", "pass"])
def test_a_custom_operator_counts_the_programs_calls_only(tmp_path: Path, operator, check):
    def two_calls() -> list[object]:
        torch.compiler.reset()
        fresh()
        compiled = torch.compile(lambda x: operator(x) + 1, backend="aot_eager")
        return [compiled(torch.ones(3)), compiled(torch.ones(3)), state()]

    plain = two_calls()
    with install(dump=tmp_path, check=check) as hooks:
        watched = two_calls()
    assert hooks.session.failures == []
    assert hooks.session.graphs == 1
    assert differences(plain, watched) == []


def graph_of(function) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("x"),)))
    return fx.GraphModule({}, graph)


def test_closures_defaults_and_new_entries_are_put_back():
    n, kept = 0, {"old": 1}

    def own(x, items=[1]):  # noqa: B006  # state in a default is what is tested
        nonlocal n
        n += 1
        kept["new"] = n
        items.append(n)
        return x

    gm = graph_of(own)
    with keep_python_state(gm):
        gm(torch.ones(1))
        assert n == 1
        assert kept == {"old": 1, "new": 1}
    assert n == 0
    assert kept == {"old": 1}
    assert own.__defaults__ == ([1],)


def test_the_version_of_a_tensor_that_autograd_saved_is_put_back():
    held, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    loss = (held * weight).sum()
    gm = graph_of(lambda x: held.add_(x))
    with keep_python_state(gm):
        gm(torch.ones(3))
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 1, 1]


def test_a_graph_of_torchs_own_functions_costs_no_look(monkeypatch):
    monkeypatch.setattr("ctk.toolkit.execution.python_state._random_state", lambda: 1 / 0)
    with keep_python_state(graph_of(torch.sin)):
        pass
