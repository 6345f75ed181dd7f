"""Aten graphs of real modules for the tests of code generation, and the comparison with eager."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.codegen.torchscript.torchscript_codegen import ts_compile
from ctk.compiler.fx.clone import clone_values, layout

RUNS = 3
"""TorchScript profiles the first call, optimises in the second and runs the result from then on."""


def functional(fn: Callable[..., object], *inputs: object, symbolic: bool = False) -> GraphModule:
    """Trace a function to a functional aten graph; writes to inputs become `copy_` at its end."""
    mode = "symbolic" if symbolic else "real"
    with torch.no_grad():
        return make_fx(torch.func.functionalize(fn), tracing_mode=mode)(*inputs)


def module_graph(module: nn.Module, *inputs: torch.Tensor) -> tuple[GraphModule, list[object]]:
    """Trace a module with its parameters and buffers as inputs, as autograd dispatch does."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = list(state)

    def call(*flat: torch.Tensor) -> object:
        values = dict(zip(names, flat, strict=False))
        return torch.func.functional_call(module, values, tuple(flat[len(names) :]))

    args = [value.detach() for value in state.values()] + list(inputs)
    return functional(call, *args), list(args)


def training_graph(module: nn.Module, *inputs: torch.Tensor) -> tuple[GraphModule, list[object]]:
    """Trace forward and backward of a module: the gradients of the sum of its result."""
    names = [name for name, _ in module.named_parameters()]

    def call(*flat: torch.Tensor) -> object:
        leaves = [value.detach().requires_grad_() for value in flat[: len(names)]]
        values = dict(zip(names, leaves, strict=True))
        result = torch.func.functional_call(module, values, tuple(flat[len(names) :]))
        gradients = torch.autograd.grad(result.sin().sum(), leaves)
        return result.detach(), *gradients

    args = [value.detach() for _, value in module.named_parameters()] + list(inputs)
    return make_fx(call)(*args), list(args)


def assert_same(left: object, right: object) -> None:
    """Compare values by torch's default tolerances, and their layout exactly."""
    assert layout(left) == layout(right)
    torch.testing.assert_close(left, right, equal_nan=True)


def random_states() -> list[torch.Tensor]:
    """Return the state of every random generator in use."""
    gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *gpu]


def assert_same_run(one: BoxedCallable, other: BoxedCallable, inputs: Sequence[object]) -> None:
    """Run both on copies, from the same seed: results, inputs and random state must agree after."""
    left, right = list(clone_values(inputs)), list(clone_values(inputs))
    kept_left, kept_right = list(left), list(right)
    torch.manual_seed(7)
    got = one(left)
    states = random_states()
    torch.manual_seed(7)
    with torch.no_grad():
        wanted = other(right)
    assert left == []
    assert right == []
    assert type(got) is type(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert_same(a, b)
    for a, b in zip(kept_left, kept_right, strict=True):
        assert_same(a, b)
    for a, b in zip(states, random_states(), strict=True):
        assert torch.equal(a, b)


def assert_like_eager(gm: GraphModule, *batches: Sequence[object]) -> BoxedCallable:
    """Compile with TorchScript on the first batch; compare with eager on each, several times."""
    code = gm.code
    compiled, eager = ts_compile(gm, batches[0]), eager_compile(gm)
    assert gm.code == code, "code generation changed the graph"
    for _ in range(RUNS):
        for batch in batches:
            assert_same_run(compiled, eager, batch)
    return compiled
