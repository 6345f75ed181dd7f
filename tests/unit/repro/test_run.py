"""Running a repro in a clean process: what counts as reproduced, and what it may not inherit."""

import time
from pathlib import Path

import pytest
import torch

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro import run
from ctk.toolkit.repro.run import clean_environment, read_run, run_repro
from ctk.toolkit.repro.verified import write_verified_repro
from tests.helpers.repros import make_case


def test_a_verdict_needs_its_exit_code() -> None:
    assert read_run(1, "FAILURE: accuracy at out0\n", "").outcome == "reproduced"
    assert read_run(1, "FAILURE: another failure: x\n", "").outcome == "not reproduced"
    assert read_run(0, "NO FAILURE: fine\n", "").outcome == "not reproduced"
    assert read_run(125, "CANNOT TELL: x\n", "").outcome == "cannot tell"
    assert read_run(1, "", "SyntaxError: x\n").outcome == "cannot tell"
    assert read_run(-11, "FAILURE: x\n", "").outcome == "cannot tell"


def test_clean_environment_drops_what_could_change_the_answer() -> None:
    kept = clean_environment(
        {
            "PATH": "p",
            "OMP_NUM_THREADS": "1",
            "CTK_DUMP": "d",
            "TORCH_LOGS": "all",
            "MY_SECRET_TOKEN": "s",
        }
    )
    assert kept == {"PATH": "p", "OMP_NUM_THREADS": "1"}


def test_script_that_hangs_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text("import time\ntime.sleep(600)\n")
    result = run_repro(path, timeout_seconds=1.0)
    assert (result.exit_code, result.outcome) == (124, "cannot tell")


LEAVES_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
print("FAILURE: seen", flush=True)
raise SystemExit(1)
"""

LEAVES_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("FAILURE: seen", flush=True)
raise SystemExit(1)
"""


@pytest.mark.parametrize("left", [LEAVES_A_DAEMON, LEAVES_A_THREAD])
def test_what_a_program_leaves_does_not_keep_the_verdict(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LINGER_SECONDS", 0.5)
    path = tmp_path / "repro.py"
    path.write_text(left)
    started = time.monotonic()
    assert run_repro(path, timeout_seconds=50.0).outcome == "reproduced"
    assert time.monotonic() - started < 30


@pytest.mark.slow
@pytest.mark.clean_process
def test_crash_is_told_in_a_clean_process(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.sin(),),
        torch.ones(2),
        target=f"{backends}:dies",
        signature=Signature("signal", signal=11),
    )
    path, result = write_verified_repro(case, folder)
    assert result.verdict == "FAILURE: signal 11: the compiled program was killed"
    assert result.outcome == "reproduced"
    header = path.read_text().split('"""')[1]
    assert "Clean run:  reproduced on 20" in header
    assert (folder / "sources" / "planted_backends.py").is_file()
    assert not list(folder.rglob("__pycache__"))
