"""An answer that cannot be written: said on stderr, exit code 125, never 1, 120 or a signal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import typer
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.entry import Entry
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.cli.shell.command_context import Command, guard_command

def probe(code: int, lines: int = 1) -> Answer:
    with progress() as say:
        say("at work")
        print("the program prints")
    return Answer(ExitCode(code), "the answer: \\u20ac \\udcff", body=("line \\u20ac",) * lines)

app = typer.Typer(cls=Entry, pretty_exceptions_enable=False)
app.callback()(lambda: None)
app.command("probe")(guard_command(Command("probe", probe)))
app(prog_name="ctk")
"""
FULL = Path("/dev/full")


def sh(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the probe as part of a line of bash; `PROBE` stands for it."""
    text = line.replace("PROBE", '"$PYTHON" -c "$PROGRAM" probe')
    environment = {**os.environ, "PYTHON": sys.executable, "PROGRAM": PROBE, **variables}
    return subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, encoding="utf-8", check=False
    )


def assert_said(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == 125, done.stderr
    assert "cannot tell: the answer could not be written to stdout" in done.stderr
    assert f"The answer was (exit code {code}): the answer" in done.stderr
    for trace in ("Traceback", "Exception ignored", "BrokenPipeError: [Errno 32] Broken pipe\n  "):
        assert trace not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["", "--json", "--quiet"])
@pytest.mark.parametrize("code", [0, 1])
def test_full_disk(code: int, option: str) -> None:
    assert_said(sh(f"PROBE {code} {option} >/dev/full"), code)


@pytest.mark.parametrize("option", ["", "--json"])
def test_closed_stdout(option: str) -> None:
    assert_said(sh(f"PROBE 1 {option} >&-"), 1)


@pytest.mark.parametrize("option", ["", "--json"])
def test_reader_that_went_away(option: str) -> None:
    line = f"PROBE 1 --lines 20000 {option} | head -n 0; exit ${{PIPESTATUS[0]}}"
    assert_said(sh(line), 1)


def test_stdout_and_stderr_that_cannot_be_written() -> None:
    for line in ("PROBE 1 >&- 2>&-", "PROBE 1 >&- 2>/dev/full", "PROBE 1 >/dev/full 2>&1"):
        done = sh(line)
        assert (done.returncode, done.stdout, done.stderr) == (125, "", "")


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", "2>&- <&-"])
def test_stderr_alone_does_not_matter(stream: str) -> None:
    done = sh(f"PROBE 1 {stream}")
    assert done.returncode == 1
    assert done.stdout.startswith("the answer")


def test_what_is_printed_meanwhile_does_not_land_in_a_closed_stdout() -> None:
    done = sh("PROBE 0 >&-")
    assert "the program prints" in done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"}],
)
def test_ascii(variables: dict[str, str]) -> None:
    done = sh("PROBE 0", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the answer: \\u20ac \\udcff\nline \\u20ac\n"


def test_utf_8_shows_what_it_can() -> None:
    done = sh("PROBE 0", PYTHONIOENCODING="utf-8")
    assert done.stdout.splitlines()[0] == "the answer: \u20ac \\udcff"


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_help_and_usage_errors() -> None:
    assert sh("PROBE --help >/dev/full").returncode == 125
    assert sh("PROBE --help | head -n 0; exit ${PIPESTATUS[0]}").returncode in (0, 125)  # a race
    assert sh("PROBE --colour 2>/dev/full").returncode == 2
    assert sh("PROBE --colour --json >/dev/full").returncode == 125
