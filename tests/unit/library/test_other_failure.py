"""What a reduction with a wide rule (`--same-failure type|any`) records of its smallest case."""

import json
from pathlib import Path

import pytest
import torch

import ctk
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write

PROGRAM = """
import torch

def f(x):
    b = torch.relu(torch.sin(x)) + 1
    return torch.cos(torch.softmax(torch.tanh(b), -1)) * 2, b

def model():
    return f

def inputs():
    return (torch.linspace(-1, 1, 64).reshape(8, 8),)
"""

RAISING = '''
def compile(gm, example_inputs):
    """Raises for a softmax with a relu; otherwise, and another error, for a softmax alone."""
    names = {getattr(node.target, "__name__", "") for node in gm.graph.nodes}
    if {"softmax", "relu"} <= names:
        raise ValueError("softmax meets relu")
    if "softmax" in names:
        raise %s
    return gm
'''


@pytest.mark.parametrize(
    ("rule", "error"),
    [("any", "KeyError('softmax alone')"), ("type", "ValueError('softmax alone')")],
)
def test_the_smallest_case_records_the_failure_that_it_shows(
    rule: str, error: str, tmp_path: Path
) -> None:
    program = write(tmp_path, "program.py", PROGRAM)
    backend = write(tmp_path, "backend.py", RAISING % error)
    out, exception = tmp_path / "out", error.partition("(")[0]
    options = ("--same-failure", rule, "--out", out)
    said = command("minify", program, "--target", f"{backend}:compile", *options)
    assert said.code == 1
    assert f"compile-error {exception}" in said.first and "softmax alone" in said.first
    assert said.first.endswith("; another failure than the given case's")
    assert "given: compile-error ValueError" in said.out and "softmax meets relu" in said.out
    assert "# reproduced" in said.out
    smallest = ctk.load_case(out / "case", trust=True)
    names = [node.name for node in smallest.graph.graph.nodes if node.op.startswith("call")]
    assert len(names) == 1
    assert smallest.signature is not None
    assert smallest.signature.exception == exception
    assert "softmax alone" in smallest.signature.message
    script = (out / "case" / "repro.py").read_text()
    assert f'"exception": "{exception}"' in script
    assert "softmax alone" in script.partition("import")[0]
    record = json.loads((out / "diagnosis.json").read_text())
    assert record["signature"]["message"] == "softmax meets relu"
    assert record["minimal"]["other_failure"]["exception"] == exception
    assert command("repro", out / "case", "--trust").code == 1
    shown = command("show", out).out
    assert "its own    compile-error" in shown and "another failure than the case's" in shown


WRONG_BACKEND = '''
import torch

def compile(gm, example_inputs):
    """Adds one wherever there is a relu."""
    for node in gm.graph.nodes:
        if getattr(node.target, "__name__", "") == "relu":
            with gm.graph.inserting_after(node):
                wrong = gm.graph.call_function(torch.add, (node, 1))
            node.replace_all_uses_with(wrong, lambda user: user is not wrong)
    gm.recompile()
    return gm
'''


def test_the_smallest_case_records_its_own_numbers_of_the_same_failure(tmp_path: Path) -> None:
    program = write(tmp_path, "program.py", PROGRAM)
    backend = write(tmp_path, "backend.py", WRONG_BACKEND)
    out = tmp_path / "out"
    said = command("minify", program, "--target", f"{backend}:compile", "--out", out)
    assert said.code == 1
    smallest = ctk.load_case(out / "case", trust=True)
    (value,) = smallest.inputs
    assert isinstance(value, torch.Tensor) and value.numel() == 1
    assert smallest.signature is not None
    assert smallest.signature.message.startswith("1 of 1 elements wrong")
    script = (out / "case" / "repro.py").read_text()
    assert "1 of 1 elements" in script.partition("import")[0]
    assert "1 of 1 elements wrong" in command("show", out / "case").out
    record = json.loads((out / "diagnosis.json").read_text())
    assert record["signature"]["message"].split()[1:4] == ["of", "64", "elements"]
    assert record["minimal"]["other_failure"] is None
