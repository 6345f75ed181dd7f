"""The persistent cache in front of a compile: a hit traces nothing, and does the same."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from ctk.compiler import backend
from ctk.compiler.cache import whole_graph
from ctk.compiler.cache.store import open_store
from ctk.compiler.dispatch import autograd as dispatch
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.alias_programs import (
    MORE,
    QUICK,
    guarded,
    leaf,
    observe,
    ramp,
    same,
)
from tests.helpers.project import ROOT

Tensor = torch.Tensor


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by one with each graph that is traced."""
    found: list[str] = []
    original = dispatch.aot.trace

    def trace(*args: Any, **kwargs: Any) -> Any:
        found.append("trace")
        return original(*args, **kwargs)

    monkeypatch.setattr(dispatch.aot, "trace", trace)
    return found


def kinds() -> list[str]:
    """Return what happened to the cache, oldest first, without what nobody waits for."""
    store = open_store()
    assert store is not None
    return [event.kind for event in reversed(store.notes.events())]


def reasons() -> list[str]:
    store = open_store()
    assert store is not None
    return [event.why for event in reversed(store.notes.events()) if event.why]


def check_program(function: Any, make: Any, mode: Any, traces: list[str], *, dynamic: bool) -> None:
    cold = observe(function, make, mode, backend.ctk, dynamic=dynamic)
    traced = len(traces)
    assert traced
    warm = observe(function, make, mode, backend.ctk, dynamic=dynamic)
    assert "stored" in kinds(), reasons()
    assert len(traces) == traced
    assert warm[0] == cold[0]
    assert same(warm[1], cold[1])


@pytest.mark.parametrize(("function", "make", "mode"), QUICK)
def test_a_hit_traces_nothing_and_does_the_same(
    cache: Path, traces: list[str], function: Any, make: Any, mode: Any
) -> None:
    check_program(function, make, mode, traces, dynamic=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:<class 'torch.autograd")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "make", "mode"), MORE)
def test_more_hits_do_the_same(
    cache: Path, traces: list[str], function: Any, make: Any, mode: Any, dynamic: bool
) -> None:
    check_program(function, make, mode, traces, dynamic=dynamic)


def test_weights_are_those_of_now(cache: Path, traces: list[str]) -> None:
    """Two models of one architecture share an entry, not their numbers."""
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)) for _ in "ab"]
    for model in models:
        torch._dynamo.reset()
        expected = [model(ramp(5, 4)) for _ in "12"][-1]
        model[1].reset_running_stats()
        compiled = torch.compile(model, backend=backend.ctk)
        torch.testing.assert_close([compiled(ramp(5, 4)) for _ in "12"][-1], expected)
        assert model[1].num_batches_tracked == 2
    assert len(traces) == 1


def test_each_side_of_a_guard_has_its_entry(cache: Path, traces: list[str]) -> None:
    for first in (3, 6):  # which example comes first is of no effect
        torch._dynamo.reset()
        compiled = torch.compile(guarded, backend=backend.ctk, dynamic=True)
        assert torch.equal(compiled(ramp(first, 4)), ramp(first, 4) * 2)
        assert torch.equal(compiled(ramp(5, 4)), ramp(5, 4) * 2)
        assert torch.equal(compiled(ramp(2, 2)), ramp(2, 2) * 3)
    assert len(traces) == 2
    assert kinds().count("stored") == 2


