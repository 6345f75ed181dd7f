"""Comparison on random tensors: no false alarm on equal values, never blind to a real error."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctk.compiler.fx.clone import clone_inputs
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.tolerance import EXACT, LOWERS_PRECISION, REASSOCIATES

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*FLOATS, torch.complex64, torch.int8, torch.uint8, torch.int64, torch.bool]
QUICK = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def tensors(draw, dtypes=DTYPES, min_size=0):
    """Draw a tensor with special values, of any rank up to 3."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(min_size, 5), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    scale = 10.0 ** draw(st.integers(-3, 3))
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    if dtype.is_floating_point and numbers.numel() and draw(st.booleans()):
        special = draw(st.sampled_from([math.nan, math.inf, -math.inf, 0.0]))
        numbers.view(-1)[draw(st.integers(0, numbers.numel() - 1))] = special
    return numbers.to(dtype)


@QUICK
@given(tensors())
def test_a_value_never_differs_from_itself(value):
    assert compare_values("v", value, value.clone(), None, EXACT) is None


@QUICK
@given(tensors(FLOATS))
def test_one_rounding_is_no_failure(value):
    reference = value.double()
    nudged = torch.nextafter(value, torch.full_like(value, math.inf))
    nudged = torch.where(torch.isfinite(nudged) & torch.isfinite(value), nudged, value)
    assert compare_values("v", value, nudged, reference) is None


@QUICK
@given(tensors(FLOATS, min_size=1), st.data())
def test_one_element_off_by_the_size_of_the_tensor_is_found(value, data):
    finite = torch.isfinite(value).all()
    if not finite or not value.abs().max() > 0:
        return
    position = data.draw(st.integers(0, value.numel() - 1))
    wrong = value.clone()
    # Twice the largest element: above any tolerance, and above what rounding to float16 overflows.
    wrong.view(-1)[position] += 2 * value.abs().max()
    found = compare_values("v", value, wrong, value.double())
    if not torch.isfinite(wrong).all():
        assert found is not None and found.kind == "nan"
        return
    assert found is not None and found.kind == "accuracy"
    index = torch.unravel_index(torch.tensor(position), value.shape)
    assert found.worst_index == tuple(int(i) for i in index)


@QUICK
@given(tensors(FLOATS, min_size=1), st.integers(0, 1000))
def test_the_answer_does_not_depend_on_the_order_of_elements(value, seed):
    reference = value.double()
    wrong = value * 1.2
    order = torch.randperm(value.numel(), generator=torch.Generator().manual_seed(seed))
    plain = compare_values("v", value.view(-1), wrong.view(-1), reference.view(-1))
    mixed = compare_values(
        "v", value.view(-1)[order], wrong.view(-1)[order], reference.view(-1)[order]
    )
    assert (plain is None) == (mixed is None)
    if plain and mixed:
        assert (plain.kind, plain.max_abs) == (mixed.kind, mixed.max_abs)


@QUICK
@given(tensors(FLOATS, min_size=1), st.sampled_from([0.5, 2.0, 1024.0]))
def test_a_weaker_promise_never_fails_what_a_stronger_one_passes(value, factor):
    wrong = value * (1 + 1e-6 * factor)
    reference = value.double()
    strong = compare_values("v", value, wrong, reference, EXACT)
    if strong is None:
        assert compare_values("v", value, wrong, reference, REASSOCIATES) is None
    if compare_values("v", value, wrong, reference, REASSOCIATES) is None:
        assert compare_values("v", value, wrong, reference, LOWERS_PRECISION) is None


@QUICK
@given(tensors(), st.booleans(), st.integers(0, 3))
def test_clones_are_equal_and_independent(value, transpose, offset):
    """Any view of a storage: same numbers, same strides, another memory."""
    base = torch.cat([value.new_zeros(offset), value.reshape(-1)])
    view = base[offset:].view(value.shape)
    view = view.transpose(0, -1) if transpose and view.dim() > 1 else view
    (clone,) = clone_inputs((view,))
    assert clone.shape == view.shape and clone.stride() == view.stride()
    assert clone.storage_offset() == (view.storage_offset() if view.numel() else 0)
    assert compare_values("v", view, clone, None, EXACT) is None
    if view.numel():
        assert clone.data_ptr() != view.data_ptr()
