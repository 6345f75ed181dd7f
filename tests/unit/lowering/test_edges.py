"""What eager does at the edges: lazy negatives, places counted from the end."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.text import program_text
from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.runtime.helpers import fitted, required
from tests.helpers.lowered import Lowered, captured, compare

COMPLEX = torch.tensor([1 + 2j, 3 - 4j, -1j])


def write(z: Tensor) -> Tensor:
    w = z.clone()
    w.conj().imag.add_(1)
    return w


LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "part of a conjugate": lambda z: z.conj().imag + 1,
    "negative view": lambda z: torch._neg_view(z.real) * 2,
    "views of it": lambda z: z.view(3, 1).mH.imag[0, 1:].exp(),
    "written to": write,
    "resolved": lambda z: torch.view_as_real(z.conj().resolve_conj()) + 1,
    "cloned": lambda z: torch.view_as_real(z.conj().clone()) + 1,
}


@pytest.mark.parametrize("name", LAZY)
def test_the_sign_of_a_lazy_negative_is_not_lost(name: str) -> None:
    torch.compiler.reset()
    call = LAZY[name]
    compiled = torch.compile(call, backend=partial(compile_fx, config=Config(codegen="c")))
    torch.testing.assert_close(compiled(COMPLEX), call(COMPLEX))


def test_a_lazy_negative_at_the_call_is_resolved_or_refused() -> None:
    lazy = torch._neg_view(torch.ones(3))
    found = fitted(lazy, (3,), (1,), torch.float32)
    assert not found.is_neg() and found.tolist() == [-1] * 3
    with pytest.raises(ValueError, match="lazy negative"):
        required(lazy, (3,), (1,))


def test_index_fill_counts_from_the_end() -> None:
    def filled(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        return x.index_fill(0, i, 1.0), x.t().index_fill(-1, i, x[0, 0]), x.index_fill(0, i[0], 2)

    compare(filled, torch.zeros(4, 2), torch.tensor([-1, 1, -4]), codegen="c")
    inputs = [torch.zeros(4, 2), torch.tensor([1, 1, 1])]
    run = Lowered("c").compile(captured(lambda x, i: x.index_fill(0, i, 1.0), 2), inputs)
    with pytest.raises(IndexError, match=r"out of bounds .* size 4"):
        run(torch.zeros(4, 2), torch.tensor([-5, -5, -5]))


def test_results_out_of_range_on_the_way_are_those_of_eager_in_c() -> None:
    def call(x: Tensor, y: Tensor, places: Tensor) -> list[Tensor]:
        half = x.half()
        roots = [half**0.5, half**-0.5, torch.fmod(x.bfloat16(), 0.3), x.bfloat16() % 0.3]
        return [y.std(), y.std(0), torch.ldexp(y, places), torch.ldexp(x, places), *roots]

    x = torch.tensor([-0.0, 0.0, 4.0, -1.5])
    compare(call, x, x * 1e20, torch.tensor([32767, -150, 60, -32768]), codegen="c")
    compare(lambda x: x**0.5, torch.full((9,), -torch.inf).half(), codegen="c")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_compared_as_rounded(dtype: torch.dtype) -> None:
    """The product is rounded in the maximum, and computed again beside it."""

    def call(x: Tensor, y: Tensor) -> list[Tensor]:
        product = x * y
        largest = product.amax(1, keepdim=True)
        return [(product == largest).sum(1), product < largest, product == 1.0078125]

    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, 128, generator=draw).to(dtype) for _ in range(2))
    for codegen in ("", "c"):
        compare(call, x, y, codegen=codegen)


@pytest.mark.parametrize("steps", [20, 40])
def test_a_shared_value_is_written_once(steps: int) -> None:
    """Written as a tree, the text doubles with each step."""

    def logistic(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = 3.9 * x * (1 - x)
        return x

    gm = make_fx(logistic, tracing_mode="fake")(torch.rand(4))
    text = program_text(fuse(lower(gm), lambda *_: True))
    assert len(text) < 200 * steps
    assert f"%{steps - 2} = " in text


def test_zeros_of_complex_numbers_stay_with_the_library() -> None:
    """The backward pass of `angle` makes a complex zero."""
    z = COMPLEX.clone().requires_grad_()
    own = torch.autograd.grad(z.angle().sum(), z)
    compiled = torch.compile(
        lambda z: z.angle().sum(), backend=partial(compile_fx, config=Config(codegen="c"))
    )
    torch.testing.assert_close(torch.autograd.grad(compiled(z), z), own)


NO_IDENTITY: dict[str, Callable[[Tensor], Any]] = {
    "max": lambda x: x.max(),
    "max of a dimension": lambda x: x.max(0),
    "min of a product": lambda x: (x * 2).min(0).values + 1,
    "max of bools": lambda x: (x > 0).max(),
    "min of integers": lambda x: torch.cat([x, x]).int().min(),
    "amax": lambda x: x.amax(0),
    "aminmax": lambda x: x.aminmax(),
    "argmin": lambda x: x.argmin(0, keepdim=True),
    "norm": lambda x: torch.linalg.vector_norm(x, torch.inf, 0),
    "median": lambda x: x.median(0),
}


def raised(call: Callable[[Tensor], Any], x: Tensor) -> bool:
    try:
        call(x)
    except (IndexError, RuntimeError):
        return True
    return False


@pytest.mark.parametrize("name", NO_IDENTITY)
def test_an_extreme_of_no_elements_raises(name: str) -> None:
    call = NO_IDENTITY[name]
    for part in (lambda x: call(x), lambda x: call(x[2:]), lambda x: call(x[x[:, 0] > 2])):
        for dynamic in (None, True):
            torch.compiler.reset()
            with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
                run = torch.compile(part, backend=Lowered().compile, dynamic=dynamic)
                for rows in (5, 2, 0, 4):
                    x = torch.arange(rows).repeat(3, 1).T.float()
                    assert raised(run, x) is raised(part, x), (dynamic, rows)


def test_the_error_of_an_empty_extreme_is_that_of_eager() -> None:
    run = torch.compile(lambda x: x.max(0), backend=partial(compile_fx, config=Config()))
    with pytest.raises(IndexError, match="Expected reduction dim 0 to have non-zero"):
        run(torch.ones(0, 3))


def test_extremes_of_sizes_that_are_not_zero_are_kernels() -> None:
    """Dynamo compiles sizes of 0 and 1 apart: a symbol stands for 2 and more."""

    def call(x: Tensor) -> list[Any]:
        return [x.max(), *x[1:].max(0), *x.min(1), torch.cat([x, x]).min()]

    assert compare(call, torch.rand(4, 3), dynamic=True, codegen="c").operators == set()
