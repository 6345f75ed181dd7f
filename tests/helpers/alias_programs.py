"""Small programs whose inputs and outputs share memory, are written to, or have gradients in part.

`PROGRAMS` are (function, inputs, mode); `observe` runs one compiled and says all that it shows.
"""

import contextlib
from typing import Any

import torch

from tests.helpers.rebuilt import numbers, shown

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


QUICK: list[Any] = [
    (add_inplace, plain, contextlib.nullcontext),
    (alias_of_intermediate, leaf, contextlib.nullcontext),
    (mutate_first, two_views, contextlib.nullcontext),
    (saved_twice, two, contextlib.nullcontext),
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
    (mutate_both, two_views, contextlib.nullcontext),
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
