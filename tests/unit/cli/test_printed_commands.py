"""Every command that ctk prints works as it is printed: quoted, and trusted where it must be."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.cli import BROKEN_PASS, GOOD, Said, write
from tests.helpers.warm_python import warm_python

BACKENDS = """
import os

def wrong(gm, example_inputs):
    return lambda *args: tuple(value + 1 for value in gm(*args))

def deadly(gm, example_inputs):
    os.abort()
"""

WATCHED = """
import sys
import torch
import my_backends

def f(x):
    return torch.relu(x) + 1

torch.compile(f, backend=getattr(my_backends, sys.argv[1]))(torch.ones(3))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose name a shell would take for two words."""
    folder = tmp_path / "my programs"
    folder.mkdir()
    write(folder, "my_backends.py", BACKENDS)
    write(folder, "script.py", WATCHED)
    write(folder, "broken.py", GOOD + BROKEN_PASS)
    return folder


def shell(line: str, folder: Path) -> Said:
    """Run a line as somebody would who pastes it."""
    path = f"{warm_python().parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path, "WARM_CHILDREN": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return Said(found.returncode, found.stdout, found.stderr)


def printed(said: Said) -> list[str]:
    """Return the commands in what was said that name a folder or a file."""
    lines = (said.out + said.err).splitlines()
    found = [re.search(r"\b((?:ctk [a-z-]+|python) ['/.].*)", line) for line in lines]
    return [match[1] for match in found if match]


def run_all(commands: list[str], folder: Path, codes: tuple[int, ...]) -> None:
    for command in commands:
        made = [path for path in folder.iterdir() if re.match("diagnosis_|minimal_", path.name)]
        for path in made:
            shutil.rmtree(path)
        said = shell(command, folder)
        assert said.code in codes, f"{command}\n{said.out}{said.err}"
        assert "Traceback" not in said.err


@pytest.mark.parametrize("backend", [pytest.param("wrong", marks=pytest.mark.slow), "deadly"])
def test_of_a_watched_script(backend: str, place: Path) -> None:
    said = shell(f"ctk run script.py {backend}", place)
    assert said.code == 1, said.out + said.err
    commands = printed(said)
    verbs = {command.split()[1] for command in commands}
    assert verbs == ({"diagnose", "repro", "minify"} if backend == "wrong" else {"diagnose"})
    for command in commands:
        assert "--trust" in shlex.split(command, comments=True), said.out + said.err
    run_all(commands, place, (1,))


@pytest.mark.slow
def test_of_a_search_that_was_cut_short(place: Path) -> None:
    assert shell("ctk repro broken.py --out 'my cases'", place).code == 1
    said = shell(
        "ctk diagnose 'my cases/graph0' --trust --max-questions 1 --out 'my diagnosis'", place
    )
    assert said.code == 1, said.out + said.err
    commands = printed(said)
    assert any({"--resume", "--trust"} <= set(shlex.split(command)) for command in commands)
    run_all(commands, place, (1,))


@pytest.mark.slow
def test_of_folders(place: Path) -> None:
    said = shell("ctk repro broken.py --out 'my cases'", place)
    assert printed(said), said.out + said.err
    run_all(printed(said), place, (1,))
    shown = shell("ctk show 'my cases'", place)
    refused = shell("ctk repro 'my cases/graph0'", place)
    nowhere = shell("ctk repro 'my cases/graph7'", place)
    for each in (shown, refused, nowhere):
        assert each.code == 2, each.out + each.err
        assert printed(each)
        run_all(printed(each), place, (0,))


@pytest.mark.parametrize("command", ["check", "repro --out 'my cases' --no-strides"])
def test_after_a_look(command: str, place: Path) -> None:
    said = shell(f"ctk {command} ./broken.py", place)
    assert said.code == 1, said.out + said.err
    *_, last = printed(said)
    assert shlex.split(last)[:3] == ["ctk", "diagnose", "./broken.py"], said.out
    assert ("--no-strides" in last) == ("--no-strides" in command)
    run_all([f"{last.partition('  #')[0]} --max-questions 1"], place, (1,))
