"""An emitted repro runs where there is torch and nothing of ours, and says what happens there."""

import contextlib
import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.run import (
    ReproRun,
    clean_environment,
    run_repro,
    write_repro,
)
from ctk.toolkit.repro.verified import write_verified_repro


def distributions_of(name: str) -> set[str]:
    """Return a distribution and all that it needs, as far as they are installed."""
    found: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            requirements = importlib.metadata.requires(each) or []
            if each not in found:
                found.add(each)
                plain = [text for text in requirements if "extra ==" not in text]
                todo += [re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in plain]
    return found


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a virtual environment that has torch and what torch needs."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    for name in distributions_of("torch"):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return python


@pytest.fixture
def without_pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def run_bare(path: Path, python: Path) -> ReproRun:
    missing = (
        "import sys, torch\nfor name in ('ctk', 'compiler', 'toolkit', 'numpy', 'safetensors'):\n"
    )
    missing += "    assert __import__('importlib.util').util.find_spec(name) is None, name\n"
    subprocess.run([python, "-W", "ignore", "-c", missing], check=True, cwd=path.parent)
    return run_repro(path, python=str(python))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "case"
    path.mkdir()
    return path


def relu_case(mode: str, signature: Signature) -> Case:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    product = graph.call_function(torch.matmul, (x, w))
    graph.output((graph.call_function(torch.relu, (product,)),))
    generator = torch.Generator().manual_seed(99)
    weight = torch.randn(8, 16, generator=generator)  # too large for a literal: needs the data file
    return Case(
        torch.fx.GraphModule(torch.nn.Module(), graph),
        (torch.arange(16.0).reshape(2, 8), torch.nn.Parameter(weight)),
        target="inductor",
        config={"cpp.inject_relu_bug_TESTING_ONLY": mode},
        modes=Modes(backward=True),
        signature=signature,
    )


@pytest.mark.usefixtures("without_pythonpath")
@pytest.mark.slow
def test_inductor_repro_needs_torch_only(folder: Path, bare_python: Path) -> None:
    case = relu_case("accuracy", Signature("accuracy", output="out0"))
    path = write_repro(case, folder)
    run = run_bare(path, bare_python)
    assert (run.exit_code, run.outcome) == (1, "reproduced"), run.output
    assert (folder / "repro.safetensors").exists()
    text = path.read_text()
    path.write_text(text.replace('{"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}', "{}"))
    healed = run_repro(path, python=str(bare_python))
    assert (healed.exit_code, healed.outcome) == (0, "not reproduced"), healed.output


@pytest.mark.usefixtures("without_pythonpath")
def test_without_its_target_it_cannot_tell(folder: Path, bare_python: Path) -> None:
    case = dataclasses.replace(
        relu_case("accuracy", Signature("accuracy")), target="ctk", config={}
    )
    run = run_repro(write_repro(case, folder), python=str(bare_python))
    assert (run.exit_code, run.outcome) == (125, "cannot tell"), run.output
    assert "the target ctk is missing (pip install ctk)" in run.verdict


@pytest.mark.slow
@pytest.mark.clean_process
@pytest.mark.parametrize(
    ("mode", "signature"),
    [
        ("compile_error", Signature("compile-error", "CppCompileError")),
        ("runtime_error", Signature("runtime-error", "RuntimeError")),
    ],
)
def test_inductor_errors_reproduce(mode: str, signature: Signature, folder: Path) -> None:
    path, run = write_verified_repro(relu_case(mode, signature), folder, "lowered/relu")
    assert (run.exit_code, run.outcome) == (1, "reproduced"), run.output
    header = path.read_text().split('"""')[1]
    assert f"torch {torch.__version__}" in header
    assert "Clean run:  reproduced on " in header
    assert "Culprit:    lowered/relu" in header


BROKEN_PASS = """
import torch

def drop_relu(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
"""


@pytest.mark.slow
@pytest.mark.clean_process
def test_a_broken_pass_of_ctk_reproduces_and_can_be_left_out(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "broken_pass.py"
    source.write_text(BROKEN_PASS)
    x = torch.tensor([[1.0, -2.0]])
    case = dataclasses.replace(
        relu_case("accuracy", Signature("accuracy")),
        target="ctk",
        config={"custom_passes": {"joint": [f"{source}:drop_relu"]}, "codegen": "eager"},
        inputs=(x, torch.nn.Parameter(torch.ones(2, 2))),
        synthetic=("x",),
    )
    path, run = write_verified_repro(case, folder, "joint/drop_relu")
    assert (run.exit_code, run.outcome) == (1, "reproduced"), run.output
    source.unlink()  # the folder is complete without it
    header = path.read_text().split('"""')[1]
    assert "CTK_DISABLE=joint/drop_relu python repro.py" in header
    environment = clean_environment(os.environ) | {"CTK_DISABLE": "joint/drop_relu"}
    proof = subprocess.run(
        [sys.executable, path.name], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert proof.returncode == 0, proof.stdout + proof.stderr
    assert "Clean run:  inputs synthetic: reproduced on " in header
    assert "Inputs:     synthetic: x" in header
