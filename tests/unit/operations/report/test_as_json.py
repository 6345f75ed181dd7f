"""diagnosis.json: whole at each step, read back as it was written, and told to people alike."""

import dataclasses
import json
from pathlib import Path

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.bisect.culprit import Culprit, OptionEffect, Search
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.operations.report.as_json import FILE, read_json, record_of, write_json
from ctk.toolkit.operations.report.as_text import summary
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.repro.run import ReproRun
from tests.helpers.case_folders import linear_case

CULPRIT = Culprit(
    "joint",
    "negate_relu",
    Veto(rewrites=frozenset({3})),
    rewrite=3,
    index=1,
    rule="relu -> neg",
    rewrites_in_pass=2,
    nodes=("relu_1",),
    captured=("relu",),
    evidence="max abs 2",
)
SEARCH = Search(
    Judgement(Verdict.REPRODUCES, Signature("accuracy", output="out0", message="max abs 2")),
    CULPRIT,
    confirmed=True,
    found_by="check",
    compiles=3,
    also=(dataclasses.replace(CULPRIT, name="cse", rewrite=None),),
    options=(
        OptionEffect("custom_passes", None, Verdict.PASSES),
        OptionEffect("codegen", "eager", Verdict.DIFFERENT),
    ),
    excluded=("generated code",),
)


def stages(folder: Path) -> list[Diagnosis]:
    """A diagnosis after each of its steps."""
    case = linear_case()
    first = Diagnosis(case, SEARCH, 1.0, state="bisected")
    reducing = dataclasses.replace(first, state="reducing", best=case)
    reduction = Reduction(case, True, "minimal", 7, 0, 1.0, {}, 5, 1)
    finished = dataclasses.replace(
        reducing,
        state="finished",
        reduction=reduction,
        minimal_search=SEARCH,
        repro=folder / "minimal" / "repro.py",
        repro_run=ReproRun(1, "", "reproduced"),
    )
    passes = Diagnosis(case, Search(Judgement(Verdict.PASSES)), 0.5)
    return [first, reducing, finished, passes]


@pytest.mark.parametrize("step", range(4), ids=["bisected", "reducing", "finished", "passes"])
def test_each_step_is_a_whole_document(step: int, tmp_path: Path) -> None:
    diagnosis = stages(tmp_path)[step]
    write_json(diagnosis, tmp_path)
    record = read_json(tmp_path)
    assert record == record_of(dataclasses.replace(diagnosis, folder=tmp_path))
    assert record.state == diagnosis.state
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_people_read_the_same_of_a_file_as_of_the_live_diagnosis(tmp_path: Path) -> None:
    finished = stages(tmp_path)[2]
    write_json(finished, tmp_path)
    lines = summary(read_json(tmp_path), tmp_path)
    calls = [node.name for node in linear_case().graph.graph.nodes if node.op.startswith("call")]
    assert lines == [
        "graph0 with target ctk fails because of joint/negate_relu and joint/cse (confirmed)",
        "failure    accuracy at out0: max abs 2",
        "meaning    the compiled result is wrong: its error (against float64; without such a run, "
        "against eager) is beyond the tolerance and ten times eager's own error",
        "pass       joint/negate_relu",
        "stage      the passes over forward and backward together",
        "rewrite    number 3 of the compile (1 of 2 in this pass): relu -> neg",
        "nodes      relu_1",
        "from       relu of the captured graph",
        "evidence   max abs 2",
        "proof      without it alone the case passes (found by check)",
        "also       joint/cse, at relu_1",
        "option     it passes without --config custom_passes",
        "option     it fails in another way with --config codegen=eager",
        "excluded   generated code",
        f"minimal    1 -> 1 call node: {', '.join(calls)}",
        f"repro      {tmp_path}/minimal/repro.py (reproduced, exit code 1)",
        "cost       3 compiles, 7 questions, 1.0 s",
        f"next       python {tmp_path}/minimal/repro.py  # shows it again",
        "next       with CTK_DISABLE=joint/negate_relu,joint/cse in its environment a "
        "program does without those passes",
    ]


@pytest.mark.parametrize("nodes", [("tanh",), ()])
def test_a_kernel_says_its_nodes_itself_where_it_can(nodes: tuple[str, ...]) -> None:
    kernel = Culprit(
        "lowered", "per_node:forward.tanh", Veto(kernels=frozenset({"k"})), nodes=nodes
    )
    search = dataclasses.replace(SEARCH, culprit=kernel)
    case = linear_case()
    record = record_of(Diagnosis(case, search, 1.0, state="reducing", best=case))
    assert record.culprit is not None and record.minimal is not None
    assert record.culprit.nodes == (nodes or record.minimal.nodes)


def test_an_unfinished_one_says_so(tmp_path: Path) -> None:
    first, reducing, *_ = (record_of(each) for each in stages(tmp_path))
    assert "state      bisected: it goes on, or was ended before it was done" in summary(
        first, tmp_path
    )
    assert any("(not yet done)" in line for line in summary(reducing, tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "passed"}, r"\$\.verdict: expected .*'passes'.*; did you mean 'passes'"),
        ({"confrmed": True}, r"\$: unknown key 'confrmed'; did you mean 'confirmed'\?; allowed: "),
        ({"minimal": {"nodes": []}}, r"\$\.minimal: 'finished' is missing"),
        ({"culprit": {"pass": 3}}, r"\$\.culprit.*and \d+ more mistakes"),
    ],
)
def test_a_damaged_file_says_where_and_what_is_allowed(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write_json(stages(tmp_path)[0], tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CaseError, match=rf"diagnosis\.json: .*{message}.*run ctk diagnose again"):
        read_json(tmp_path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "a newer ctk (schema 3, this ctk reads up to 2): upgrade: pip install --upgrade ctk"),
        (1, "an older ctk (schema 1, this ctk reads 2): make it again with this ctk"),
    ],
)
def test_a_file_of_another_ctk_is_not_called_damaged(
    schema: int, message: str, tmp_path: Path
) -> None:
    path = write_json(stages(tmp_path)[0], tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    with pytest.raises(CaseError) as caught:
        read_json(tmp_path)
    assert str(caught.value) == f"diagnosis.json in {tmp_path}: written by {message}"
