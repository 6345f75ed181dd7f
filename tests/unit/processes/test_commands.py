"""A command of the user's, run within limits: nothing of it stays behind."""

import sys
import time

import pytest

from ctk.compiler.errors import ProgramError
from ctk.toolkit.processes import commands as bounded
from ctk.toolkit.processes.commands import run_command_group
from ctk.toolkit.processes.tree import is_alive

PYTHON = [sys.executable, "-c"]


def test_output_and_exit_code() -> None:
    ended = run_command_group(
        [*PYTHON, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    )
    assert (ended.code, ended.exceeded) == (3, None)
    assert set(ended.output.split()) == {"out", "err"}


def test_a_signal_is_a_negative_code() -> None:
    assert run_command_group(["sh", "-c", "kill -SEGV $$"]).code == -11


def test_nothing_is_read() -> None:
    assert run_command_group([*PYTHON, "import sys; sys.exit(len(sys.stdin.read()))"]).code == 0


def test_bytes_that_are_no_text() -> None:
    ended = run_command_group([*PYTHON, r"import sys; sys.stdout.buffer.write(b'a\xff\x00b')"])
    assert (ended.output[0], ended.output[-1]) == ("a", "b")


def test_one_that_hangs_and_ignores_sigterm_is_ended() -> None:
    script = "trap '' TERM INT HUP; while :; do sleep 0.1; done"
    started = time.monotonic()
    ended = run_command_group(["sh", "-c", script], seconds=0.5)
    assert (ended.code, ended.exceeded) == (None, "time")
    assert time.monotonic() - started < 20


def test_what_it_started_ends_with_it_even_in_a_session_of_its_own() -> None:
    daemon = "import subprocess as s; print(s.Popen(['sleep', '600'], start_new_session=True).pid)"
    ended = run_command_group([*PYTHON, daemon])
    pid = int(ended.output)
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_endless_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "OUTPUT_NBYTES", 100_000)
    ended = run_command_group(["sh", "-c", "while :; do echo 0123456789; done"], seconds=60)
    assert ended.exceeded == "output"
    assert len(ended.output) <= 100_000


@pytest.mark.parametrize("words", [["no-such-program-of-ctk"], ["/"], ["echo", "a\0b"]])
def test_what_cannot_be_started(words: list[str]) -> None:
    with pytest.raises(ProgramError, match="cannot be started"):
        run_command_group(words)
