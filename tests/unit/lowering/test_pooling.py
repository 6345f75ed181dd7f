"""Pooling as kernels: values, positions and gradients are those of eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from tests.helpers.lowered import compare
from tests.unit.lowering.test_operators import rows


def images(*shape: int) -> Tensor:
    """Return images with ties, zeros of both signs, an infinity and NaNs."""
    made = (rows(*shape).detach() * 2).round()
    flat = made.view(-1)
    flat[::17], flat[5::23], flat[3] = torch.nan, -torch.inf, torch.inf
    return made


def maxima(x: Tensor, y: Tensor) -> list[Tensor]:
    found = [
        F.max_pool2d(x, 3, 2, 1, return_indices=True),
        F.max_pool2d(x, (2, 3), return_indices=True),
        F.max_pool2d(x, 2, 3, 1, dilation=2, return_indices=True),
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        F.max_pool3d(x, 2, return_indices=True),
        F.max_pool3d(y, (1, 3, 2), (1, 2, 2), (0, 1, 1), return_indices=True),
        F.max_pool1d(x[0], 3, 1, 1, return_indices=True),
    ]
    return [part for pair in found for part in pair]


def means(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        F.avg_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.avg_pool2d(x, 2, 3, divisor_override=3),
        F.avg_pool2d(x, (2, 3), 1, (1, 1), ceil_mode=True),
        F.avg_pool3d(y, 2, 1, 1, count_include_pad=False),
        F.avg_pool3d(y, 2, 2),
        F.lp_pool2d(x.abs(), 2, 2),
        F.avg_pool1d(x[0], 3, 1, 1),
    ]


def gradients(x: Tensor, y: Tensor) -> Tensor:
    smooth = [part for part in (*maxima(x, y), *means(x, y)) if part.is_floating_point()]
    return sum((part * part.numel()).sum() for part in smooth)  # type: ignore[return-value]  # of tensors


def inputs() -> tuple[Tensor, Tensor]:
    return images(2, 3, 7, 9), images(2, 3, 4, 5, 6)


@pytest.mark.parametrize("codegen", ["", "c"])
def test_maxima_and_their_positions(codegen: str) -> None:
    assert not compare(maxima, *inputs(), codegen=codegen).library


def test_a_window_without_a_number_has_its_first_place() -> None:
    low = torch.full((1, 1, 6, 6), -torch.inf)
    compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), low, codegen="c")


def test_a_window_in_the_padding_alone_is_the_librarys() -> None:
    def maximum(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.max_pool2d(x, 3, (1, 3), 1, (1, 2), ceil_mode=True, return_indices=True)

    assert compare(maximum, rows(1, 2, 7, 1), codegen="c").library
    assert not compare(maximum, rows(1, 2, 7, 2), codegen="c").library


@pytest.mark.parametrize("codegen", ["", "c"])
def test_means(codegen: str) -> None:
    x, y = (each.nan_to_num(1.0, 1.0, 1.0) for each in inputs())
    assert not compare(means, x, y, codegen=codegen).library


@pytest.mark.parametrize("codegen", ["", "c"])
def test_gradients(codegen: str) -> None:
    x, y = rows(2, 3, 7, 9), rows(2, 3, 4, 5, 6)
    assert not compare(gradients, x, y, codegen=codegen).library


def test_steps_that_do_not_divide_the_size() -> None:
    """The last iterations of a loop that is written out, in C."""
    x = rows(1, 2, 3, 7)

    def spread(x: Tensor) -> list[Tensor]:
        doubled = x.repeat_interleave(2, -1)
        return [F.avg_pool2d(x, 1, 2), F.avg_pool2d(x, 3, 3, 1), doubled[..., 1:-2] * 2]

    compare(spread, x, codegen="c")


def test_layouts_types_and_sizes_of_the_call() -> None:
    def pooled(x: Tensor) -> list[Tensor]:
        return [*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 2, 2)]

    x = rows(2, 4, 8, 6).detach()
    last = x.contiguous(memory_format=torch.channels_last)
    for each in (last, x.transpose(2, 3), x[..., ::2], x.double(), x.bfloat16(), x.half()):
        assert not compare(pooled, each, codegen="c").library
    assert not compare(pooled, x, dynamic=True, codegen="c").library


def test_a_gradient_that_is_a_result_has_the_type_of_eagers() -> None:
    x = torch.arange(24.0).view(1, 2, 3, 4).bfloat16()

    def gradient(x: Tensor) -> Tensor:
        y, places = F.max_pool2d(x, 2, 1, return_indices=True)
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        return backward(y, x, [2, 2], [1, 1], [0, 0], [1, 1], False, places)

    assert not compare(gradient, x).library
    assert not compare(gradient, x, codegen="c").library


def test_a_gradient_is_read_through_a_view_of_sizes_of_the_call() -> None:
    """A view makes no size, so the kernels before and behind it may be computed together."""
    x = rows(2, 3, 16)
    assert compare(lambda x: F.max_pool1d(x[1], 2), x, dynamic=True)
    assert compare(lambda x: F.max_pool1d(x[:, 0], 2), x, dynamic=True, codegen="c")


def test_large_windows_are_the_librarys() -> None:
    gm = make_fx(lambda x: F.avg_pool2d(F.max_pool2d(x, 6, 1), 6, 1), tracing_mode="fake")(
        torch.ones(1, 1, 12, 12)
    )
    steps = [step for step in lower(gm).steps if not isinstance(step, Kernel)]
    assert [call.why for call in steps if "getitem" not in call.name] == [
        "its windows have more than 27 elements"
    ] * 2
