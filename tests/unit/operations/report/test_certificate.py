"""certificate.json: written beside the case that it is of, read back, and refused where wrong."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

import ctk
from ctk.compiler.errors import CaseError
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.operations.report import certificate_file as certificate
from ctk.toolkit.operations.report.certificate_file import (
    CERTIFICATE,
    THE_REST,
    certificate_of,
    choose_shown,
    parts_of,
    read_certificate,
    sum_up_refusals,
    write_certificate,
)
from ctk.toolkit.operations.report.phrases import ending
from ctk.toolkit.reduce.certificate import Refusal
from ctk.toolkit.reduce.driver import Reduction


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.sin(torch.cos(x) * 2) + 1)


@pytest.fixture(scope="module")
def reduction() -> Reduction:
    """sin and relu are needed."""

    def fails(gm: torch.fx.GraphModule, inputs: tuple[object, ...]) -> bool:
        return {torch.sin, torch.relu} <= {node.target for node in gm.graph.nodes}

    return ctk.minimize(symbolic_trace(program), [torch.randn(3)], fails)


@pytest.fixture
def folder(reduction: Reduction, tmp_path: Path) -> Path:
    folder = save_case(reduction.best, tmp_path / "case")
    write_certificate(reduction, folder)
    return folder


def test_each_needed_node_says_what_came_of_its_removal(folder: Path) -> None:
    record = read_certificate(folder)
    assert record.is_minimal and not record.left_out
    given, *others = parts_of(record)
    assert ": float32[" in given.line and given.line.endswith("] = input")
    needed = [part for part in others if part.name in ("sin", "relu")]
    assert [part.name for part in needed] == ["sin", "relu"]
    for part in needed:
        gone = [each for each in part.refusals if each.step == "remove"]
        assert [each.verdict for each in gone] == [Verdict.PASSES], part
        assert part.name in gone[0].edit


def test_the_neighbour_passes_and_says_what_makes_it(reduction: Reduction) -> None:
    assert reduction.neighbour is not None and reduction.neighbour_edit is not None
    assert reduction.neighbour_edit.verdict is Verdict.PASSES
    assert reduction.neighbour_edit in reduction.certificate
    targets = {node.target for node in reduction.neighbour.graph.graph.nodes}
    assert not {torch.sin, torch.relu} <= targets


def test_it_is_of_the_case_beside_it(folder: Path, reduction: Reduction) -> None:
    other = replace(reduction.best, inputs=(torch.ones(3) * 5,))
    save_case(other, folder, overwrite=True)
    with pytest.raises(CaseError, match="of another case"):
        read_certificate(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("graph.json", "torch.relu", "torch.tanh"),
        ("inputs.json", '"requires_grad": false', '"requires_grad": true'),
        ("manifest.json", '"predicate"', '"inductor"'),
    ],
)
def test_a_case_that_was_changed_is_refused(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    for damaged in ("", text[:-9], text.replace(old, new)):
        (folder / name).write_text(damaged)
        with pytest.raises(CaseError, match=f"{name}.*; "):
            read_certificate(folder)
    (folder / name).unlink()
    with pytest.raises(CaseError, match=name):
        read_certificate(folder)


def test_what_a_stranger_wrote_is_checked(folder: Path) -> None:
    path = folder / CERTIFICATE
    data = json.loads(path.read_text())
    data["refusals"][0]["why"] = "fine\x1b[2K\rminimal"
    path.write_text(json.dumps(data))
    assert read_certificate(folder).refusals[0].why == "fine\\x1b[2K\\rminimal"
    for damage in ({"schema": 2}, {"digest": "x"}, {"stopped_by": "fun"}, {"new": 1}):
        path.write_text(json.dumps(data | damage))
        with pytest.raises(CaseError, match=CERTIFICATE):
            read_certificate(folder)


def test_it_is_bounded(reduction: Reduction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "MOST", 3)
    record = certificate_of(reduction, "0" * 64)
    assert len(record.refusals) == 3
    assert record.left_out == len(reduction.certificate) - 3


def test_what_is_about_no_node_comes_last(reduction: Reduction) -> None:
    option = Refusal("drop_options", "without fusion=False", Verdict.PASSES, about=("fusion",))
    record = certificate_of(replace(reduction, certificate=(option,)), "0" * 64)
    assert (parts_of(record)[-1].line, parts_of(record)[-1].refusals) == (THE_REST, (option,))


def test_many_edits_of_one_node_are_summed_up() -> None:
    refused = [Refusal("values", f"x[{i}] = 0", Verdict.PASSES) for i in range(9)]
    refused += [Refusal("values", "ones", None, "is not smaller")]
    told, others = choose_shown(refused[::-1], 4)
    assert [each.verdict for each in told] == [Verdict.PASSES] * 4
    assert sum_up_refusals(others) == "5 passes, 1 not asked"
    assert choose_shown(refused[:5], 4) == (refused[:5], [])  # one more line says no less


def test_minimal_is_said_of_a_whole_certificate_only() -> None:
    assert ending("minimal", ()) == "minimal"
    assert ending("minimal", ("cut",)) == "stopped; not finished: cut"
    assert ending("seconds", ("cut", "remove")) == "stopped by seconds; not finished: cut, remove"
    said = ending("minimal", ("cut: too large", "remove"))
    assert said == "stopped; not finished: cut: too large; remove"
    assert ending("questions", tuple("abcdef")).endswith("not finished: a, b, c, d and 2 more")
