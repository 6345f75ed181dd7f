"""Dynamo backends with faults, and what the tests of the hooks look at.

The backends are at the top level, so that a case can name them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.helpers.warm_python import warm_python

ROOT = Path(__file__).parents[2]


def good(gm, example_inputs):
    return gm.forward


def fails_to_compile(gm, example_inputs):
    raise NotImplementedError("no such op")


def fails_to_run(gm, example_inputs):
    def call(*args):
        for value in args:
            if isinstance(value, torch.Tensor):
                value.detach().add_(100)
        raise ArithmeticError("kernel crashed")

    return call


def wrong(gm, example_inputs):
    return lambda *args: tuple(value * 1.5 for value in gm(*args))


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def wrong_backward(gm, example_inputs):
    return lambda *args: tuple(WrongGradient.apply(value) for value in gm(*args))


def takes_options(gm, example_inputs, *, options):
    return lambda *args: tuple(value + options["plus"] for value in gm(*args))


def model(x):
    return (x * 2).sin()


def name_of(function) -> str:
    return f"{function.__module__}:{function.__name__}"


def folders(dump: Path) -> list[Path]:
    return sorted(path.parent for path in dump.rglob("manifest.json"))


def only_folder(dump: Path) -> Path:
    (folder,) = folders(dump)
    return folder


def manifest(dump: Path) -> dict:
    return json.loads((only_folder(dump) / "manifest.json").read_text())


def draws_first(gm, example_inputs):
    def call(*args):
        torch.rand(1)
        return gm(*args)

    return call


def fails_later(gm, example_inputs):
    calls = []

    def call(*args):
        calls.append(1)
        if len(calls) > 3:
            raise ArithmeticError("third time unlucky")
        return gm(*args)

    return call


def breaks(gm):
    raise ZeroDivisionError("a pass of the backward graph")


def load_manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def run_python(*args, is_clean=False, **variables) -> subprocess.CompletedProcess:
    """Run Python, torch being imported already; `is_clean` for what depends on the imports."""
    python = sys.executable if is_clean else warm_python()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environ = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        [python, *map(str, args)], env=environ, capture_output=True, text=True, check=False
    )
