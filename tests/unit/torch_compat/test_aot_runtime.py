"""AOTAutograd's wrappers, rebuilt from JSON, do to a program what they do live."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ctk.compiler.dispatch import Stages, dispatch
from ctk.compiler.torch_compat import aot_runtime
from ctk.compiler.torch_compat.aot_data import NoDataForm, decode, encode
from tests.helpers.rebuilt import Rebuilt, boxed_graph, numbers, shown

Tensor = torch.Tensor


def ramp(*shape: int, grad: bool = False) -> Tensor:
    count = torch.Size(shape).numel()
    value = (torch.arange(count, dtype=torch.float32) * 0.37 - 1).reshape(shape)
    return value.requires_grad_(grad)


def add_inplace(x: Tensor) -> Any:
    x.add_(1)
    return x * 2


def alias_of_input(x: Tensor) -> Any:
    return x.t(), x[1:], x.view(-1)[::2]


def alias_of_intermediate(x: Tensor) -> Any:
    y = x * 3
    return y.view(-1), y.t(), y


def is_input(x: Tensor, y: Tensor) -> Any:
    return x, y * x, x


def mixed_outputs(x: Tensor, y: Tensor) -> Any:
    return {"sum": (x + y).sum(), "none": None, "size": x.shape[0], "list": [x.detach() * 2, y > 0]}


def not_differentiable(x: Tensor) -> Any:
    values, places = x.max(dim=1)
    return values * 2, places, x.argsort()


def saved_twice(x: Tensor, y: Tensor) -> Any:
    z = x.exp()
    return z * y, z * z, z.sin()


def metadata_mutation(x: Tensor) -> Any:
    x.t_()
    return x * 2


def view_mutation(x: Tensor) -> Any:
    y = x * 1
    y[0].mul_(5)
    y.view(-1)[1:3].add_(2)
    return y, y[0]


def mutate_view_of_input(x: Tensor) -> Any:
    x[0].mul_(2)
    return x.sum(), x[0]


def mutate_both(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    y.add_(x.sum())
    return x + y


def mutate_first(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return x + y.sum(), y * 1


def transpose_second(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    y.t_()
    return x + y.sum()


def product(x: Tensor, y: Tensor) -> Any:
    return (x @ y.t()).relu(), x * 2


def custom_view(x: Tensor) -> Any:
    return _Same.apply(x), x * 2


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.view(3, 4) * 2


def detach_half(x: Tensor, y: Tensor) -> Any:
    return x * y.detach(), x.sum() + y


def grad_mode_off(x: Tensor) -> Any:
    torch.set_grad_enabled(False)
    return x * 2


def sizes(x: Tensor) -> Any:
    n = x.shape[0]
    return n * 2, x.reshape(n * 4), torch.ones(n) + x.sum()


def guarded(x: Tensor) -> Any:
    return x * 2 if x.numel() > 8 else x * 3


def to_channels_last(x: Tensor) -> Any:
    return x.contiguous(memory_format=torch.channels_last), x.expand(2, -1, -1, -1)


def same_twice() -> list[Tensor]:
    x = ramp(3, 4)
    return [x, x]


def same_leaf_twice() -> list[Tensor]:
    x = ramp(3, 4, grad=True)
    return [x, x]


def two_views() -> list[Tensor]:
    base = ramp(6, 6)
    return [base[:3], base[2:5]]


def two_views_of_one_graph() -> list[Tensor]:
    base = ramp(6, 6, grad=True) * 1
    return [base[:3], base[2:5]]


def leaf() -> list[Tensor]:
    return [ramp(3, 4, grad=True)]


def plain() -> list[Tensor]:
    return [ramp(3, 4)]


def two() -> list[Tensor]:
    return [ramp(3, 4, grad=True), ramp(3, 4, grad=True)]


def not_a_leaf() -> list[Tensor]:
    return [ramp(3, 4, grad=True) * 1]


def one_leaf() -> list[Tensor]:
    return [ramp(3, 4, grad=True), ramp(3, 4)]


def inputs_of_inference() -> list[Tensor]:
    with torch.inference_mode():
        return [ramp(3, 4)]


def image() -> list[Tensor]:
    return [ramp(1, 2, 3, 3, grad=True)]


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


QUICK = [
    pytest.param(add_inplace, plain, contextlib.nullcontext, id="mutated input"),
    pytest.param(alias_of_intermediate, leaf, contextlib.nullcontext, id="alias of intermediate"),
    pytest.param(mutate_first, two_views, contextlib.nullcontext, id="synthetic base"),
    pytest.param(saved_twice, two, contextlib.nullcontext, id="saved twice"),
]

MORE: list[Any] = [
    (add_inplace, not_a_leaf, contextlib.nullcontext),
    (add_inplace, inputs_of_inference, torch.inference_mode),
    (add_inplace, leaf, torch.no_grad),
    (alias_of_input, leaf, contextlib.nullcontext),
    (alias_of_input, plain, contextlib.nullcontext),
    (alias_of_input, inputs_of_inference, torch.inference_mode),
    (alias_of_intermediate, plain, contextlib.nullcontext),
    (alias_of_intermediate, leaf, torch.no_grad),
    (is_input, two, contextlib.nullcontext),
    (is_input, same_leaf_twice, contextlib.nullcontext),
    (mixed_outputs, one_leaf, contextlib.nullcontext),
    (mixed_outputs, two, torch.inference_mode),
    (not_differentiable, leaf, contextlib.nullcontext),
    (metadata_mutation, plain, contextlib.nullcontext),
    (metadata_mutation, not_a_leaf, contextlib.nullcontext),
    (view_mutation, leaf, contextlib.nullcontext),
    (mutate_view_of_input, not_a_leaf, contextlib.nullcontext),
    (mutate_view_of_input, plain, contextlib.nullcontext),
    (mutate_both, same_twice, contextlib.nullcontext),
    (mutate_first, two_views_of_one_graph, contextlib.nullcontext),
    (transpose_second, two_views, contextlib.nullcontext),
    (product, two, autocast),
    (product, one_leaf, contextlib.nullcontext),
    (custom_view, leaf, contextlib.nullcontext),
    (detach_half, two, contextlib.nullcontext),
    (grad_mode_off, leaf, contextlib.nullcontext),
    (sizes, leaf, contextlib.nullcontext),
    (to_channels_last, image, contextlib.nullcontext),
]


def observe(
    function: Any, make: Any, mode: Any, backend: Any, *, dynamic: bool
) -> tuple[list[Any], list[Any]]:
    """Run a program compiled, with a backward pass if it has one; what it shows, and numbers."""
    torch._dynamo.reset()
    inputs = make()
    with mode():
        compiled = torch.compile(function, backend=backend, dynamic=dynamic)
        outputs = compiled(*inputs)
    seen = shown(outputs, inputs)
    seen.append(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    leaves = [each for each in torch.utils._pytree.tree_leaves(outputs) if torch.is_tensor(each)]
    ends = [each for each in leaves if each.grad_fn is not None]
    if ends:
        sum((each.float() * each.float()).sum() for each in ends).backward()
    return seen, numbers(outputs, inputs)


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a is b or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


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
        with pytest.raises(NoDataForm, match="no data of AOTAutograd"):
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
def test_subclasses_hooks_and_sizes_of_hidden_bases_have_no_data_form() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(ramp(3, 4), ramp(3, 4))
    assert "class TwoTensor" in _recorded_reason(lambda x: x * 2, two)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert "hooks" in _recorded_reason(lambda x: x * 2, ramp(3, 4, grad=True))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert "no size of an input" in _recorded_reason(mutate_both, *two_views())
