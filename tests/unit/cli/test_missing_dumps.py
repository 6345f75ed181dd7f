"""`ctk run` where dumps cannot be written: the answer says which are missing, and why."""

import errno
from pathlib import Path

import pytest

from ctk.compiler.errors import StorageError
from ctk.toolkit.watch.dump import DumpWriter
from tests.helpers.cli import BROKEN_PASS, SCRIPT, ctk, write

FAILING = (
    """
import torch
import ctk

def f(x):
    return torch.relu(x) + 1
"""
    + BROKEN_PASS
    + """
with ctk.patch(custom_passes={"joint": [f"{__file__}:negate_relu"]}):
    torch.compile(f, backend="ctk")(torch.ones(3))
"""
)


def full(*_: object, **__: object) -> None:
    raise StorageError("graph0 cannot be written: No space left on device")


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_case_that_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctk.toolkit.watch.watched_case.save_case", full)
    script = write(tmp_path, "script.py", SCRIPT)
    said = ctk("run", "--out", tmp_path / "dumps", script)
    assert said.code == 0
    assert said.first == (
        "no failure: 1 graph compiled, 1 call compared with eager; "
        "the dumps of 1 graph are missing or incomplete"
    )
    assert "missing: graph0: case: StorageError: graph0 cannot be written" in said.out


def test_events_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DumpWriter, "_write", disk_full)
    script = write(tmp_path, "script.py", SCRIPT)
    said = ctk("run", "--json", "--out", tmp_path / "dumps", script)
    assert said.data["exit_code"] == 0
    (missing,) = said.data["missing"]
    assert (missing["graph"], missing["what"]) == ("graph0", "events")
    assert "No space left" in missing["why"]


def test_a_failure_that_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ctk.toolkit.watch.watched_case.save_case", full)
    script = write(tmp_path, "script.py", FAILING)
    said = ctk("run", "--out", tmp_path / "dumps", "--on-failure", "warn", script)
    assert said.code == 1
    assert "not saved, see below: graph" in said.out
    assert "ctk diagnose" not in said.out + caplog.text
    assert "it could not be saved in " in caplog.text
    said = ctk("run", "--json", "--out", tmp_path / "more", "--on-failure", "warn", script)
    assert said.data["failures"][0]["case"] is None


def test_a_folder_that_cannot_be_made_hides_no_graph(tmp_path: Path) -> None:
    script = write(tmp_path, "script.py", SCRIPT)
    said = ctk("run", "--out", script / "dumps", script)
    assert said.code == 125
    assert said.first.startswith("cannot tell: 1 graph could not be watched: ")
    assert "dumps" in said.first


def test_ls_says_why_a_graph_has_no_case_and_what_to_do(tmp_path: Path) -> None:
    for name, file, text in (
        ("graph0", "not_saved.txt", "graph0 cannot be written: No space left on device\nmore\n"),
        ("graph1", "events.jsonl", ""),
        (".graph2.partial", "graph.json", "{}"),
    ):
        (tmp_path / name).mkdir()
        write(tmp_path / name, file, text)
    said = ctk("ls", tmp_path)
    assert said.code == 0
    assert said.first.endswith("3 unusable")
    assert "not saved: graph0 cannot be written: No space left on device" in said.out
    assert said.out.count("half-written: the process died, had no disk space left") == 2
    assert "unusable: if its program has ended, run it again" in said.out
    listed = ctk("ls", tmp_path, "--json").data["cases"]
    assert sum(each["problem"].startswith("not saved: ") for each in listed) == 1
