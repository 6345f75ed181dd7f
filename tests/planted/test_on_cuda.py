"""Bugs of Inductor on a GPU: its planted bug in Triton, and the real ones moved there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.blame import FILES, bug_of, moved, told_by_ctk
from ctk.toolkit.operations.diagnose import diagnose
from tests.helpers.project import ROOT
from tests.planted.test_planted import called

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

NOTHING_COMPARED = "cannot tell: the program cannot be asked about"

OTHERS = {
    "b105_alone": "^dynamo/exceptions$",
    "b011_alone": NOTHING_COMPARED,
    "b011_hidden": NOTHING_COMPARED,
}
"""Other answers about programs on a GPU.

`x.numpy()` raises in eager, and not in Dynamo; a product of int8 matrices raises in both.
"""

BUG = "triton.inject_relu_bug_TESTING_ONLY"


@pytest.mark.parametrize("mode", ["compile_error", "runtime_error", "accuracy"])
def test_the_bug_planted_in_triton_is_reduced_to_relu(mode: str, tmp_path: Path) -> None:
    program = moved(ROOT / "examples" / "inductor_bug.py", "cuda", tmp_path)
    out = tmp_path / "out"
    found = diagnose(program, target="inductor", config={BUG: mode}, out=out, isolate=True)
    assert found.search.culprit is not None and found.reduction is not None
    assert found.search.culprit.where == "lowered/lower.aten.relu.default"
    assert found.search.confirmed
    assert called(found.reduction.best) == ["relu"]
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_real_bug_is_diagnosed_where_it_fails(path: Path, tmp_path: Path) -> None:
    bug = bug_of(moved(path, "cuda", tmp_path))
    told = told_by_ctk(bug, "diagnose")
    if not bug.culprit:  # plain torch may differ from eager here: it is closer to float64
        assert told.is_right, told
    elif "no failure" in told.named:
        assert not fails_without_us(bug.path), told
    else:
        assert told.is_right or re.search(OTHERS.get(bug.name, "$^"), told.named), told


def fails_without_us(path: Path) -> bool:
    """Return whether plain torch.compile differs from eager, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.blame", "--plain", str(path)],
        capture_output=True,
        cwd=ROOT,
        env=os.environ,
        check=False,
    )
    return done.returncode != 0
