"""AOTAutograd's wrappers, rebuilt from JSON, do to a program what they do live."""

import contextlib
import dataclasses
import importlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ctk.compiler.dispatch.autograd import Stages, dispatch
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm, decode, encode
from tests.helpers.alias_programs import (
    MORE,
    QUICK,
    guarded,
    leaf,
    observe,
    ramp,
    same,
)
from tests.helpers.rebuilt import Rebuilt, boxed_graph

Tensor = torch.Tensor


def check(function: Any, make: Any, mode: Any, *, dynamic: bool) -> Rebuilt:
    live = observe(function, make, mode, Rebuilt(again=False), dynamic=dynamic)
    rebuilt = Rebuilt(again=True)
    again = observe(function, make, mode, rebuilt, dynamic=dynamic)
    assert rebuilt.texts
    assert again[0] == live[0]
    assert same(again[1], live[1])
    return rebuilt


@pytest.mark.parametrize(("function", "make", "mode"), QUICK)
def test_the_wrappers_come_back(function: Any, make: Any, mode: Any) -> None:
    check(function, make, mode, dynamic=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:<class 'torch.autograd")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "make", "mode"), MORE)
def test_more_wrappers_come_back(function: Any, make: Any, mode: Any, dynamic: bool) -> None:
    check(function, make, mode, dynamic=dynamic)


def test_a_training_step_with_buffers_and_dropout_comes_back() -> None:
    """Batch statistics are mutated, random numbers are those of the live compile."""
    results: list[list[Any]] = []
    for again in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)]
        model = torch.nn.Sequential(*layers)
        compiled = torch.compile(model, backend=Rebuilt(again=again))
        for _ in range(2):
            compiled(ramp(5, 4)).square().sum().backward()
        state = [*model.state_dict().values(), *(each.grad for each in model.parameters())]
        results.append(state)
    assert same(*results)


@pytest.mark.slow
def test_retained_graphs_and_hooks_work_as_live() -> None:
    for again in (False, True):
        torch._dynamo.reset()
        (x,) = leaf()
        calls: list[Tensor] = []
        x.register_hook(lambda grad, calls=calls: calls.append(grad))
        with torch._functorch.config.patch(donated_buffer=False):
            y = torch.compile(lambda x: (x.exp() * x).sum(), backend=Rebuilt(again=again))(x)
            y.backward(retain_graph=True)
            first = x.grad.clone() if x.grad is not None else None
            y.backward()
        assert first is not None and x.grad is not None
        assert torch.equal(first * 2, x.grad)
        assert len(calls) == 2


def test_guards_of_the_compile_are_asked_again() -> None:
    """A compile that decided by a size is not taken for another side of it."""
    rebuilt = check(guarded, leaf, contextlib.nullcontext, dynamic=True)
    assert json.loads(rebuilt.texts[0])["guards"]
    (small,) = [ramp(2, 2)]
    torch._dynamo.reset()
    backend = Rebuilt(again=True)
    compiled = torch.compile(guarded, backend=backend, dynamic=True)
    assert torch.equal(compiled(ramp(3, 4)), ramp(3, 4) * 2)
    assert torch.equal(compiled(ramp(5, 4)), ramp(5, 4) * 2)
    assert torch.equal(compiled(small), small * 3)
    assert len(backend.texts) == 2


def test_what_has_no_data_form_is_named() -> None:
    with pytest.raises(NoDataForm, match="a Thing that AOTAutograd needs"):
        encode([Thing()])
    with pytest.raises(NoDataForm, match="class Thing"):
        encode(Thing)
    for broken in ({"object": ["os.system", {}]}, {"enum": ["OutputType", "x"]}, {"a": 1, "b": 2}):
        with pytest.raises(NoDataForm, match="not data of AOTAutograd"):
            decode(broken)


class Thing:
    pass


def _recorded_reason(function: Callable[..., Any], *inputs: Any) -> str:
    reasons: list[str] = []

    def backend(gm: Any, inputs: Any) -> Any:
        stages = Stages(lambda *_: None, boxed_graph, boxed_graph, boxed_graph)
        with aot_runtime.capture(gm, inputs) as recorded:
            run = dispatch(gm, inputs, stages)
        with pytest.raises(NoDataForm) as caught:
            recorded.as_json(gm)
        reasons.append(str(caught.value))
        return run

    torch.compile(function, backend=backend)(*inputs)
    (reason,) = reasons
    return reason


@pytest.mark.slow
def test_tensor_subclasses_and_hooks_have_no_data_form() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(ramp(3, 4), ramp(3, 4))
    assert "class TwoTensor" in _recorded_reason(lambda x: x * 2, two)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert "hooks" in _recorded_reason(lambda x: x * 2, ramp(3, 4, grad=True))


def test_inputs_to_wait_for_are_found_in_each_torch() -> None:
    metadata: Any = importlib.import_module("torch._functorch._aot_autograd.schemas")
    fields = {field.name for field in dataclasses.fields(metadata.ViewAndMutationMeta)}
    names = {name for name in fields if name.startswith("act_input")}
    for name in names:
        assert aot_runtime._has_collective_inputs(SimpleNamespace(**{name: [0]}))
        assert not aot_runtime._has_collective_inputs(SimpleNamespace(**{name: []}))
