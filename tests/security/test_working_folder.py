"""`ctk` started in a stranger's folder: nothing there stands in for a module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cli import GOOD, write
from tests.helpers.hostile import JUDGING, Craft
from tests.helpers.project import ROOT

TRAP = 'open({mark!r}, "a").write(__name__ + "\\n")\nraise SystemExit("a trap ran")\n'

INSTALLED = """
    torch json pydantic typer rich safetensors numpy ctk argparse subprocess dataclasses sympy
    networkx pytest decimal shlex statistics difflib
"""
"""Names of modules that every command or torch imports, some of them late."""

ABSENT = """
    compiler toolkit repro_templates sitecustomize usercustomize triton yaml psutil tvm torch_xla
    fbcode libfb readline pandas PIL
"""
"""Names of modules that may be missing, which something tries to import all the same."""


def trapped(folder: Path, names: str = INSTALLED + ABSENT) -> Path:
    """Fill a folder with modules and packages that leave a mark when they are imported."""
    mark = folder.parent / "mark"
    for name in names.split():
        (folder / f"{name}.py").write_text(TRAP.format(mark=str(mark)))
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(TRAP.format(mark=str(mark)))
    return mark


def start(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Start `ctk` in a clean process, as its console script does."""
    starter = write(cwd.parent, "ctk_command", "from ctk.toolkit.cli.main import main\nmain()\n")
    command = [sys.executable, str(starter), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.clean_process
@pytest.mark.parametrize(
    "command",
    [
        "repro",
        "show",
        pytest.param("ls", marks=pytest.mark.slow),
        pytest.param("doctor", marks=pytest.mark.slow),
    ],
)
def test_no_command_imports_from_the_working_folder(command: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    mark = trapped(craft.folder)
    done = start(command, *([] if command == "doctor" else ["."]), cwd=craft.folder)
    assert "trap" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists(), mark.read_text()


@pytest.mark.slow
@pytest.mark.clean_process
@pytest.mark.parametrize("command", [*JUDGING, "run"])
def test_the_long_commands_import_nothing_from_there_either(command: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    mark = trapped(craft.folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = write(
        elsewhere,
        "script.py",
        "import torch\ntorch.compile(torch.relu, backend='ctk')(torch.ones(2))\n",
    )
    subject = [script] if command == "run" else [".", "--out", tmp_path / "out"]
    subject = ["."] if command in ("check", "repro") else subject
    done = start(command, *subject, cwd=craft.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists(), mark.read_text()


@pytest.mark.slow
@pytest.mark.clean_process
def test_children_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    mark = trapped(craft.folder)
    done = start("repro", ".", "--isolate", cwd=craft.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists(), mark.read_text()


BACKEND = """
import neighbour
def backend(gm, example_inputs):
    open("used", "w").close()
    return gm
"""


@pytest.mark.clean_process
def test_a_module_that_the_user_names_may_lie_there(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    mark = trapped(craft.folder)
    write(craft.folder, "my_backend_4711.py", BACKEND)
    write(craft.folder, "neighbour.py", "import json, difflib, statistics\n")
    done = start("repro", ".", "--target", "my_backend_4711:backend", cwd=craft.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (craft.folder / "used").exists()
    assert not mark.exists(), mark.read_text()


@pytest.mark.clean_process
def test_the_clean_run_of_a_repro_imports_nothing_from_its_folder(tmp_path: Path) -> None:
    from ctk.toolkit.repro.run import run_repro

    folder = tmp_path / "there"
    folder.mkdir()
    mark = trapped(folder)
    repro = write(folder, "repro.py", "import json, difflib, torch\nprint('NO FAILURE: fine')\n")
    assert run_repro(repro).verdict == "NO FAILURE: fine"
    assert not mark.exists(), mark.read_text()


@pytest.mark.slow
@pytest.mark.clean_process
def test_beside_a_program_installed_modules_win(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    mark = trapped(folder, INSTALLED)
    write(folder, "mine.py", f"import helper_4711\n{GOOD}")
    write(folder, "helper_4711.py", "")
    done = start("repro", "mine.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists(), mark.read_text()
