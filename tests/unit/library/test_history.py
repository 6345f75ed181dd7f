"""The history of a reduction in its folder, over an end and a resumption."""

from pathlib import Path
from typing import Any

import pytest

import ctk
from ctk.toolkit.operations.session.history import HISTORY, PLOT, read_history
from ctk.toolkit.repro.run import ReproRun, write_repro
from tests.helpers.cli import write
from tests.helpers.killed_runs import BACKEND, PROGRAM


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What to reduce: 28 calls, 2 of them needed. Its repro is written, not run."""

    def write_only(case: Any, folder: Path, *more: Any) -> tuple[Path, ReproRun]:
        return write_repro(case, folder, *more), ReproRun(1, "", "reproduced")

    monkeypatch.setattr(
        "ctk.toolkit.operations.session.smallest_repro.write_verified_repro", write_only
    )
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "program.py", PROGRAM)
    write(tmp_path, "backend.py", BACKEND)
    return {"subject": "program.py", "target": "backend.py:compile", "out": "out"}


def test_a_line_per_question_goes_on_where_a_run_was_ended(subject: dict[str, Any]) -> None:
    out = Path("out")
    ended = ctk.minify(**subject, max_questions=5)
    assert ended.reduction is not None and len(read_history(out)) == 6
    assert (out / PLOT).read_text().startswith("<svg ")
    before = (out / HISTORY).read_text()
    with (out / HISTORY).open("a") as file:
        file.write('{"question":6,"seco')  # torn by a kill

    whole = ctk.minify(**subject, resume=True)
    assert whole.reduction is not None and whole.reduction.finished
    lines = read_history(out)
    assert (out / HISTORY).read_text().startswith(before)
    assert [line.question for line in lines] == list(range(6 + whole.reduction.questions))
    assert [line.seconds for line in lines] == sorted(line.seconds for line in lines)
    assert (lines[0].step, lines[0].call_nodes) == ("start", 28)
    assert (lines[-1].call_nodes, lines[-1].inputs) == (2, 1)
    assert f"{lines[-1].question} questions" in (out / PLOT).read_text()
    assert whole.is_saved and not whole.problems


def test_ctrl_c_leaves_the_picture_and_who_listens_is_told(subject: dict[str, Any]) -> None:
    told: list[int] = []

    def stop(state: Any) -> None:
        told.append(state.questions)
        if len(told) == 4:
            raise KeyboardInterrupt

    found = ctk.minify(**subject, on_progress=stop)
    assert found.is_interrupted and told == [1, 2, 3, 4]
    assert len(read_history(Path("out"))) == 5
    assert (Path("out") / PLOT).is_file() and (Path("out/case/certificate.json")).is_file()


def test_what_a_stranger_left_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"question":1}')
    (tmp_path / HISTORY).symlink_to(tmp_path / "secret")
    assert read_history(tmp_path) == []
    (tmp_path / HISTORY).unlink()
    (tmp_path / HISTORY).write_text('no\n{"question":"1"}\n[[[[\n')
    assert read_history(tmp_path) == []
