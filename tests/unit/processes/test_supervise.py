"""A command in two halves: signals, stops, ends, and what is left of them."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctk.compiler.errors import StorageError
from ctk.compiler.usercode.process_name import process_name, start_time
from ctk.toolkit.processes.tree import find_carriers, find_descendants
from tests.helpers.project import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of tests/helpers/halves.py, marked, with a group and a folder of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.halves", *words],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path), "HALVES": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        for pid in [*find_descendants(process.pid), *find_carriers(f"HALVES={tmp_path}")]:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def ready(process: "subprocess.Popen[str]") -> int:
    """Wait until the working half works; return its process id."""
    assert process.stdout is not None
    word, pid = process.stdout.readline().split()
    assert word == "ready"
    return int(pid)


def end_of(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=60)
    assert not err
    return out.splitlines()[-1]


def is_gone(pid: int) -> bool:
    return start_time(pid) is None


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_alone_arrives_once(start: Start, number: signal.Signals) -> None:
    process = start("count_interrupts")
    ready(process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert f"seen {int(number)}\n" in out
    assert f"end 0 False [{int(number)}]" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_arrives_once(start: Start, number: signal.Signals) -> None:
    process = start("count_interrupts")
    ready(process)
    os.killpg(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert f"seen {int(number)}\n" in out


def test_a_signal_that_a_fork_has_caught_does_not_hide_one_to_the_command(start: Start) -> None:
    process = start("let_a_fork_catch")
    ready(process)
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert "seen 15\n" in out


def test_a_stop_of_the_working_half_stops_the_command_until_it_is_woken(start: Start) -> None:
    process = start("count_interrupts")
    child = ready(process)
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    assert end_of(process).startswith("end 0 False")
    assert is_gone(child)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_half_that_takes_no_notice_of_sigterm_is_killed_with_what_it_started(
    start: Start,
) -> None:
    process = start("be_stubborn")
    child = ready(process)
    (below,) = find_descendants(child)
    process.terminate()
    assert end_of(process).startswith("end -9 True [15]")
    assert is_gone(child)
    assert is_gone(below)


@pytest.mark.parametrize(
    ("work", "limit"), [("hang_under_watch", "time"), ("fill_under_watch", "memory")]
)
def test_a_half_that_passes_its_own_limit_is_killed_with_what_it_started(
    start: Start, tmp_path: Path, work: str, limit: str
) -> None:
    process = start(work)
    child = ready(process)
    assert end_of(process) == f"exceeded {limit}"
    assert is_gone(child)
    assert not find_carriers(f"HALVES={tmp_path}")


def test_a_limit_ends_with_its_block(start: Start) -> None:
    process = start("outlive_a_watch")
    ready(process)
    assert end_of(process).startswith("end 0 False")


@pytest.mark.slow
@pytest.mark.parametrize("stops_all", [False, True])
def test_time_in_which_a_half_is_stopped_does_not_count(start: Start, stops_all: bool) -> None:
    process = start("hang_under_watch")
    child = ready(process)
    (os.killpg if stops_all else os.kill)(process.pid if stops_all else child, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    time.sleep(1.2)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGCONT)
    assert end_of(process) == "exceeded time"
    assert time.monotonic() - started > 0.9


def test_a_half_that_writes_its_result_is_waited_for(start: Start) -> None:
    process = start("write_for_long")
    ready(process)
    process.terminate()
    assert end_of(process).startswith("end -15 False [15]")


def test_a_daemon_ends_with_the_command(start: Start, tmp_path: Path) -> None:
    process = start("leave_a_daemon")
    ready(process)
    assert end_of(process).startswith("end 0")
    assert not find_carriers(f"HALVES={tmp_path}")
    assert not list(tmp_path.iterdir())


def test_a_daemon_of_a_script_of_the_user_lives_on(start: Start, tmp_path: Path) -> None:
    process = start("leave_a_daemon", "untidy")
    ready(process)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("end 0")
    process.wait()
    assert len(find_carriers(f"HALVES={tmp_path}")) == 1


def test_what_ran_before_the_command_lives_on(tmp_path: Path) -> None:
    code = f"{sys.executable} -SEc 'import time; time.sleep(600)' & exec {sys.executable} -m"
    environ = {**os.environ, "HALVES": str(tmp_path), "TMPDIR": str(tmp_path)}
    shell = ["sh", "-c", f"{code} tests.helpers.halves answer"]
    process = subprocess.run(shell, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, check=True)
    (server,) = find_carriers(f"HALVES={tmp_path}")
    os.kill(server, signal.SIGKILL)
    assert process.returncode == 0


def test_an_answer_counts_though_the_process_crashes_when_it_ends(start: Start) -> None:
    assert end_of(start("answer_and_crash")) == "end -6 False [] check 1"


def test_the_working_half_dies_with_the_other(start: Start) -> None:
    process = start("wait")
    child = ready(process)
    process.kill()
    wait_until(lambda: is_gone(child))


def test_the_next_run_removes_what_a_killed_one_left(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctk.toolkit.processes.scratch import sweep

    process = start("be_stubborn")
    child = ready(process)
    (below,) = find_descendants(child)
    (folder,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert sweep() == []  # its process lives
    process.kill()
    wait_until(lambda: is_gone(child))
    assert not is_gone(below)
    assert sweep() == [folder]
    wait_until(lambda: is_gone(below))
    assert not folder.exists()


def test_folders_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctk.toolkit.processes.scratch import sweep

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = process_name().partition("-")[0]
    names = ("ctk-run-00000000-1-1-abc", f"ctk-run-{place}-{os.getpid()}", "ctk-run-x", "else")
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / f"ctk-run-{place}-99999999-1-abc").symlink_to(tmp_path / "else")
    assert sweep() == []
    assert len(list(tmp_path.iterdir())) == 5


def test_without_a_temporary_folder_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctk.toolkit.processes import scratch

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match="TMPDIR"):
        scratch._root_of.__wrapped__(os.getpid())
