"""The traces that operations write: of the given case and of the smallest, and if they cannot."""

import shutil
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import StorageError
from ctk.toolkit.compile_log.trace.document import FILE
from ctk.toolkit.compile_log.trace.reading import read_trace
from ctk.toolkit.operations.session import compile_trace
from tests.helpers.cli import BROKEN_PASS, write

PROGRAM = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU(), torch.nn.Tanh())

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""
CULPRIT = "joint/negate_relu"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path, "broken.py", PROGRAM + BROKEN_PASS)


def wrong_passes(folder: Path) -> list[str]:
    steps = read_trace(folder).steps
    return [step.id for step in steps if step.status == "wrong" and step.kind == "pass"]


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosed")
    path = write(folder, "broken.py", PROGRAM + BROKEN_PASS)
    found = ctk.diagnose(path, out=folder / "out")
    assert found.problems == ()
    return folder


def test_diagnose_writes_both(diagnosed: Path) -> None:
    out = diagnosed / "out"
    assert wrong_passes(out) == wrong_passes(out / "minimal") == [CULPRIT]
    whole, small = read_trace(out), read_trace(out / "minimal")
    assert len(small.nodes_of(0)) < len(whole.nodes_of(0))
    assert ctk.load_case(out / "minimal", trust=True).signature is not None


def test_a_resumed_operation_keeps_its_trace_or_compiles_once_more(
    diagnosed: Path, tmp_path: Path
) -> None:
    shutil.copytree(diagnosed / "out", tmp_path / "out")
    before = (tmp_path / "out" / FILE).read_bytes()
    (tmp_path / "out/minimal" / FILE).unlink()
    ctk.diagnose(diagnosed / "broken.py", out=tmp_path / "out", resume=True)
    assert (tmp_path / "out" / FILE).read_bytes() == before
    again = read_trace(tmp_path / "out/minimal")
    assert CULPRIT in [step.id for step in again.steps]
    assert all(step.errors is None for step in again.steps)


def test_bisect_writes_one(broken: Path, tmp_path: Path) -> None:
    ctk.bisect(broken, out=tmp_path / "out")
    assert wrong_passes(tmp_path / "out") == [CULPRIT]


def test_minify_writes_both(broken: Path, tmp_path: Path) -> None:
    ctk.minify(broken, out=tmp_path / "out")
    assert wrong_passes(tmp_path / "out") == wrong_passes(tmp_path / "out/case") == [CULPRIT]


def test_a_failing_trace_is_a_problem_and_changes_no_answer(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(compile_trace, "make_trace", fail)
    found = ctk.diagnose(broken, out=tmp_path / "out")
    assert found.search.culprit is not None
    assert found.search.culprit.where == CULPRIT
    assert [text.partition(" raised ")[0] for text in found.problems] == [
        "the trace of the compile of graph0"
    ] * 2
    assert not (tmp_path / "out" / FILE).exists()


def test_a_full_disk_is_a_problem(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise StorageError("no space left")

    monkeypatch.setattr(compile_trace, "write_trace", fail)
    found = ctk.bisect(broken, out=tmp_path / "out")
    assert found.search.confirmed
    assert not found.is_saved
    assert found.problems == ("trace.json is not on disk: no space left",)


def test_a_crash_has_the_captured_graph_and_the_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path, "crash.py", PROGRAM.replace("import torch\n", "import os\nimport torch\n") + """
def abort(graph):
    os.abort()

def config():
    return {"custom_passes": {"joint": [__file__ + ":abort"]}}
"""
    )  # fmt: skip
    ctk.bisect(path, out=tmp_path / "out", isolate=True)
    trace = read_trace(tmp_path / "out")
    assert [step.id for step in trace.steps] == ["captured"]
    assert trace.cut[0].startswith("the steps of the compile are not known: it was observed from")


def test_check_writes_one_beside_each_graph(broken: Path, tmp_path: Path) -> None:
    report = ctk.check(broken, out=tmp_path / "cases")
    assert wrong_passes(tmp_path / "cases" / "graph0") == [CULPRIT]
    assert report.graphs[0].notes == ()
    assert report.graphs[0].make_trace().steps
    assert ctk.load_case(tmp_path / "cases" / "graph0", trust=True).signature is not None


OPERATOR = """
import torch

@torch.library.custom_op("traced::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.clone()

@scale.register_fake
def _(x):
    return torch.empty_like(x)

def model():
    def f(x):
        y = x.cos()
        return torch.ops.traced.scale(y) + y.sin()
    return f

def inputs():
    return (torch.linspace(0, 1, 8),)
"""


def test_an_operator_that_breaks_its_declaration_is_the_first_step(tmp_path: Path) -> None:
    ctk.check(write(tmp_path, "operator.py", OPERATOR), out=tmp_path / "cases")
    first = read_trace(tmp_path / "cases" / "graph0").steps[0]
    assert (first.id, first.kind, first.status) == ("operator/traced::scale", "operator", "wrong")


def test_a_watched_call_writes_that_of_a_wrong_result(broken: Path, tmp_path: Path) -> None:
    config = {"custom_passes": {"joint": [f"{broken}:negate_relu"]}}
    backend = ctk.debug_compile(
        "ctk", config=config, dump=tmp_path / "dumps", check="pass", on_failure="warn"
    )
    with pytest.warns(RuntimeWarning, match="graph0"):
        torch.compile(torch.relu, backend=backend)(torch.linspace(-1, 1, 8))
    (folder,) = (tmp_path / "dumps").glob("*/graph0")
    assert wrong_passes(folder) == [CULPRIT]
    assert ctk.load_case(folder, trust=True).signature is not None
