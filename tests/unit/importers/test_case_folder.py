"""Case folders and dumps as an importer."""

from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import load_cases
from ctk.toolkit.importers.case_folder import CaseFolder
from ctk.toolkit.options import CaseOptions
from tests.helpers.cli import write


@pytest.fixture(scope="module")
def case() -> Case:
    (found,) = load_cases(torch.relu, torch.ones(2))
    return found


def test_one_case_and_every_case_of_a_dump(case: Case, tmp_path: Path) -> None:
    first = ctk.save_case(case, tmp_path / "dump" / "graph0", inputs="full")
    ctk.save_case(case, tmp_path / "dump" / "graph1", inputs="full")
    assert len(CaseFolder(str(first)).cases(CaseOptions())) == 1
    assert len(CaseFolder(str(first.parent)).cases(CaseOptions())) == 2


def test_the_request_wins(case: Case, tmp_path: Path) -> None:
    folder = ctk.save_case(case, tmp_path / "graph0", inputs="full")
    (found,) = CaseFolder(str(folder)).cases(CaseOptions(target="aot_eager", backward=True))
    assert (found.target, found.modes.backward) == ("aot_eager", True)


def test_what_it_takes_for_its_own(tmp_path: Path) -> None:
    assert CaseFolder.accepts(str(tmp_path))
    assert CaseFolder.accepts(str(tmp_path / "missing"))
    assert CaseFolder.accepts(str(write(tmp_path, "manifest.json", "{}")))
    assert not CaseFolder.accepts(str(write(tmp_path, "model.bin", "")))


def test_what_is_missing_is_said_with_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=f"ctk ls {tmp_path}"):
        CaseFolder(str(tmp_path / "missing")).cases(CaseOptions())
    with pytest.raises(CaseError, match="no case in"):
        CaseFolder(str(tmp_path)).cases(CaseOptions())
