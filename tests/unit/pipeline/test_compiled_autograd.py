"""Compiled autograd around compiled programs: three steps as in eager, both forms, cold and warm.

region    the backward pass runs under `compiled_autograd._enable`, the forward is compiled
step      `torch._dynamo.config.compiled_autograd`: the whole step is one compiled function
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

from ctk.compiler.backend import ctk as backend
from ctk.compiler.cache.store import open_store
from ctk.compiler.dispatch import autograd

STEPS = 3

pytestmark = [  # warnings of torch's own steps
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * grads[0]


class Model(nn.Module):
    def __init__(self, middle: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm, self.middle = nn.LayerNorm(16), middle

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(self.norm(self.first(x)))
        return self.second(self.middle(hidden))


def add_hooks(model: Model) -> list[float]:
    """Add a hook of each kind; return the list that one of them fills."""
    sums: list[float] = []

    def note(parameter: Tensor) -> None:
        assert parameter.grad is not None
        sums.append(float(parameter.grad.sum()))

    model.first.weight.register_hook(lambda grad: grad * 2)
    model.second.register_full_backward_hook(lambda _module, grads, _out: (grads[0] * 1.5,))
    model.second.bias.register_post_accumulate_grad_hook(note)
    return sums


def write_rows(hidden: Tensor) -> Tensor:
    copy = hidden.clone()
    copy[:2].mul_(3)
    return copy


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda hidden: hidden,
    "function": lambda hidden: Scaled.apply(hidden),
    "write": write_rows,
    "index": lambda hidden: hidden[torch.arange(hidden.shape[0] - 1)],
}


def train(kind: str, form: str, *, accumulates: bool = False, sizes: bool = False) -> list[Tensor]:
    """Return losses, gradients and parameters of all steps."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model(KINDS.get(kind, KINDS["plain"]))
    sums = add_hooks(model) if kind == "hooks" else []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    call = torch.compile(model, backend=backend) if form == "region" else model

    def step(x: Tensor) -> Tensor:
        loss = call(x).pow(2).mean()
        loss.backward()
        return loss

    whole = torch.compile(step, backend=backend) if form == "step" else step
    values: list[Tensor] = []
    for number in range(STEPS):
        x = torch.randn(6 + sizes * number, 8)
        if form == "region":
            loss = call(x).pow(2).mean()
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
                loss.backward()
        else:
            with torch._dynamo.config.patch(compiled_autograd=form == "step"):
                loss = whole(x)
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        values += [loss.detach(), *grads]
        if not accumulates:
            optimizer.step()
            optimizer.zero_grad()
    return [*values, *(p.detach() for p in model.parameters()), torch.tensor(sums)]


def check_kind(kind: str, form: str, **how: bool) -> None:
    expected = train(kind, "eager", **how)
    torch.testing.assert_close(train(kind, form, **how), expected)


def hits() -> int:
    store = open_store()
    assert store is not None
    return sum(event.kind == "hit" for event in store.notes.events())


def test_a_region_takes_the_backward_of_a_cached_entry(cache: Path) -> None:
    for wanted in (0, 1):
        check_kind("plain", "region")
        assert hits() == wanted


def test_dynamo_does_not_trace_the_load_of_a_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would compile the functions of ctk that read the entry, one after the other."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(autograd.aot_runtime, "rebuild", lambda *_, **named: given.update(named))
    graph = GraphModule({}, Graph())
    autograd.resume({}, graph, lambda args: args, lambda args: args, lambda: graph)
    assert given["backward_graph"]._torchdynamo_disable


@pytest.mark.slow
@pytest.mark.parametrize("form", ["region", "step"])
@pytest.mark.parametrize("kind", [*KINDS, "hooks"])
def test_three_steps_as_in_eager(kind: str, form: str, cache: Path) -> None:
    for _ in range(2):
        check_kind(kind, form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["region", "step"])
@pytest.mark.parametrize("how", [{"accumulates": True}, {"sizes": True}], ids=str)
def test_gradients_accumulate_and_sizes_change(
    how: dict[str, bool], form: str, cache: Path
) -> None:
    for _ in range(2):
        check_kind("plain", form, **how)


@pytest.mark.slow
def test_a_second_order_gradient_of_an_eager_function() -> None:
    """torch refuses one through a compiled function, with each backend."""

    def second() -> Tensor:
        x = torch.linspace(-1, 1, 7, requires_grad=True)
        (first,) = torch.autograd.grad((x.sin() * x).exp().sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    expected = second()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
        torch.testing.assert_close(second(), expected)


@pytest.mark.slow
def test_random_numbers_of_a_cached_backward(cache: Path) -> None:
    """The mask that the forward draws is the one that the backward reads."""
    for _ in range(2):
        torch._dynamo.reset()
        x = torch.ones(64, 64, requires_grad=True)
        y = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5) * x, backend=backend)(x)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
            y.sum().backward()
        torch.testing.assert_close(x.grad, 2 * y.detach())
