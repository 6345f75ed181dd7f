"""The published problems: a stranger who has only torch loads them and asks the same question."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.toolkit.case.store import load_case
from tests.helpers.project import ROOT
from tests.helpers.reduce_families import FAMILIES, predicates

FOLDER = ROOT / "benchmarks" / "data" / "reduce"
PROBLEMS = sorted(path.parent.name for path in FOLDER.glob("*/problem.json"))


def test_a_stranger_loads_them_without_ctk(tmp_path: Path):
    copied = tmp_path / "reduce"
    shutil.copytree(FOLDER, copied)
    script = (
        "import sys; sys.path.insert(0, '.'); from load import load\n"
        f"for name in {PROBLEMS}:\n"
        "    gm, inputs, fails, problem = load(name)\n"
        "    print(name, fails(gm, inputs), len(gm.graph.nodes))\n"
        "assert not [m for m in sys.modules if m.startswith(('ctk', 'safetensors'))]\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, cwd=copied, check=True
    )
    said = [line.split() for line in done.stdout.splitlines()]
    assert [words[0] for words in said] == PROBLEMS
    assert {words[1] for words in said} == {"True"}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_they_are_what_the_families_make(problem: str):
    family, size, seed = problem.rsplit("_", 2)
    planted = FAMILIES[family].build(int(size), int(seed))
    case = load_case(FOLDER / problem / "case")
    assert planted.fails(case.graph, case.inputs)
    assert [(n.op, n.name) for n in case.graph.graph.nodes] == [
        (n.op, n.name) for n in planted.graph.graph.nodes
    ]


def test_the_published_predicates_are_those_that_are_measured_with():
    assert (FOLDER / "oracle.py").read_text() == Path(predicates.__file__).read_text()
