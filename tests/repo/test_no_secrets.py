"""What the environment holds never gets into a file of ours: the dump, the case, the diagnosis."""

import os
import subprocess
from pathlib import Path

import pytest

from ctk.toolkit.case.manifest import RECORDED
from tests.helpers.modes import not_private
from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

TOKEN = "tok-9f8e7d6c5b4a"
NAMES = ("MY_TORCH_SECRET_TOKEN", "CTK_SECRET", "TORCH_TOKEN", "TORCHINDUCTOR_TOKEN", "HF_TOKEN")

PASSES = """
MIRROR = "https://me:hunter22@host.example/?token=tok-9f8e7d6c5b4a"
def spoil_one_constant(gm, mirror=MIRROR):
    # tok-9f8e7d6c5b4a is in a comment, and so is https://me:hunter22@host.example/x?sig=hunter22
    for node in gm.graph.nodes:
        if "mul" in str(node.target) and node.args[1] == 2:
            node.args = (node.args[0], 3)
    gm.recompile()
"""

JOB = """
import torch, passes_of_the_job
def f(x, w):
    return ((x @ w) * 2).relu().sum(-1)
if __name__ == "__main__":
    options = {"custom_passes": {"joint": [passes_of_the_job.spoil_one_constant]}}
    compiled = torch.compile(f, backend="ctk", options=options)
    compiled(torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)).sum().backward()
"""


def ctk(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | dict.fromkeys(NAMES, TOKEN)
    environ |= variables
    environ |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"  # Python's, of modules of the job, holds their texts
    command = warm_python().with_name("ctk")
    return subprocess.run(
        [command, *args], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def files_with(secret: str, folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_no_file_holds_a_secret_of_the_environment(tmp_path: Path):
    (tmp_path / "passes_of_the_job.py").write_text(PASSES)
    (tmp_path / "job.py").write_text(JOB)
    done = ctk(tmp_path, "run", "--check", "pass", "--inputs", "full", "--out", "dumps", "job.py")
    assert done.returncode == 1, done.stderr
    (case,) = (path.parent for path in (tmp_path / "dumps").rglob("manifest.json"))
    done = ctk(tmp_path, "diagnose", str(case), "--trust", "--out", "diagnosis")
    assert done.returncode == 1, done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 20 and any(path.name == "repro.py" for path in written)
    for program in ("passes_of_the_job.py", "job.py"):
        (tmp_path / program).unlink()
    assert files_with(TOKEN, tmp_path) == [] == files_with("hunter22", tmp_path)
    assert files_with("[secret]", tmp_path), "the pass file was copied"
    assert not_private(tmp_path / "dumps") == [] == not_private(tmp_path / "diagnosis")
    assert TOKEN not in done.stdout + done.stderr


PASSWORD = "hunter22-hunter22"
URL = f"https://me:{PASSWORD}@host.example/x?token={PASSWORD}"

BACKEND = f'''
"""Fetches kernels from {URL}, as {TOKEN}."""
import os
from pathlib import Path

MIRROR = "{URL}"

def raising(gm, example_inputs, options=None):
    """Compile with {TOKEN}."""
    if any("relu" in str(node.target) for node in gm.graph.nodes):
        where = os.environ.get("HF_TOKEN"), Path.home() / "kernels", options
        raise RuntimeError(f"no answer of {{MIRROR}}: {{where}}")  # password = "{PASSWORD}"
    return gm.forward

def main():
    return "{TOKEN}"
'''

NAMED = """
import torch

@torch.library.custom_op("of_the_job::named", mutates_args=())
def named(x: torch.Tensor, name: str) -> torch.Tensor:
    return x * 2

@named.register_fake
def _(x, name):
    return torch.empty_like(x)
"""

PROGRAM = f'''
import torch
import named_of_the_job
KEY = "{TOKEN}"
def f(x):
    return torch.ops.of_the_job.named(x.sin(), "{URL}").relu() + 1
def model():
    return f
def inputs():
    return (torch.ones(3),)
def config():
    return {{"mirror": "{URL}"}}
if __name__ == "__main__":
    from backend_of_the_job import raising
    torch.compile(f, backend=raising, options=config())(*inputs())
'''

HOME = "home-of-mallory"

TARGET = ("--target", "backend_of_the_job.py:raising")

COMMANDS = {
    "check": ("check", "program.py", *TARGET, "--json"),
    "check-text": ("check", "program.py", *TARGET),
    "minify": ("minify", "program.py", *TARGET, "--out", "out"),
    "diagnose": ("diagnose", "program.py", *TARGET, "--out", "out", "--verbose"),
    "repro": ("repro", "program.py", *TARGET, "--out", "out"),
    "bisect-pass": ("bisect-pass", "program.py", *TARGET, "--out", "out"),
    "run": ("run", "--check", "output", "--inputs", "full", "--out", "out", "program.py"),
}


QUICK = ("check", "diagnose", "run")


@pytest.mark.parametrize(
    "row", [row if row in QUICK else pytest.param(row, marks=pytest.mark.slow) for row in COMMANDS]
)
def test_a_backend_that_raises_with_secrets(row: str, tmp_path: Path) -> None:
    """The message, the source line, the docstring, the options and the graph all hold one."""
    folder = tmp_path / HOME / "job"
    folder.mkdir(parents=True)
    programs = {
        "backend_of_the_job.py": BACKEND,
        "named_of_the_job.py": NAMED,
        "program.py": PROGRAM,
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
    done = ctk(folder, *COMMANDS[row], HOME=str(tmp_path / HOME), TMPDIR=str(tmp_path))
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    for name in programs:
        (folder / name).unlink()
    if row in ("minify", "diagnose", "repro"):
        assert "not reproduced" not in done.stdout + done.stderr
    for secret in (TOKEN, PASSWORD, HOME):
        assert files_with(secret, tmp_path) == []
        is_told = secret == HOME or row == "run"  # paths to paste; what the script itself prints
        assert is_told or secret not in done.stdout + done.stderr
    assert row.startswith("check") or files_with("[secret]", tmp_path)


def test_the_search_would_find_one(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "leak.bin").write_bytes(b"\0" + TOKEN.encode())
    assert files_with(TOKEN, tmp_path) == [tmp_path / "folder" / "leak.bin"]


def test_recorded_variables_are_named_one_by_one():
    assert all(name.isupper() and "*" not in name for name in RECORDED)
    words = ("TOKEN", "SECRET", "KEY", "PASSWORD", "CREDENTIAL")
    assert not [name for name in RECORDED if any(word in name for word in words)]
