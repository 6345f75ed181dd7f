"""A case carries the file that registers its operators, and nothing of the program beside them."""

import subprocess
from pathlib import Path

import pytest

from ctk.compiler.errors import TrustError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.importers import load_cases
from ctk.toolkit.operations.check import check
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.repro.run import run_repro, write_repro
from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

PROGRAM = """
import torch

SCALE, SECRET = 3.0, 1
KEY = "kept at home"


@torch.library.custom_op("{space}::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by * SCALE


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


library = torch.library.Library("{space}_more", "DEF")
library.define("plus(Tensor x) -> Tensor")


@torch.library.impl(library, "plus", "CompositeExplicitAutograd")
def plus(x):
    return x + 1


@torch.library.register_fake("{space}_more::plus", lib=library)
def _(x):
    return torch.empty_like(x)


def model():
    return lambda x: torch.ops.{space}_more.plus(scaled(x, 0.5))


def inputs():
    return (torch.ones(3), )
"""
FAKE = PROGRAM[PROGRAM.index("@scaled.register_fake") : PROGRAM.index("library =")]
TRITON = PROGRAM.replace("custom_op", "triton_op").replace(FAKE, "")
RUN = """
import ctk
case = ctk.load_case("case", trust=True)
print([float(each) for each in case.graph(*case.inputs)[0]])
"""


@pytest.fixture(params=[PROGRAM, TRITON], ids=["custom_op", "triton_op"])
def moved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the case of a program that is gone, and its repro."""
    program = tmp_path / "program.py"
    space = f"test_{abs(hash(request.node.name))}"
    program.write_text(request.param.format(space=space))
    case = only_case(program)
    save_case(case, tmp_path / "case", inputs="full")
    write_repro(case, tmp_path / "case")
    program.unlink()
    return tmp_path / "case"


def only_case(program: Path) -> Case:
    (case,) = load_cases(str(program), None, CaseOptions(target="aot_eager"))
    return case


def test_another_process_loads_it(moved: Path) -> None:
    command = [warm_python(), "-c", RUN]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=moved.parent, env=env, capture_output=True, text=True)
    assert done.stdout == "[2.5, 2.5, 2.5]\n", done.stderr


def test_its_repro_runs_in_a_clean_process(moved: Path) -> None:
    run = run_repro(moved / "repro.py")
    assert run.verdict.startswith("NO FAILURE"), run.output


def test_the_file_is_named_carried_and_cut(moved: Path) -> None:
    assert read_manifest(moved).imports == ("sources/program.py",)
    text = (moved / "sources" / "program.py").read_text()
    assert "def scaled" in text
    assert "def plus" in text
    assert "kept at home" not in text
    assert "def model" not in text


def test_it_needs_trust(moved: Path) -> None:
    with pytest.raises(TrustError, match=r"sources/program\.py"):
        load_case(moved)


def test_it_is_saved_again_where_it_was_loaded(moved: Path) -> None:
    again = save_case(load_case(moved, trust=True), moved.parent / "again")
    assert read_manifest(again).imports == ("sources/program.py",)


COMPILED = """
import types
import torch

KEY = "kept at home"
define = lambda: torch.library.Library("compiled_space", "DEF")
library = types.FunctionType(define.__code__.replace(co_filename="more.cpp"), {"torch": torch})()
library.define("plus(Tensor x) -> Tensor")
library.impl("plus", lambda x: x + 1, "CompositeExplicitAutograd")


@torch.library.register_fake("compiled_space::plus", lib=library)
def _(x):
    return torch.empty_like(x)


def model():
    return lambda x: torch.ops.compiled_space.plus(x * 1.5)


def inputs():
    return (torch.ones(3), )
"""
"""An operator as C++ registers it: torch knows the Python file of its fake implementation only."""


def test_an_operator_of_a_compiled_library_travels_with_its_fake(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(COMPILED)
    folder = save_case(only_case(program), tmp_path / "case", inputs="full")
    program.unlink()
    test_another_process_loads_it(folder)
    assert "kept at home" not in (folder / "sources" / "program.py").read_text()


def test_a_copy_is_carried_where_the_original_is_loaded_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, rest = PROGRAM.format(space="test_originals").partition("def model")
    (tmp_path / "originals.py").write_text(module)
    program = tmp_path / "program.py"
    program.write_text(f"import torch\nfrom originals import scaled\n\n\ndef model{rest}")
    monkeypatch.syspath_prepend(tmp_path)
    case = load_case(save_case(only_case(program), tmp_path / "case", inputs="full"), trust=True)
    assert case.sources == (tmp_path / "case" / "sources" / "originals.py",)
    again = save_case(case, tmp_path / "again", inputs="full")
    assert read_manifest(again).imports == ("originals",)


TRACED = """
import bisect
import torch


@{decorator}(bisect.{function}, skip_signature_check=True)
def own(*args, **kwargs):
    return 2


def model():
    return lambda x: x * bisect.{function}([1, 2, 2], 9)


def inputs():
    return (torch.ones(3), )
"""


@pytest.mark.parametrize(
    ("decorator", "function"),
    [
        ("torch._dynamo.substitute_in_graph", "bisect_left"),
        ("torch.compiler.substitute_in_graph", "bisect_right"),
    ],
)
def test_a_program_that_replaces_a_function_in_traces_is_loaded_twice(
    decorator: str, function: str, tmp_path: Path
) -> None:
    program = tmp_path / "traced.py"
    text = TRACED.format(decorator=decorator, function=function)
    program.write_text(text)
    report = check(str(program), target="aot_eager")
    assert report.end_to_end is not None
    assert report.end_to_end.layer == "dynamo", report


OWN = """
import torch


@torch.compiler.allow_in_graph
def plus(x):
    return torch.add(x, 1)
"""
BACKEND = """
def backend(graph, inputs):
    return graph
"""
USES_OWN = """
import torch
from {space}.ops import plus


@torch.library.custom_op("{space}::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 1.25


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


def model():
    return lambda x: scaled(plus(x))


def inputs():
    return (torch.ones(3), )
"""


@pytest.mark.parametrize(
    ("program_name", "backend_name"), [("ops.py", "my.py"), ("program.py", "ops.py")]
)
def test_files_of_one_name_are_all_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program_name: str, backend_name: str
) -> None:
    """Also by a case that is saved again while the originals are loaded."""
    space = f"beside_{Path(program_name).stem}"
    home = tmp_path / "home"
    program = home / program_name
    for path, text in [
        (home / space / "__init__.py", ""),
        (home / space / "ops.py", OWN),
        (home / backend_name, BACKEND),
        (program, USES_OWN.format(space=space)),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(home)
    options = CaseOptions(target=f"{home / backend_name}:backend")
    (case,) = load_cases(str(program), None, options)
    first = save_case(case, tmp_path / "first" / "case", inputs="full")
    again = save_case(load_case(first, trust=True), tmp_path / "again" / "case", inputs="full")
    home.rename(tmp_path / "gone")
    test_another_process_loads_it(first)
    test_another_process_loads_it(again)
