"""From a program or case to a script, which installed interpreters are asked."""

from pathlib import Path

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.operations.versions.subject_script import script_of
from tests.helpers.cli import GOOD, TWO_GRAPHS, ctk, write
from tests.helpers.warm_python import warm_python

WRONG = """
def compile(gm, example_inputs):
    return lambda *inputs: tuple(value + 1 for value in gm(*inputs))
"""


@pytest.fixture
def pythons(tmp_path: Path) -> list[str]:
    """Two interpreters with the torch of this one, as options."""
    options: list[str] = []
    for name in ("old", "new"):
        program = write(tmp_path, name, f'#!/bin/sh\nexec "{warm_python()}" "$@"\n')
        program.chmod(0o755)
        options += ["--python", str(program)]
    return options


def test_a_file_is_a_script_unless_it_has_a_model(tmp_path: Path) -> None:
    script = write(tmp_path, "a.py", "print(1)")
    assert script_of(str(script)) == script.resolve()
    assert script_of(str(write(tmp_path, "b.py", GOOD))) is None
    assert script_of(str(write(tmp_path, "c.py", "model = object()"))) is None
    torch_repro = "class Repro(x): ...\ndef load_args(): ..."
    assert script_of(str(write(tmp_path, "d.py", torch_repro))) is None
    assert script_of(str(tmp_path)) is None
    with pytest.raises(CaseError, match="there is no file"):
        script_of(str(tmp_path / "absent.py"))
    with pytest.raises(CaseError, match="is not Python"):
        script_of(str(write(tmp_path, "e.py", "def f(:")))


def test_a_program_that_passes(tmp_path: Path, pythons: list[str]) -> None:
    out = tmp_path / "out"
    program = write(tmp_path, "net.py", GOOD)
    said = ctk("bisect-version", program, "-t", "aot_eager", *pythons, "--out", out, "--json")
    assert said.code == 0
    assert [row["outcome"] for row in said.data["releases"]] == ["good", "good"]
    assert (out / "repro" / "repro.py").is_file()
    assert "NO FAILURE" in said.data["releases"][0]["reason"]


def test_a_program_that_fails_and_its_case(tmp_path: Path, pythons: list[str]) -> None:
    target = f"{write(tmp_path, 'wrong.py', WRONG)}:compile"
    program = write(tmp_path, "net.py", GOOD)
    said = ctk(
        "bisect-version", program, "-t", target, *pythons, "--out", tmp_path / "out", "--json"
    )
    assert said.code == 1
    assert [row["exit_code"] for row in said.data["releases"]] == [1, 1]
    script = said.data["script"]
    said = ctk("bisect-version", script, *pythons, "--out", tmp_path / "again", "--json")
    assert said.code == 1
    case = tmp_path / "case"
    assert ctk("repro", program, "-t", target, "--out", case).code == 1
    said = ctk("bisect-version", case / "graph0", "--trust", *pythons, "--out", tmp_path / "third")
    assert said.code == 1
    assert said.first.count(" fails") == 2


def test_a_target_that_is_not_part_of_torch(tmp_path: Path) -> None:
    said = ctk("bisect-version", write(tmp_path, "net.py", GOOD), "--target", "ctk")
    assert said.code == 2
    assert "the target ctk needs ctk" in said.err
    assert "next: --target inductor" in said.err


def test_several_graphs_that_pass(tmp_path: Path, pythons: list[str]) -> None:
    program = write(tmp_path, "net.py", TWO_GRAPHS)
    said = ctk("bisect-version", program, "-t", "aot_eager", *pythons, "--out", tmp_path / "out")
    assert said.code == 2
    assert "none of 2 graphs fails here" in said.err
    assert not (tmp_path / "out").exists()
