"""Windows of tensors: order of dimensions, gaps, expanded and overlapping strides, what is kept."""

import pytest
import torch

from ctk.toolkit.reduce.dimensions.windows import (
    notable_index,
    strides_for,
    window,
    window_start,
)

ROWS = torch.arange(24.0).reshape(4, 6)


def test_a_window_is_a_contiguous_leaf_of_its_own():
    new = window(ROWS, (1, 2), (2, 3))
    assert torch.equal(new, ROWS[1:3, 2:5])
    assert new.is_contiguous()
    assert new.untyped_storage().nbytes() == 6 * 4


def test_the_order_of_dimensions_stays():
    image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    new = window(image, (0, 0, 0, 0), (1, 2, 3, 4))
    assert new.is_contiguous(memory_format=torch.channels_last)
    assert window(ROWS.t(), (0, 0), (3, 2)).stride() == (1, 3)


def test_gaps_keep_their_width():
    assert strides_for(torch.empty(4, 8)[:, :6], (2, 3)) == (5, 1)


def test_expanded_dimensions_stay_expanded():
    expanded = torch.arange(4.0)[:, None].expand(4, 9)
    new = window(expanded, (1, 0), (2, 5))
    assert new.stride() == (1, 0)
    assert torch.equal(new, expanded[1:3, :5])


def test_overlapping_elements_stay_one():
    frames = torch.arange(20.0).unfold(0, 8, 2)
    new = window(frames, (1, 0), (3, 4))
    assert new.stride() == (2, 1)
    assert torch.equal(new, frames[1:4, :4])


def test_a_parameter_is_one_and_gradients_are_wanted_as_before():
    weight = window(torch.nn.Parameter(torch.randn(3, 3)), (0, 0), (1, 1))
    assert type(weight) is torch.nn.Parameter
    assert window(torch.randn(3, requires_grad=True), (0,), (2,)).requires_grad


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e4])
def test_one_odd_element_is_notable(odd):
    values = torch.rand(5, 7)
    values[3, 2] = odd
    assert notable_index(values) == (3, 2)


def test_usual_values_are_not():
    assert notable_index(torch.linspace(-1, 1, 100)) is None
    assert notable_index(torch.arange(1, 10)) is None
    assert notable_index(torch.zeros(0)) is None
    assert notable_index(torch.zeros(3, 4)) is None
    assert notable_index(torch.tensor(1.0)) is None


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float16, torch.complex64])
def test_what_stands_behind_zeros_is_notable(dtype):
    values = torch.zeros(2, 3, 4, dtype=dtype)
    values[1, 0, 2] = values[1, 1, 1] = 1
    assert notable_index(values) == (1, 0, 2)
    values[0, 0, 3] = 1
    assert notable_index(values) == (0, 0, 3)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.t(), lambda x: x.expand(2, 4, 6)])
def test_a_window_begins_where_the_tensor_does_in_its_storage(make):
    tensor = make(torch.arange(100.0)[40:64].view(4, 6))
    part = window(tensor, [0] * tensor.dim(), [1] * tensor.dim())
    assert part.storage_offset() == 40
    assert part.flatten().tolist() == [40.0]


def test_interleaved_elements_keep_their_place_too():
    tensor = torch.arange(20.0).as_strided((3, 2), (2, 3), 5)
    assert window(tensor, (0, 0), (2, 2)).tolist() == tensor[:2].tolist()
    assert window(tensor, (0, 0), (2, 2)).storage_offset() == 5


def test_a_window_without_elements():
    part = window(torch.zeros(3, 0, 0), (0, 0, 0), (1, 0, 0))
    assert part.shape == (1, 0, 0)


def test_a_window_begins_as_near_the_start_as_it_can():
    assert [window_start(5, size) for size in (1, 4, 6, 9)] == [5, 2, 0, 0]
    assert window_start(5, 0) == 0
