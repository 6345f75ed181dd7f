"""What results are besides their values, and what of it a program can notice."""

import pytest
import torch

from ctk.repro_templates.graph.values import strided
from ctk.repro_templates.numbers.layout import (
    LAYOUT,
    Layout,
    compare_layouts,
    layout_kinds,
    layout_of,
    share,
    visible_strides,
)

BASE = torch.zeros(24)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (BASE, BASE, True),
        (BASE[:12], BASE[12:], False),
        (BASE[:13], BASE[12:], True),
        (BASE[::2], BASE[1::2], False),  # interleaved
        (BASE.view(4, 6)[:, :3], BASE.view(4, 6)[:, 3:], False),
        (BASE.view(4, 6).t(), BASE.view(4, 6), True),
        (BASE.as_strided((3, 4), (0, 1)), BASE[3:4], True),  # expanded
        (BASE, BASE.clone(), False),
        (BASE[:4], BASE.view(torch.int16)[:2], True),  # bits of another dtype: bytes are compared
        (BASE[:4], BASE.view(torch.int16)[20:], False),
        (BASE, torch.zeros(0), False),
    ],
)
def test_views_share_memory_where_they_have_an_element_in_common(a, b, expected):
    assert share(a, b) is expected
    assert share(b, a) is expected


def test_pairs_of_outputs_and_of_outputs_with_inputs():
    x, y = torch.ones(4, requires_grad=True), torch.ones(4)
    out = x * 2
    outputs = {"out0": out, "out1": out[1:], "out2": y[:2], "out3": 7, "out4": torch.ones(0)}
    found = layout_of(outputs, {"in0": x, "in1": y, "in2": y})
    assert found.shared == {("out0", "out1"), ("out2", "in1"), ("out2", "in2")}
    assert found.differentiable == {"out0", "out1"}


def test_strides_that_a_program_can_notice():
    row = torch.ones(200)
    assert visible_strides(row.as_strided((1, 3), (99, 1))) == (1,)
    assert visible_strides(torch.ones(3, 0)) == ()
    eager = {"out0": torch.ones(4, 3), "in0": torch.ones(3), "grad_in0": torch.ones(4, 3)}
    eager |= {"held_cache": torch.ones(4, 3), "held.cache": torch.ones(4, 3)}
    other = torch.ones(3, 4).t()
    compiled = {"out0": other, "in0": torch.ones(6)[::2], "grad_in0": other}
    compiled |= {"held_cache": other, "held.cache": other}
    found = compare_layouts(eager, compiled, (Layout(), Layout()), LAYOUT)
    assert {each.kind for each in found} == {"stride"}
    assert [each.name for each in found] == ["out0", "in0", "held_cache", "held.cache"]
    assert compare_layouts(eager, compiled, (Layout(), Layout()), LAYOUT[1:]) == ()


def test_the_failure_that_is_looked_for_is_the_one_that_counts():
    assert layout_kinds(None) == LAYOUT
    assert layout_kinds("stride") == ("stride",)
    assert layout_kinds("alias") == ("alias",)
    assert layout_kinds("accuracy") == ()


@pytest.mark.parametrize(
    ("size", "stride"),
    [((0, 3), (100, 1)), ((2, 0), (7, 7)), ((0,), (1,)), ((), ()), ((2, 3), (1, 2))],
)
def test_a_tensor_of_any_size_takes_strides_and_an_offset(size, stride):
    made = strided(torch.ones(size), stride, 2)
    assert (made.shape, made.stride(), made.storage_offset()) == (size, stride, 2)
    assert torch.equal(made, torch.ones(size))
