"""Real bugs of Inductor, hidden in small models: named in one compile, confirmed by one more."""

from pathlib import Path

import pytest

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.diagnose import diagnose
from tests.helpers.torch_bugs import PERMUTED_KEY, SHUFFLED_ROWS, ZEROED_SNAPSHOT
from tests.planted.test_planted import called, load

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "inductor_bug.py"
FILES = sorted((HERE / "inductor").glob("*.py"))
BUGS = {
    "batch_shuffle": SHUFFLED_ROWS,
    "permuted_key": PERMUTED_KEY,
    "snapshot_of_cache": ZEROED_SNAPSHOT,
}
BUG = "cpp.inject_relu_bug_TESTING_ONLY"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=BUGS[path.stem].is_needed) for path in FILES]
)
def test_a_real_bug_is_named_confirmed_and_reduced(path, tmp_path):
    expect = load(path).EXPECT
    # thorough: else the clock decides how small the graph gets
    diagnosis = diagnose(path, target="inductor", out=tmp_path, thorough=True)
    search = diagnosis.search
    assert expect["pass"] in search.culprit.name
    assert search.confirmed
    assert search.compiles == 2
    assert search.judgement.signature.kind == expect.get("kind", "accuracy")
    assert len(called(diagnosis.reduction.best)) <= expect["at_most"]
    assert diagnosis.repro_run.outcome == "reproduced"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile_error", "runtime_error", "accuracy"])
def test_the_planted_relu_bug_is_reduced_to_relu(mode, tmp_path):
    diagnosis = diagnose(EXAMPLE, target="inductor", config={BUG: mode}, out=tmp_path)
    assert diagnosis.reduction.nodes_before >= 150
    assert called(diagnosis.reduction.best) == ["relu"]
    assert diagnosis.search.culprit.where == "lowered/lower.aten.relu.default"
    assert diagnosis.search.confirmed
    assert diagnosis.repro_run.outcome == "reproduced"


@pytest.mark.slow
def test_an_inductor_that_is_right_has_no_culprit():
    (case,) = capture_cases(load_program(str(EXAMPLE)), target="inductor")
    assert find_culprit(case).culprit is None
