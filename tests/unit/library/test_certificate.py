"""minify keeps its certificate and the closest case that passes; `ctk show --why` tells both."""

from pathlib import Path
from typing import Any

import pytest

import ctk
from ctk.toolkit.operations.report.certificate_file import CERTIFICATE, read_certificate
from ctk.toolkit.repro.run import ReproRun, write_repro
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write
from tests.helpers.killed_runs import BACKEND, PROGRAM

SUBJECT = ("program.py", "--target", "backend.py:compile", "--out", "out")


@pytest.fixture(autouse=True)
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to reduce: 28 calls, 2 of them needed. Its repro is written, not run."""

    def write_only(case: Any, folder: Path, *more: Any) -> tuple[Path, ReproRun]:
        return write_repro(case, folder, *more), ReproRun(1, "", "reproduced")

    monkeypatch.setattr(
        "ctk.toolkit.operations.session.smallest_repro.write_verified_repro", write_only
    )
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "program.py", PROGRAM)
    write(tmp_path, "backend.py", BACKEND.replace("value + wrong", "value + 1 if wrong else value"))


def test_stopped_early_it_says_what_is_not_finished_and_then_it_is_minimal() -> None:
    said = command("minify", *SUBJECT, "--max-questions", "4")
    assert "stopped by questions; not finished: " in said.first and "(minimal)" not in said.first
    assert not read_certificate(Path("out/case")).is_minimal
    why = command("show", "out", "--why")
    assert why.first.startswith("not minimal (stopped by questions; not finished: ")
    assert "not finished: " in why.out.splitlines()[-1]
    assert "stopped by questions; not finished: " in command("show", "out").out

    found = command("minify", *SUBJECT, "--resume", "--json").data
    assert found["finished"] and found["unfinished"] == []
    whole = command("show", "out/case", "--why")
    assert (whole.code, whole.first.partition(":")[0]) == (0, "minimal")
    assert ".relu(" in whole.out and ".sigmoid(" in whole.out
    data = command("show", "out", "--why", "--json").data
    assert data["minimal"] and data["neighbour_case"] == "out/neighbour"
    needed = [part for part in data["parts"] if "relu(" in part["line"]]
    assert [each["verdict"] for each in needed[0]["refusals"]].count("passes") >= 2
    assert command("repro", "out/neighbour", "--trust").code == 0
    assert command("repro", "out/case", "--trust").code == 1


def test_where_there_is_no_certificate_the_next_step_is_said(tmp_path: Path) -> None:
    command("minify", *SUBJECT, "--max-questions", "2")
    (tmp_path / "out/case" / CERTIFICATE).unlink()
    said = command("show", "out", "--why")
    assert said.code == 2 or said.code == 125
    assert f"has no {CERTIFICATE}" in said.out + said.err and "--resume" in said.out + said.err
    said = command("show", "out/case", "--why")
    assert "ctk minify out/case" in said.out + said.err
    assert "is not a case" in (nothing := command("show", ".", "--why")).out + nothing.err
    both = command("show", "out/case", "--why", "--times")
    assert both.code == 2 and "two questions" in both.out + both.err


def test_a_neighbour_is_a_case_without_a_failure() -> None:
    found = ctk.minify("program.py", target="backend.py:compile", out="out")
    assert found.reduction is not None and found.reduction.finished
    neighbour = ctk.load_case("out/neighbour", trust=True)
    assert neighbour.signature is None
    listed = {
        Path(each["path"]).name: each["failure"]
        for each in command("ls", ".", "--json").data["cases"]
    }
    assert listed["case"] and listed["neighbour"] is None
