"""Tensors of classes of their own are compared, fingerprinted and written by what they hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from ctk.repro_templates.numbers.compare import compare_values, runs_identical
from ctk.repro_templates.numbers.plain_parts import plain_parts
from ctk.repro_templates.program.program_play import How, play, playable_of
from ctk.repro_templates.program.program_values import read_values, write_values
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.answers.fingerprint import fingerprint


class Tagged(torch.Tensor):
    """Only marks its tensors."""


def two(second: float = 0.0) -> torch.Tensor:
    return TwoTensor(torch.ones(3), torch.full((3,), second))


def jagged(last: float = 1.0) -> torch.Tensor:
    parts = [torch.ones(2, 3), torch.full((4, 3), last)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def tagged(value: float = 1.0) -> torch.Tensor:
    return torch.full((2,), value).as_subclass(Tagged)


def test_parts() -> None:
    assert list(plain_parts(torch.ones(1))) == list(plain_parts(tagged())) == [""]
    assert list(plain_parts(two())) == [".a", ".b"]
    assert {"._values", "._offsets"} <= set(plain_parts(jagged()))


@pytest.mark.parametrize("make", [two, jagged, tagged], ids=["two", "jagged", "tagged"])
def test_a_difference_inside_is_seen(make) -> None:
    assert compare_values("out0", make(), make()) is None
    assert runs_identical({"out0": make()}, {"out0": make()})
    found = compare_values("out0", make(), make(7.0))
    assert found is not None and (found.name, found.kind) == ("out0", "accuracy")
    assert not runs_identical({"out0": make()}, {"out0": make(7.0)})


def test_the_place_is_told_and_another_class_is_another_structure() -> None:
    found = compare_values("out0", two(), two(7.0))
    assert found is not None and found.detail.endswith("in its .b")
    found = compare_values("out0", two(), torch.ones(3))
    assert found is not None and found.kind == "structure" and "TwoTensor" in found.detail


def test_tensors_without_numbers_are_the_same_when_they_have_the_same_form() -> None:
    one, other = torch.ones(2, device="meta"), torch.ones(3, device="meta")
    assert runs_identical({"out0": one}, {"out0": one})
    assert not runs_identical({"out0": one}, {"out0": other})


@pytest.mark.parametrize("make", [two, tagged], ids=["two", "tagged"])
def test_fingerprints_know_what_is_inside(make) -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    assert fingerprint(Case(graph, (make(),))) == fingerprint(Case(graph, (make(),)))
    assert fingerprint(Case(graph, (make(),))) != fingerprint(Case(graph, (make(7.0),)))


def test_values_on_disk(tmp_path: Path) -> None:
    write_values({"out0": two(7.0), "out1": jagged()}, tmp_path / "values")
    found = read_values(tmp_path / "values")
    assert torch.equal(found["out0.b"], torch.full((3,), 7.0))
    assert torch.equal(found["out1._values"], torch.ones(6, 3))


def test_a_program_that_returns_one_is_played() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    program = {"model": lambda: twice, "inputs": lambda: (two(7.0),)}
    (call,) = play(playable_of(program), How())
    assert call.error is None
    value: Any = call.run.values["out0.b"]
    assert torch.equal(value, torch.full((3,), 14.0))
