"""Dynamo captured no graph: the message has Dynamo's own reason, and the program's line."""

from pathlib import Path

import pytest

from ctk.compiler.errors import CaptureError
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.importers.program import capture_cases
from tests.helpers.faulty_backends import run_python

INPUTS = "def inputs():\n    return (torch.ones(3),)\n"

NO_GRAPH = {
    "disabled_forward": (
        "import torch\nclass M(torch.nn.Module):\n    @torch.compiler.disable\n"
        "    def forward(self, x):\n        return x + 1\ndef model():\n    return M()\n",
        "torch.compiler.disable",
        "program.py:3",
    ),
    "calls_disabled": (
        "import torch\n@torch.compiler.disable\ndef helper(x):\n    return x + 1\n"
        "def f(x):\n    return helper(x)\ndef model():\n    return f\n",
        "torch.compiler.disable",
        "program.py:6 in f",
    ),
    "break_at_the_start": (
        "import torch\ndef f(x):\n    torch._dynamo.graph_break()\n    return x\n"
        "def model():\n    return f\n",
        "User-inserted graph break",
        "program.py:3 in f",
    ),
    "unsupported_builtin": (
        "import os, torch\ndef f(x):\n    os.getpid()\n    return x\ndef model():\n    return f\n",
        "posix.getpid",
        "program.py:3 in f",
    ),
    "generator": (
        "import torch\ndef f(x):\n    yield x + 1\ndef model():\n    return f\n",
        "Attempt to trace generator",
        "program.py:2 in f",
    ),
    "no_operation": (
        "import torch\ndef f(x):\n    return 3\ndef model():\n    return f\n",
        "No ops traced",
        "program.py:2 in f",
    ),
    "numpy_only": (
        "import numpy as np\nimport torch\ndef f(n):\n    return sum(range(n))\n"
        "def model():\n    return f\ndef inputs():\n    return (3,)\n",
        "No ops traced|no tensor-related objects",
        "program.py:3 in f",
    ),
    "skipped_file": (
        "import traceback, torch\ndef f(x):\n    traceback.format_stack()\n"
        "    return x\ndef model():\n    return f\n",
        "skipped",
        "program.py:3 in f",
    ),
    "scripted": (
        "import torch\ndef model():\n    return torch.jit.script(torch.nn.Linear(3, 3))\n",
        "compiled by torch.jit already",
        "program.py:3",
    ),
}


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(text + (INPUTS if "def inputs" not in text else ""))
    program = load_program(str(path))
    with pytest.raises(CaptureError) as raised:
        capture_cases(program, target="eager")
    return str(raised.value)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning")
@pytest.mark.parametrize("name", NO_GRAPH)
def test_it_says_why(tmp_path: Path, name: str):
    text, reason, place = NO_GRAPH[name]
    message = refused(tmp_path, text)
    assert message.startswith("Dynamo captured no graph of program.py: ")
    assert any(each in message for each in reason.split("|")), message
    assert any(each in message for each in place.split("|")), message


def test_dynamo_is_switched_off(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text("import torch\ndef model():\n    return torch.sin\n" + INPUTS)
    code = "from ctk.toolkit.cli.main import main; main()"
    done = run_python("-c", code, "check", path, is_clean=True, TORCHDYNAMO_DISABLE="1")
    assert "captured no graph of program.py" in done.stderr + done.stdout
    assert "switched off by the variable TORCHDYNAMO_DISABLE=1" in done.stderr + done.stdout


def test_suppressed_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import torch._dynamo.config
    from torch._dynamo import symbolic_convert

    def broken(*args, **kwargs):
        raise KeyError("lost")

    monkeypatch.setattr(symbolic_convert.InstructionTranslator, "run", broken)
    text = "import torch\ndef f(x):\n    return x + 1\ndef model():\n    return f\n"
    with torch._dynamo.config.patch(suppress_errors=True):
        message = refused(tmp_path, text)
    assert "lost" in message and "suppress_errors" in message and "program.py:2 in f" in message
