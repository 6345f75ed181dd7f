"""Clones with their layout, and what a layout is."""

from collections import namedtuple

import pytest
import torch

from ctk.compiler.fx.clone import (
    clone_inputs,
    clone_value,
    extent,
    layout,
    overlaps,
    put_back,
)


@pytest.mark.parametrize(
    ("shape", "stride", "elements", "is_overlapping"),
    [
        ((2, 3), (3, 1), 6, False),
        ((3, 2), (1, 3), 6, False),
        ((2, 3), (8, 2), 13, False),
        ((4, 3), (0, 1), 3, True),
        ((1, 3), (0, 1), 3, False),
        ((1,), (7,), 1, False),
        ((8, 3), (1, 1), 10, True),
        ((0, 3), (3, 1), 0, False),
    ],
)
def test_extent_and_overlap(shape, stride, elements, is_overlapping):
    assert extent(shape, stride) == elements
    assert overlaps(shape, stride) == is_overlapping
    indices = torch.arange(100).as_strided(shape, stride).flatten().tolist()
    assert overlaps(shape, stride) == (len(set(indices)) < len(indices))
    assert extent(shape, stride) == max(indices, default=-1) + 1


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 1).expand(3, 4),
        torch.randn(10).unfold(0, 3, 1),
        torch.randn(4, 3).t(),
        torch.randn(12)[::2],
        torch.tensor(2.0),
    ],
)
def test_a_clone_has_the_layout_and_memory_of_its_own(value):
    cloned = clone_value(value)
    assert layout(cloned) == layout(value)
    assert torch.equal(cloned, value)
    assert cloned.untyped_storage().data_ptr() != value.untyped_storage().data_ptr()
    (as_input,) = clone_inputs((value,))
    assert layout(as_input) == layout(value)


def test_clones_keep_strides_leaves_parameters_and_identity():
    expanded = torch.arange(3.0).expand(4, 3)
    overlapping = torch.arange(12.0).as_strided((4, 4), (2, 1), 1)
    parameter = torch.nn.Parameter(torch.randn(2, 3).t())
    inputs = (expanded, overlapping, parameter, parameter, 7, None)
    clones = clone_inputs(inputs)
    for old, new in zip(inputs[:4], clones[:4], strict=True):
        assert new.data_ptr() != old.data_ptr()
        assert new.stride() == old.stride()
        assert new.storage_offset() == old.storage_offset()
        assert torch.equal(new, old)
    assert isinstance(clones[2], torch.nn.Parameter)
    assert clones[2].requires_grad and clones[2].is_leaf
    assert clones[3] is clones[2]
    assert clones[4:] == (7, None)


@pytest.mark.parametrize("convert", [None, lambda _: torch.float64], ids=["as is", "float64"])
def test_clones_that_shared_storage_share_it_again(convert):
    base = torch.arange(12.0)
    first, rest, other = clone_inputs((base[:8], base[4:], torch.zeros(2)), convert=convert)
    first[4] = 100.0
    assert rest[0] == 100.0
    assert base[4] == 4.0
    assert other.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.empty(0, 3),
        torch.tensor(1.5),
        torch.tensor([1, 2], dtype=torch.int8),
    ],
    ids=["conj", "sparse", "empty", "0-d", "int8"],
)
def test_unusual_tensors_are_cloned(tensor):
    (clone,) = clone_inputs((tensor,))
    assert clone is not tensor
    assert clone.dtype == tensor.dtype and clone.shape == tensor.shape
    torch.testing.assert_close(clone, tensor)


def test_views_of_one_tensor_are_views_of_one_again():
    base = torch.arange(12.0).reshape(3, 4).clone()
    whole, row, column = clone_inputs((base, base[1], base[:, 2]))
    assert row._base is whole and column._base is whole
    row.add_(100)
    assert column.tolist() == [2, 106, 10] and base[1, 2] == 6
    first, second = clone_inputs((base[1], base[2]))
    assert first._base is second._base is not None
    assert clone_inputs((base[1],))[0]._base is None  # a single view says nothing of its base


def test_state_in_containers_and_generators_is_cloned():
    generator, x = torch.Generator().manual_seed(1), torch.zeros(2)
    Pair = namedtuple("Pair", "tensor number")
    values = ([x, 1], {"x": x}, Pair(x, 2), generator, torch.default_generator, (1, "a"))
    listed, named, pair, drawn, default, plain = clone_inputs(values)
    listed[0].add_(1)
    assert named["x"] is listed[0] is pair.tensor and pair.number == 2
    assert torch.equal(x, torch.zeros(2))
    assert plain is values[-1] and default is torch.default_generator
    assert torch.equal(torch.rand(3, generator=drawn), torch.rand(3, generator=generator))
    torch.rand(1, generator=drawn)
    assert not torch.equal(drawn.get_state(), generator.get_state())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3, 3).to_mkldnn(),
        torch.empty(3, device="meta"),
        torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
    ids=["sparse", "mkldnn", "meta", "nested"],
)
def test_what_torch_cannot_compare_is_put_back(tensor):
    (clone,) = clone_inputs((tensor,))
    expected = [*state_of(tensor)]
    tensor.add_(tensor)
    put_back((tensor,), (clone,))
    assert [*state_of(tensor)] == expected


def state_of(tensor):
    if tensor.is_meta:
        return tensor.shape
    return [v.tolist() for v in (tensor.unbind() if tensor.is_nested else [tensor.to_dense()])]


def test_put_back_leaves_no_trace():
    base = torch.arange(6.0)
    view, clones = base[::2], clone_inputs((base,))
    view.mul_(-0.0)
    version = base._version
    put_back((base, 3), (*clones, 3))
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    assert base._version == version


@pytest.mark.parametrize("clone", [clone_value, lambda x: clone_inputs([x])[0]])
def test_a_conjugation_stays_pending(clone):
    x = torch.randn(4, 3, dtype=torch.complex64).t().conj()
    copy = clone(x)
    assert copy.is_conj() and copy.stride() == x.stride() and torch.equal(copy, x)
    assert copy.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
