"""Run `ctk` in this process, and the small programs that its tests give to it."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ctk.toolkit.cli.app import build_app

GOOD = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

def inputs():
    torch.manual_seed(0)
    return (torch.randn(2, 4),)
"""

BROKEN_PASS = '''
import torch

def negate_relu(gm):
    """Wrong on purpose: relu(x) becomes neg(relu(x))."""
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.relu.default:
            with gm.graph.inserting_after(node):
                wrong = gm.graph.call_function(torch.ops.aten.neg.default, (node,))
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user: user is not wrong)

def config():
    return {"custom_passes": {"joint": [f"{__file__}:negate_relu"]}}
'''

TWO_GRAPHS = """
import torch

def first(x):
    x = torch.sin(x)
    torch._dynamo.graph_break()
    return torch.relu(torch.cos(x) + 1)

def model():
    return first

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""


SCRIPT = """
import sys
import torch

def f(x):
    return torch.relu(x) + 1

print("from the script", sys.argv[1:])
torch.compile(f, backend="aot_eager")(torch.ones(3))
"""


DEADLY_TARGET = """
import os
import signal

def compile(gm, example_inputs):
    def call(*args):
        os.kill(os.getpid(), signal.SIGSEGV)
    return call

def hang(gm, example_inputs):
    def call(*args):
        signal.pause()
    return call
"""


class Said:
    """What a command said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.first = out.partition("\n")[0]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.out)


def ctk(*arguments: object) -> Said:
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    return Said(result.exit_code, result.stdout, result.stderr)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