def test_which_size_is_a_symbol_counts(cache: Path, traces: list[str]) -> None:
    """Equal examples, equal graphs: only what Dynamo marks differs."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y * 3

    for place in (0, 1):
        torch._dynamo.reset()
        inputs = [ramp(3, 4), ramp(3, 4)]
        torch._dynamo.mark_dynamic(inputs[place], 0)
        compiled = torch.compile(program, backend=backend.ctk)
        for other in (inputs, [ramp(5 if place == n else 3, 4) for n in (0, 1)]):
            assert torch.equal(compiled(*other)[place], other[place] * (2 + place))
    assert len(traces) == 2


def traced(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    return compile_fx(torch.fx.symbolic_trace(function), inputs, options)


def test_nested_outputs_come_back(cache: Path, traces: list[str]) -> None:
    def program(x: Tensor) -> Any:
        return {"a": x + 1, "b": [x * 2, (x - 1, None)]}

    results = [traced(program, ramp(2, 3))(ramp(2, 3)) for _ in "12"]
    assert len(traces) == 1
    for result in results:
        assert list(result) == ["a", "b"] and result["b"][1][1] is None
        assert torch.equal(result["b"][1][0], ramp(2, 3) - 1)


def test_the_cache_can_be_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced(add_one, ramp(2, 3), cache=False)
    assert not cache.exists()
    monkeypatch.setenv("CTK_CACHE", "0")
    traced(add_one, ramp(2, 3))
    assert not cache.exists()


def add_one(x: Tensor) -> Tensor:
    return x + 1


def test_whoever_watches_gets_a_compile_of_their_own(cache: Path, traces: list[str]) -> None:
    traced(add_one, ramp(2, 3))
    before = len(traces)
    compile_fx(torch.fx.symbolic_trace(add_one), [ramp(2, 3)], None, Recorder())
    assert len(traces) == before + 1
    assert "hit" not in kinds()


def test_an_entry_that_does_not_load_is_made_anew(cache: Path, traces: list[str]) -> None:
    traced(add_one, ramp(2, 3))
    store = open_store()
    assert store is not None
    (entry,) = store.entries()
    key = whole_graph.Key(entry.label.parts)
    held = store.get(key)
    assert held is not None
    data = json.loads(bytes(held.members["graph.json"]))
    blobs = {name: bytes(each) for name, each in held.members.items()}
    for part in ("forward", "wrappers", "format"):
        broken = {**blobs, "graph.json": json.dumps({**data, part: {"object": [1]}}).encode()}
        store.put(key, broken)
        run = traced(add_one, ramp(2, 3))
        assert torch.equal(run(ramp(2, 3)), ramp(2, 3) + 1)
    assert kinds().count("dropped") == 3
    assert len(traces) == 4


def fold_weight(gm: GraphModule) -> None:
    """Give a graph the double of a weight as a constant: a pass that reads numbers."""
    (node,) = gm.graph.find_nodes(op="get_attr")
    gm.register_buffer("doubled", gm.get_parameter(str(node.target)).detach() * 2)
    with gm.graph.inserting_before(node):
        node.replace_all_uses_with(gm.graph.get_attr("doubled"))
    gm.graph.erase_node(node)


class Scaled(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), scale))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_numbers_of_weights_that_a_pass_reads_are_not_kept(cache: Path) -> None:
    """Another model of the same kind must not get them."""
    for scale in (1.0, 5.0):
        gm = torch.fx.symbolic_trace(Scaled(scale))
        options = {"custom_passes": {"pre_grad": [fold_weight]}}
        run = compile_fx(gm, [ramp(2, 3)], options)
        assert torch.equal(run(ramp(2, 3)), ramp(2, 3) * 2 * scale)
    assert "stored" not in kinds()
    assert any("gave the graph a tensor" in reason for reason in reasons())


def failing(gm: GraphModule) -> None:
    raise RuntimeError("planted")


@pytest.mark.filterwarnings("ignore:ctk. stage joint failed")
def test_a_compile_in_which_something_failed_is_not_kept(cache: Path) -> None:
    options = {"on_failure": "fallback", "custom_passes": {"joint": [failing]}}
    run = traced(add_one, ramp(2, 3), **options)
    assert torch.equal(run(ramp(2, 3)), ramp(2, 3) + 1)
    assert "stored" not in kinds() and "stage joint failed" in reasons()


def test_what_cannot_be_kept_says_why(cache: Path) -> None:
    lock = threading.Lock()

    def locked(gm: GraphModule) -> None:
        with lock:
            pass

    traced(add_one, ramp(2, 3), custom_passes={"joint": [locked]})
    assert kinds() == ["bypassed"]
    assert reasons() == ["the pass locked uses a _thread.lock, which cannot be known"]


@pytest.mark.slow
def test_threads_that_compile_one_graph_compile_it_once(cache: Path, traces: list[str]) -> None:
    gm = torch.fx.symbolic_trace(add_one)
    results: list[Tensor] = []

    def work() -> None:
        results.append(compile_fx(gm, [ramp(2, 3)], None)(ramp(2, 3)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 4 and len(traces) == 1


PROGRAM = """
import torch
from ctk.compiler import backend
from ctk.compiler.dispatch import autograd as dispatch

original, traces = dispatch.aot.trace, []
dispatch.aot.trace = lambda *a, **k: (traces.append(1), original(*a, **k))[1]
torch.manual_seed(0)
model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
compiled = torch.compile(model, backend=backend.ctk, dynamic=True)
for length in (3, 5):
    compiled(torch.ones(2, length, 8)).square().sum().backward()
total = sum(each.grad.double().abs().sum() for each in model.parameters())
print(len(traces), float(total).hex())
"""


@pytest.mark.slow
def test_another_process_compiles_nothing(cache: Path, tmp_path: Path) -> None:
    told: list[list[str]] = []
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        told.append(done.stdout.split())
    assert told[0][0] != "0" and told[1][0] == "0"
    assert told[0][1] == told[1][1]


def test_a_backward_that_nobody_calls_is_kept_too(cache: Path, traces: list[str]) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        (x,) = leaf()
        y = torch.compile(lambda x: x.sin() * 2, backend=backend.ctk)(x)
    y.sum().backward()
    assert len(traces) == 1
    torch.testing.assert_close(x.grad, x.detach().cos() * 2)
