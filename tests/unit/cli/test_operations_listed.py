"""`ctk ls` tells how far each operation is and how to go on; it shows no half of a case as one."""

import shlex
from pathlib import Path

import pytest

from ctk.toolkit.case.case_listing import find_cases
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.importers import case_folder
from tests.helpers.cli import BROKEN_PASS, GOOD, ctk, write


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a diagnosis that a budget has ended, and one that came to its end."""
    folder = tmp_path_factory.mktemp("my runs")
    program = write(folder, "broken.py", GOOD + BROKEN_PASS)
    for name, more in (("short", ["--max-questions", "1"]), ("whole", [])):
        said = ctk(
            "bisect-pass" if name == "whole" else "diagnose", program, *more, "--out", folder / name
        )
        assert said.code == 1, said.out + said.err
    return folder


@pytest.mark.slow
def test_operations_with_their_state_and_how_to_go_on(cut_short: Path) -> None:
    said = ctk("ls", cut_short, "--json")
    short, whole = said.data["operations"]
    assert (Path(short["path"]), short["state"]) == (cut_short / "short", "unfinished")
    assert "joint/negate_relu" in short["answer"]
    command = shlex.split(short["go_on"])
    assert command[:2] == ["ctk", "diagnose"]
    assert command[-3:] == ["--out", str(cut_short / "short"), "--resume"]
    assert (whole["state"], whole["go_on"], whole["problems"]) == ("finished", None, [])
    assert said.data["answer"].endswith("2 operations, 1 to resume")
    assert f"to go on: {short['go_on']}" in ctk("ls", cut_short).out


def test_an_operation_that_was_killed_early_and_one_that_nobody_can_read(
    cut_short: Path, tmp_path: Path
) -> None:
    for name in ("begun", "broken"):
        (tmp_path / name).mkdir()
        journal = (cut_short / "short" / "journal.jsonl").read_bytes()
        (tmp_path / name / "journal.jsonl").write_bytes(journal.splitlines(keepends=True)[0])
    (tmp_path / "broken" / "diagnosis.json").write_text('{"schema": 1, "na')
    begun, broken = ctk("ls", tmp_path, "--json").data["operations"]
    assert begun["state"] == "begun" and begun["go_on"].endswith("--resume")
    assert broken["state"] == "unreadable" and broken["problems"]
    said = ctk("ls", tmp_path)
    assert said.code == 0
    assert f"problem: {broken['problems'][0]}" in said.out


def test_a_half_of_a_new_case_is_its_case(tmp_path: Path) -> None:
    (tmp_path / "graph0" / ".new.partial").mkdir(parents=True)
    (entry,) = find_cases(Walk(tmp_path))
    assert entry.path == tmp_path / "graph0"
    assert entry.problem and "half-written" in entry.problem


def test_a_huge_tree_is_looked_into_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}" / ".graph0.partial").mkdir(parents=True)
    monkeypatch.setattr(
        "ctk.toolkit.case.formats.folder_walk.Walk.__init__.__defaults__", (20, False)
    )
    said = ctk("ls", tmp_path)
    assert said.code == 0
    assert "more than 20 folders: the others were not looked into" in said.out
    assert said.first.startswith("10 cases") or said.first.startswith("9 cases")
    with pytest.raises(case_folder.CaseError, match="more than 20 folders: name one in it"):
        case_folder.case_folders(tmp_path)
