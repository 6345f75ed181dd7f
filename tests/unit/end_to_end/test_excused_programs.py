"""Whole programs whose difference from eager is not the compiler's."""

from pathlib import Path

import pytest

import ctk
from tests.helpers import cli

NUMPY = """
import numpy as np
import torch

def model():
    return lambda x: {expression}

def inputs():
    return (torch.linspace(0.1, 1, 4),)
"""

DRAWN = {
    "normal": "x.sin() + torch.from_numpy(np.random.randn(4)).float()",
    "uniform": "x * torch.from_numpy(np.random.uniform(size=4))",
    "integers": "x + torch.from_numpy(np.random.randint(0, 100, size=4))",
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_random_stream_of_numpy_is_documented(name: str, tmp_path: Path) -> None:
    path = cli.write(tmp_path, "drawn.py", NUMPY.format(expression=DRAWN[name]))
    found = ctk.repro(path, target="eager").judgement
    assert found.verdict is ctk.Verdict.DOCUMENTED, found
    assert "numpy-random-stream" in found.detail


def test_a_wrong_value_with_numbers_of_numpy_is_a_failure(tmp_path: Path) -> None:
    wrong = "x * (1 + torch.compiler.is_compiling()) + torch.from_numpy(np.random.randn(4))"
    path = cli.write(tmp_path, "wrong.py", NUMPY.format(expression=wrong))
    assert ctk.repro(path, target="eager").fails


NUMBERS = """
import numpy as np
import torch

def model():
    return lambda x: {expression}

def inputs():
    return (np.arange(1, 7, dtype=np.float32),)
"""

RETURNED = {
    "sums": "(np.sum(x * 2), {'mean': np.mean(x)}, x + 1)",
    "an element": "x[2]",
    "one number twice": "(lambda a: (a, a))(np.max(x))",
    "double, integer and bool": "[x.astype(np.float64).max(), np.argmax(x), np.any(x > 3)]",
}


@pytest.mark.parametrize("name", RETURNED)
def test_arrays_for_numbers_of_numpy_are_documented(name: str, tmp_path: Path) -> None:
    path = cli.write(tmp_path, "numbers.py", NUMBERS.format(expression=RETURNED[name]))
    found = ctk.repro(path, target="eager").judgement
    assert found.verdict is ctk.Verdict.DOCUMENTED, found
    assert "numpy-scalars" in found.detail


WRONG_NUMBERS = {
    "value": "np.sum(x) + (1 if torch.compiler.is_compiling() else 0)",
    "value of a number": "np.float32(3 if torch._dynamo.is_compiling() else 2)",
    "type": "np.sum(x) if not torch.compiler.is_compiling() else torch.from_numpy(x).sum()",
    "dtype": "x.astype(np.float64 if torch.compiler.is_compiling() else np.float32).max()",
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_a_wrong_number_of_numpy_is_a_failure(name: str, tmp_path: Path) -> None:
    path = cli.write(tmp_path, "wrong.py", NUMBERS.format(expression=WRONG_NUMBERS[name]))
    assert ctk.repro(path, target="eager").fails


def test_a_documented_difference_can_be_refused(tmp_path: Path) -> None:
    path = str(cli.write(tmp_path, "drawn.py", NUMPY.format(expression=DRAWN["normal"])))
    asked = ("repro", path, "--target", "eager")
    accepted = cli.ctk(*asked)
    assert accepted.code == 0
    assert accepted.out.startswith("documented difference: ")
    assert cli.ctk(*asked, "--no-accept-documented").code == 1
