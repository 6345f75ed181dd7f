"""Windows side by side, folds and unpooling give eager's results, without its kernels."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.lowered import compare
from tests.unit.lowering.test_operators import rows
from tests.unit.lowering.test_pooling import images

aten = torch.ops.aten


def pooled(x: Tensor) -> list[Tensor]:
    return [
        *F.adaptive_max_pool2d(x, 1, return_indices=True),
        *F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
        *F.max_pool2d(x, (6, 9), return_indices=True),
        F.avg_pool2d(x, 6),
        F.avg_pool2d(x, 6, divisor_override=5),
        F.adaptive_avg_pool2d(x, 2),
        F.adaptive_avg_pool1d(x[0], 2),
    ]


@pytest.mark.parametrize("codegen", ["", "c"])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_blocks(codegen: str, format: torch.memory_format) -> None:
    x = images(2, 3, 14, 54).contiguous(memory_format=format)
    assert not compare(pooled, x, codegen=codegen).library


def test_rows_of_many_elements() -> None:
    x = images(2, 3, 80, 80)
    call = [F.adaptive_max_pool2d, F.adaptive_avg_pool2d]
    assert not compare(lambda x: [each(x, 2) for each in call], x, codegen="c").library


def test_windows_of_several_sizes_are_calls() -> None:
    assert compare(lambda x: F.adaptive_max_pool2d(x, 5), images(2, 3, 14, 54)).library


@pytest.mark.parametrize("codegen", ["", "c"])
def test_unpooling(codegen: str) -> None:
    def unpooled(x: Tensor, volume: Tensor) -> list[Tensor]:
        apart = F.max_pool2d(x, 2, return_indices=True)
        often = F.max_pool2d(x, 3, 1, 1, return_indices=True)
        deep = F.max_pool3d(volume, 2, return_indices=True)
        return [
            F.max_unpool2d(*apart, [2, 2]),
            *([F.max_unpool2d(*often, [3, 3], [1, 1], [1, 1])] if codegen else []),  # in order
            F.max_unpool3d(*deep, [2, 2, 2]),
        ]

    inputs = rows(2, 3, 8, 10).detach(), rows(2, 3, 4, 6, 8).detach()
    assert not compare(unpooled, *inputs, codegen=codegen).library


@pytest.mark.parametrize("codegen", ["", "c"])
def test_folds(codegen: str) -> None:
    def folded(x: Tensor) -> list[Tensor]:
        settings = [(3, 1, 1), (2, 0, 2), (3, 1, 2), ((3, 2), (0, 1), (1, 2)), (2, 0, 3)]
        each = [(F.unfold(x, k, 1, p, s), k, p, s) for k, p, s in settings]
        return [F.fold(columns, (8, 10), k, 1, p, s) for columns, k, p, s in each]

    called = compare(folded, rows(2, 3, 8, 10).detach(), codegen=codegen)
    assert "aten.col2im.default" not in called.operators


@pytest.mark.parametrize("codegen", ["", "c"])
@pytest.mark.parametrize("name", ["upsample_nearest2d", "_upsample_nearest_exact2d"])
def test_gradients_of_upsampling_by_whole_factors(codegen: str, name: str) -> None:
    backward = getattr(aten, f"{name}_backward")

    def gradients(x: Tensor, y: Tensor) -> list[Tensor]:
        sizes = [2, 3, 4, 5]
        return [backward(x, [8, 15], sizes), backward(y, [28, 35], sizes, 7.0, 7.0)]

    inputs = rows(2, 3, 8, 15).detach(), rows(2, 3, 28, 35).detach()
    assert not compare(gradients, *inputs, codegen=codegen).library
    rest = compare(lambda x: backward(x, [8, 15], [2, 3, 4, 7]), inputs[0], codegen=codegen)
    assert rest.library
