"""Programs of several processes on gloo train as in eager, also under `ctk run`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.distributed_programs import KINDS
from tests.helpers.project import ROOT

PROGRAM = ROOT / "tests" / "helpers" / "distributed_programs.py"


def run_ranks(
    size: int, kinds: Sequence[str], folder: Path, start: Sequence[str] = (sys.executable,)
) -> list[str]:
    """Return the output of each rank, whose last line but those of `ctk run` is JSON."""
    words = [*start, str(PROGRAM)]
    ranks: list[subprocess.Popen[str]] = []
    for rank in range(size):
        command = [*words, str(rank), str(size), str(folder / "store"), "ctk", *kinds]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        ranks.append(subprocess.Popen(command, cwd=folder, text=True, **piped))
    try:
        texts = [process.communicate(timeout=280)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert not any(process.returncode for process in ranks), texts
    return texts


def check_ranks(size: int, kinds: Sequence[str], folder: Path) -> None:
    for text in run_ranks(size, kinds, folder):
        answer = next(line for line in text.splitlines() if line.startswith("{"))
        assert json.loads(answer) == dict.fromkeys(kinds, "close")


def test_two_ranks_with_ddp(tmp_path: Path) -> None:
    check_ranks(2, ["ddp"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_every_kind(size: int, tmp_path: Path) -> None:
    check_ranks(size, list(KINDS), tmp_path)


@pytest.mark.slow
def test_every_kind_under_ctk_run(tmp_path: Path) -> None:
    start = [str(Path(sys.executable).with_name("ctk")), "run"]
    for text in run_ranks(2, list(KINDS), tmp_path, start):
        assert "no failure: " in text
        answer = next(line for line in text.splitlines() if line.startswith("{"))
        assert json.loads(answer) == dict.fromkeys(KINDS, "close")
