"""Edits of values: what they change, and that nothing else changes."""

import dataclasses
import math

import pytest
import torch

from ctk.compiler.fx.clone import same_bits
from ctk.compiler.fx.walk import fetch
from ctk.repro_templates.graph.values import randn
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.fillings import core_of
from ctk.toolkit.case.formats.tensor_content import content_of
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.value_edits import (
    KeepLargest,
    MoveElement,
    RoundValues,
    SetNumber,
    SetValues,
    ZeroElements,
    changeable,
    largest_places,
    tensors_of,
)
from tests.helpers.reduce_steps import traced

W = randn((12, 12), seed=5) * 3
EDITS: dict[str, Edit] = {
    "filling": SetValues((("x", "ones"),)),
    "largest": KeepLargest(("x",), 3),
    "zeros": ZeroElements("x", (12, 12), ((0, 5), (40, 100))),
    "number": SetNumber("x", (12, 12), 4, 6, 0.5, 7.0),
    "moved": MoveElement("x", (12, 12), 140, (0, 1)),
    "rounded": RoundValues(("x",), "whole numbers"),
}


def applied(edit: Edit, case: Case) -> Case:
    result = edit.apply(case, facts_of(case))
    assert result is not None and result.synthetic == ("x",)
    return result


def of(value: torch.Tensor) -> Case:
    return traced(lambda x: x + 1, value)


@pytest.mark.parametrize("name", EDITS)
def test_everything_but_the_numbers_stays(name: str):
    for value in (
        W, W.t(), W.double(), W.bfloat16(), W.repeat(1, 2)[:, ::2], W.clone().requires_grad_(),
        torch.nn.Parameter(W.clone()), torch.nn.Parameter(W.clone(), requires_grad=False),
        W.to(torch.complex64), (W * 9).long(), W.to(torch.float8_e4m3fn), W.expand(3, 12, 12),
    ):  # fmt: skip
        edit = EDITS[name]
        if name == "rounded" and not value.is_floating_point():
            continue
        if name == "moved" and value.dim() == 2:
            value = value.detach().clone()
            value[(0,) * value.dim()] = 0
        before = core_of(value.detach()).contiguous().clone()
        if name == "moved" and value.dim() > 2:
            edit = MoveElement("x", (1, 12, 12), 140, (1,))
            value = torch.zeros(1, 12, 12).index_fill(1, torch.tensor(11), 2.0).expand(3, 12, 12)
            before = value[:1].clone()
        case = of(value)
        new = applied(edit, case).inputs[0]
        assert isinstance(new, torch.Tensor)
        assert (new.shape, new.stride(), new.dtype) == (value.shape, value.stride(), value.dtype)
        assert (new.requires_grad, type(new)) == (value.requires_grad, type(value))
        assert same_bits(core_of(value.detach()).contiguous(), before)


def test_the_largest_are_nan_then_inf_then_by_magnitude_the_first_of_equals():
    values = torch.tensor([1.0, -5.0, math.nan, 5.0, math.inf, 0.0])
    assert [largest_places(values, n).tolist() for n in (1, 2, 3, 4)] == [
        [2], [2, 4], [1, 2, 4], [1, 2, 3, 4],
    ]  # fmt: skip
    kept = applied(KeepLargest(("x",), 2), of(values)).inputs[0]
    assert kept.nan_to_num(7.0, 8.0).tolist() == [0, 0, 7, 0, 8, 0]


def test_expanded_elements_are_one():
    value = torch.tensor([[3.0, 4.0]]).expand(5, 2)
    new = applied(ZeroElements("x", (1, 2), ((1, 2),)), of(value)).inputs[0]
    assert new.tolist() == [[3.0, 0.0]] * 5 and new.stride() == (0, 1)


def test_a_nan_of_other_bits_becomes_one_that_python_says():
    bits = torch.full((100,), 0x7FC00123, dtype=torch.int32)
    value = bits.view(torch.float32)
    assert not content_of(value).is_recipe
    assert content_of(applied(KeepLargest(("x",), 1), of(value)).inputs[0]).is_recipe


def test_constants_of_the_graph_change_and_its_own_stay():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", W.clone())

        def forward(self, x):
            return x + self.table

    case = traced(Holding(), W)
    assert list(tensors_of(case)) == ["x", "self.table"]
    result = SetValues((("self.table", "ones"),)).apply(case, facts_of(case))
    assert result is not None and result.synthetic == ("table",)
    assert torch.equal(fetch(result.graph, "table"), torch.ones(12, 12))
    assert torch.equal(fetch(case.graph, "table"), W)


def test_shared_memory_is_left_alone():
    case = traced(lambda x, y, z: x + y + z, W, W[:6].repeat(2, 1), W)
    assert list(changeable(case)) == ["y"]
    assert list(changeable(dataclasses.replace(case, inputs=(W, W.t(), W.clone())))) == ["z"]


def test_what_edits_say():
    assert EDITS["filling"].says() == "x = ones"
    assert EDITS["largest"].says() == "x: all but the largest 3 elements = 0"
    assert KeepLargest(("x", "y"), 1).says() == "x, y: all but the largest element = 0"
    assert EDITS["zeros"].says() == "x elements 0 to 4, x elements 40 to 99 = 0"
    assert EDITS["number"].says() == "x elements 4 to 5: 0.5 -> 7"
    assert EDITS["moved"].says() == "x[11, 8] moved to x[0, 0]"
    assert EDITS["rounded"].says() == "x: values rounded to whole numbers"
