"""The user's modules travel with a case; a script that misses a part of its program cannot tell."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.repro.run import run_repro, write_repro
from tests.helpers.repros import ACCURACY, BACKENDS

OPERATOR = """
import torch
{imports}
@torch.library.custom_op("{space}::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}
@scaled.register_fake
def _(x):
    return torch.empty_like(x)
"""
PROGRAM = """
import torch
{imports}
def model():
    return lambda x: {call}.relu()
def inputs():
    return torch.arange(-2.0, 4.0)
"""
FUNCTION = """
import torch
from {stem}_factor import FACTOR
@torch.compiler.allow_in_graph
def scaled(x):
    return x * FACTOR
"""


def files_of_kind(kind: str, stem: str) -> dict[str, str]:
    """Return the files of a program whose graph calls code of another module, by their names."""
    call = f"torch.ops.{stem}.scaled(x)"
    if kind == "module":
        code = OPERATOR.format(imports="", space=stem, factor=2)
        return {
            "program": PROGRAM.format(imports=f"import {stem}_ops", call=call),
            f"{stem}_ops": code,
        }
    if kind == "package":
        code = OPERATOR.format(imports="from .factors import FACTOR", space=stem, factor="FACTOR")
        return {
            "program": PROGRAM.format(imports=f"import {stem}_pack", call=call),
            f"{stem}_pack/__init__": "from .inner import ops\n",
            f"{stem}_pack/inner/__init__": "",
            f"{stem}_pack/inner/ops": code.replace(".factors", "..factors"),
            f"{stem}_pack/factors": "FACTOR = 2\n",
        }
    if kind == "function":
        return {
            "program": PROGRAM.format(imports=f"import {stem}_fn", call=f"{stem}_fn.scaled(x)"),
            f"{stem}_fn": FUNCTION.format(stem=stem),
            f"{stem}_factor": "FACTOR = 2\n",
        }
    own = FUNCTION.format(stem=stem)
    return {
        "program": PROGRAM.format(imports=own, call="scaled(x)"),
        f"{stem}_factor": "FACTOR = 2\n",
    }


def case_of_files(files: Mapping[str, str], folder: Path) -> Case:
    """Write the files of a program; return its case, with a backend that is wrong."""
    for name, text in {**files, "backends": BACKENDS}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    request = CaseOptions(target=f"{folder}/backends.py:wrong")
    (case,) = load_cases(str(folder / "program.py"), None, request)
    return dataclasses.replace(case, signature=ACCURACY)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["module", "package", "function", "own function"])
def test_it_travels_with_the_case(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = f"carried_{kind.replace(' ', '_')}"
    case = case_of_files(files_of_kind(kind, stem), home)
    wanted = run_eager(case).values["out0"]
    folder = save_case(case, tmp_path / "case", inputs="full")
    write_repro(case, folder)
    assert set(read_manifest(folder).imports) < {*sys.modules, "program"}
    home.rename(tmp_path / "gone")
    for name in [name for name in sys.modules if stem in name]:
        monkeypatch.delitem(sys.modules, name)
    again = load_case(folder, trust=True)
    assert run_eager(again).values["out0"].equal(wanted)  # type: ignore[attr-defined]  # a tensor
    run = run_repro(folder / "repro.py")
    assert (run.exit_code, run.outcome) == (1, "reproduced"), run.output


BREAK = {
    "a missing module": ("sources/unbuilt_ops.py", None),
    "a syntax error": ("sources/unbuilt_ops.py", "def f(:\n"),
    "a missing package": ("sources/unbuilt_ops.py", "import a_package_that_is_not_there\n"),
    "an operator that is not registered": ("sources/unbuilt_ops.py", "import torch\n"),
    "a missing file": ("sources/unbuilt_ops.py", "open(__file__ + '.data')\n"),
    "an end of the process": ("sources/unbuilt_ops.py", "raise SystemExit(1)\n"),
    "a missing backend": ("sources/backends.py", None),
    "a backend that raises": ("sources/backends.py", "raise ValueError('no')\n"),
    "another torch": ("repro.py", "import torch._no_such_module\n"),
}


@pytest.mark.parametrize("what", BREAK)
def test_without_a_part_it_cannot_tell(what: str, home: Path, tmp_path: Path) -> None:
    case = case_of_files(files_of_kind("module", "unbuilt"), home)
    folder = save_case(case, tmp_path / "case", inputs="full")
    script = write_repro(case, folder)
    name, text = BREAK[what]
    if name == "repro.py":
        text = script.read_text().replace("\nimport torch\n", f"\nimport torch\n{text}", 1)
    (folder / name).write_text(text) if text else (folder / name).unlink()
    run = run_repro(script)
    assert (run.exit_code, run.outcome) == (125, "cannot tell"), run.output
    assert run.verdict.startswith("CANNOT TELL: ")
