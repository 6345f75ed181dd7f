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


BACKENDS_AS_OBJECTS = """
from functools import partial

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

class Wrong:
    def __init__(self, by):
        self.by = by

    def __call__(self, gm, example_inputs):
        return lambda *args: tuple(value + self.by for value in gm(*args))

def wrong_by(gm, example_inputs, by):
    return Wrong(by)(gm, example_inputs)

def backward(gm, example_inputs):
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.cos.default:
            node.target = torch.ops.aten.sin.default
    gm.recompile()
    return make_boxed_func(gm.forward)

def factory(by):
    return lambda gm, example_inputs: wrong_by(gm, example_inputs, by)

instance, part, closure = Wrong(1), partial(wrong_by, by=1), factory(1)
def forward(gm, example_inputs):
    return make_boxed_func(gm.forward)

wrong_grad = aot_autograd(fw_compiler=forward, bw_compiler=backward)
"""

PASSES = """
def cosine(gm):
    for node in getattr(gm, "graph", gm).nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default
"""

IN_THE_SCRIPT = {
    "object": "backend = objects.Wrong(1)",
    "lambda": "backend = lambda gm, example_inputs: objects.wrong_by(gm, example_inputs, 1)",
    "instance": "backend = objects.instance",
    "part": "backend = objects.part",
    "closure": "backend = objects.closure",
    "backward": "backend = objects.wrong_grad",
    "ctk": f"{PASSES}\nbackend, options = 'ctk', {{'custom_passes': {{'joint': [cosine]}}}}",
    "inductor": f"{PASSES}\nbackend = 'inductor'\n"
    "torch._inductor.config.post_grad_custom_post_pass = cosine",
    "inductor-options": f"{PASSES}\nbackend = 'inductor'\n"
    "options = {'post_grad_custom_post_pass': cosine}",
}

RUN_ONCE = """
import pathlib
import torch
import torch._inductor.config
import objects

with open("runs.txt", "a") as file:
    file.write("run ")
options = None
{setting}

def f(x):
    return x.sin() + 1

x = torch.linspace(0, 1, 4, requires_grad=True)
torch.compile(f, backend=backend, options=options)(x).sum().backward()
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
    found = [re.search(r"\b((?:ctk [a-z-]+|python) (?:['/.]|\S+\.py\b).*)", line) for line in lines]
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


@pytest.mark.parametrize("command", ["check", "repro --out 'my cases' --strides"])
def test_after_a_look(command: str, place: Path) -> None:
    said = shell(f"ctk {command} ./broken.py", place)
    assert said.code == 1, said.out + said.err
    *_, last = printed(said)
    assert shlex.split(last)[:3] == ["ctk", "diagnose", "./broken.py"], said.out
    assert ("--strides" in last) == ("--strides" in command)
    run_all([f"{last.partition('  #')[0]} --max-questions 1"], place, (1,))


@pytest.mark.parametrize(
    "what",
    [
        "object",
        "ctk",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in IN_THE_SCRIPT
            if each not in ("object", "ctk")
        ),
    ],
)
def test_of_a_backend_or_pass_that_a_script_holds(what: str, place: Path) -> None:
    """The commands compile what the script has compiled, and do not run the script again."""
    write(place, "objects.py", BACKENDS_AS_OBJECTS)
    write(place, "holds.py", RUN_ONCE.replace("{setting}", IN_THE_SCRIPT[what]))
    said = shell("ctk run holds.py", place)
    assert said.code == 1, said.out + said.err
    commands = printed(said)
    assert {command.split()[1] for command in commands} == {"diagnose", "repro", "minify"}
    run_all(commands[:1] if what.startswith("inductor") else commands, place, (1,))
    assert (place / "runs.txt").read_text() == "run "


def test_a_backend_without_a_name_has_advice_and_no_command(place: Path) -> None:
    write(place, "objects.py", BACKENDS_AS_OBJECTS)
    script = RUN_ONCE.replace("{setting}", "").replace(
        "backend=backend", "backend=lambda gm, inputs: objects.instance(gm, inputs)"
    )
    write(place, "holds.py", script)
    said = shell("ctk run holds.py", place)
    assert said.code == 1, said.out + said.err
    assert printed(said) == []
    assert "put it into a module, such as backend.py, and use --target backend:NAME" in said.out


IDLE = """
import torch

def idle(graph): pass

def model(): return lambda x: x.sin().exp()
def inputs(): return torch.ones(2)
"""
CONFIG = """def config(): return {"custom_passes": {"joint": [f"{__file__}:idle"]}}"""
AS_OPTION = """--config 'custom_passes={"joint": ["idle.py:idle"]}'"""


@pytest.mark.parametrize(
    ("config", "options"), [(CONFIG, ""), (CONFIG, "--out 'my cases'"), ("", AS_OPTION)]
)
def test_of_a_pass_that_rewrites_nothing(config: str, options: str, place: Path) -> None:
    write(place, "idle.py", IDLE + config)
    said = shell(f"ctk check ./idle.py {options}", place)
    assert said.code == 0, said.out + said.err
    (line,) = (each for each in said.out.splitlines() if each.startswith("idle"))
    explained = shell(line.partition("; why: ")[2], place)
    assert explained.code == 0, f"{line}\n{explained.out}{explained.err}"
    assert "joint/idle: it rewrote nothing" in explained.out


@pytest.mark.slow
def test_of_a_smaller_case(place: Path) -> None:
    """Those of minify and diff, of a diagnosis, and the explanations of a case."""
    said = shell("ctk minify ./broken.py --out 'my minimal' --max-questions 20", place)
    assert said.code == 1, said.out + said.err
    assert {"show", "repro"} & {command.split()[1] for command in printed(said)}
    run_all(printed(said), place, (0, 1))


@pytest.mark.slow
def test_of_lists_and_of_packages(place: Path) -> None:
    assert shell("ctk check ./broken.py --out 'my cases'", place).code == 1
    listed = shell("ctk show ./broken.py", place)
    assert printed(listed), listed.out + listed.err
    run_all(printed(listed), place, (1,))
    write(place, "idle.py", IDLE)
    packed = shell("ctk compile ./idle.py --out 'my model'", place)
    assert printed(packed), packed.out + packed.err
    run_all(printed(packed), place, (0,))
