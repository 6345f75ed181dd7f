"""Commands without the names that Windows lacks: they work, or they are refused in one sentence."""

import subprocess
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import save_case
from ctk.toolkit.operations import doctor
from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

PROGRAM = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

def inputs():
    return (torch.ones(3, 4),)
"""
SCRIPT = """
import torch

@torch.compile(backend="aot_eager")
def f(x):
    return torch.relu(x) + 1

f(torch.ones(3))
"""
TWO_TARGETS = ("--target", "eager", "--target", "aot_eager")
REFUSED = " needs POSIX (process groups, fork): use WSL or Linux"


def on_windows(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `ctk` as on Windows, in a folder."""
    command = [warm_python(), "-m", "tests.helpers.windows", *words]
    environ = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program, a script, a case and an empty dump folder."""
    root = tmp_path_factory.mktemp("windows")
    (root / "net.py").write_text(PROGRAM)
    (root / "script.py").write_text(SCRIPT)
    graph = symbolic_trace(lambda x: (torch.relu(x),))
    save_case(Case(graph, (torch.ones(2, 3),), target="eager"), root / "dumps" / "one" / "graph0")
    (root / ".cache" / "ctk").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--version",), "ctk "),
        (("ls", "dumps"), "1 case in dumps"),
        (("show", "dumps/one/graph0"), "relu"),
        (("check", "dumps/one/graph0"), "no failure"),
        (("repro", "dumps/one/graph0"), "no failure"),
        (("diff", "dumps/one/graph0", *TWO_TARGETS), "eager"),
        (("check", "net.py", "--target", "eager"), "no failure"),
        (("check", "net.py", "--target", "aot_eager"), "no failure"),
        (("run", "script.py"), "no failure: 1 graph compiled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_without_a_compiler_work(
    folder: Path, words: tuple[str, ...], expected: str
) -> None:
    done = on_windows(folder, *words)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        (("minify", "dumps/one/graph0"), "minify, which keeps a journal,"),
        (("diagnose", "net.py", "--target", "eager"), "diagnose, which keeps a journal,"),
        (("bisect-pass", "dumps/one/graph0"), "bisect-pass, which keeps a journal,"),
        (("bisect-version", "script.py"), "bisect-version, which installs environments,"),
        (("bisect-version", "--clean"), "bisect-version, which installs environments,"),
        (("cache", "ls"), "the persistent cache"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_other_commands_are_refused(folder: Path, words: tuple[str, ...], subject: str) -> None:
    done = on_windows(folder, *words)
    assert done.returncode == 125, done.stderr
    said, helped = done.stdout.splitlines()
    assert said == f"cannot tell: {subject}{REFUSED}"
    assert helped == "help: ctk explain CTK401"


@pytest.mark.parametrize("words", [("check", "net.py", "--target", "ctk"), ("compile", "net.py")])
def test_the_pipeline_is_refused(folder: Path, words: tuple[str, ...]) -> None:
    done = on_windows(folder, *words)
    assert done.returncode == 125, done.stderr
    assert done.stdout.startswith("cannot tell: ctk does not run on Windows: ")
    assert "Traceback" not in done.stdout + done.stderr


def test_nothing_is_left_by_a_refused_operation(folder: Path) -> None:
    on_windows(folder, "minify", "dumps/one/graph0")
    on_windows(folder, "bisect-version", "script.py")
    assert not [*folder.glob("minimal_*"), *folder.glob("versions_*")]


@pytest.mark.parametrize(
    ("system", "is_fine", "said"),
    [
        ("Linux", True, ""),
        ("Darwin", True, "; untested: no test has run on macOS"),
        ("Windows", False, "; untested: no test has run on Windows"),
    ],
)
def test_doctor_tells_which_platforms_are_untested(
    system: str, is_fine: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    health = doctor.check_python("python")
    assert health.is_fine is is_fine
    assert health.detail.endswith(said)
