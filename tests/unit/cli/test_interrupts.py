"""A signal that ends a command is answered from its first moment on, in imports too."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctk.toolkit.releases.environments import environment_folders
from tests.helpers.cli import GOOD, write
from tests.helpers.fake_index import script_text, write_torch

CTK = [sys.executable, "-c", "from ctk.toolkit.cli.main import main; main()"]
INTERRUPTED = "cannot tell: interrupted before there was a result"

LOSSY = """
import os, signal, sys
try:
    for number in os.environ["SENT"].split():
        signal.raise_signal(int(number))
    sum(range(10))
except BaseException as error:  # as C extensions do
    print("lost", type(error).__name__, file=sys.stderr)
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
__import__(__name__)
"""

FATAL = """
import os, signal
signal.raise_signal(int(os.environ["SENT"]))
raise ImportError("cannot load module more than once per process")
"""


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Let children take SIGHUP as usual, also where `nohup` runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def send_while_importing(
    folder: Path, module: str, text: str, *words: object, sent: str
) -> "subprocess.CompletedProcess[str]":
    """Run `ctk` with a module that sends signals to its process while it is imported."""
    stubs = folder / "stubs"
    stubs.mkdir()
    write(stubs, f"{module}.py", text)
    path = os.pathsep.join([str(stubs), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [*CTK, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "SENT": sent},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize(
    ("module", "command", "number"),
    [
        ("typer", "doctor", signal.SIGINT),
        ("rich", "check", signal.SIGTERM),
        ("torch", "doctor", signal.SIGHUP),
        ("torch", "check", signal.SIGINT),
    ],
)
def test_a_signal_that_an_import_loses(
    module: str, command: str, number: signal.Signals, tmp_path: Path
) -> None:
    words = [command, write(tmp_path, "good.py", GOOD)][: 2 if command == "check" else 1]
    done = send_while_importing(tmp_path, module, LOSSY, *words, sent=f"{number:d}")
    assert done.stdout.splitlines()[:1] == [INTERRUPTED]
    assert (done.returncode, done.stderr) == (125, "")


def test_a_signal_of_which_an_import_makes_another_error(tmp_path: Path) -> None:
    done = send_while_importing(tmp_path, "torch", FATAL, "doctor", sent=f"{signal.SIGINT:d}")
    assert done.stdout.splitlines()[:1] == [INTERRUPTED]
    assert (done.returncode, done.stderr) == (125, "")


def test_a_second_signal_is_raised_in_the_import(tmp_path: Path) -> None:
    twice = f"{signal.SIGINT:d} {signal.SIGINT:d}"
    done = send_while_importing(tmp_path, "torch", LOSSY, "doctor", sent=twice)
    assert done.stdout.splitlines()[:1] == [INTERRUPTED]
    assert (done.returncode, done.stderr) == (125, "lost KeyboardInterrupt\n")


def test_before_there_is_a_command_the_answer_is_a_document_too(tmp_path: Path) -> None:
    sent = f"{signal.SIGTERM:d}"
    done = send_while_importing(tmp_path, "typer", LOSSY, "check", "x.py", "--json", sent=sent)
    assert json.loads(done.stdout)["answer"] == INTERRUPTED
    assert (done.returncode, done.stderr) == (125, "")


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "nohup.py",
        "import signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from ctk.toolkit.cli.main import main\n"
        "main()\n",
    )
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    write(stubs, "typer.py", LOSSY)
    done = subprocess.run(
        [sys.executable, str(script), "--version"],
        env={**os.environ, "PYTHONPATH": str(stubs), "SENT": f"{signal.SIGHUP:d}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("ctk ")
    assert (done.returncode, done.stderr) == (0, "")


HANGING_UP = """
import signal
from ctk.toolkit.releases import environments

def install(*_):
    environments.remove_folder = remove_folder
    signal.raise_signal(signal.SIGHUP)

def remove_folder(folder):
    print("half of it:", folder.is_dir())
    signal.raise_signal(signal.SIGHUP)
    removed(folder)

environments.install, removed = install, environments.remove_folder
from ctk.toolkit.cli.main import main
main()
"""


def test_a_terminal_that_is_closed_leaves_no_half_of_an_environment(tmp_path: Path) -> None:
    write_torch(tmp_path / "wheels", "2.13.0")
    starter = write(tmp_path, "starter.py", HANGING_UP)
    script = write(tmp_path, "script.py", script_text({}))
    words = (script, "--releases", "2.13.0", "--index", tmp_path / "wheels")
    root = tmp_path / "environments"
    done = subprocess.run(
        [sys.executable, str(starter), "bisect-version", *map(str, words)],
        env={**os.environ, "CTK_ENVIRONMENTS": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("cannot tell: interrupted"), done.stderr
    assert done.returncode == 125
    assert "half of it: True" in done.stderr
    assert environment_folders(root) == []


ASYNC_SCRIPT = """
import asyncio, signal

async def work():
    signal.raise_signal(signal.SIGINT)
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        print("cancelled")
        raise

asyncio.run(work())
"""


def test_ctrl_c_in_a_script_is_that_of_python(tmp_path: Path) -> None:
    script = write(tmp_path, "script.py", ASYNC_SCRIPT)
    done = subprocess.run(
        [*CTK, "run", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("cannot tell: interrupted; 0 graphs until then")
    assert "cancelled" in done.stderr
    assert done.returncode == 125
