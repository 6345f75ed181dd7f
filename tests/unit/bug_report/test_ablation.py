"""The table of backends and their parts, asked of an oracle that follows a rule."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from ctk.compiler.errors import TargetError
from ctk.toolkit.bug_report.ablation import NOT_ASKED, Ablation, Ablations
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.question import Question
from tests.helpers.repros import make_case

SIGNATURE = Signature("accuracy", output="out0")
PASSES, FAILS = Judgement(Verdict.PASSES), Judgement(Verdict.REPRODUCES, SIGNATURE)


@dataclass
class RuleOracle:
    """Answers by a function."""

    rule: Callable[[Question], Judgement]

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        return self.rule(question)


def case_for(target: str, **changes: object) -> Case:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target=target)
    return replace(case, signature=SIGNATURE, **changes)  # type: ignore[arg-type]  # fields by name


def ablate(
    case: Case, rule: Callable[[Question], Judgement], *, culprit: str = "", seconds: float = 60
) -> Ablation:
    end = time.monotonic() + seconds
    return Ablations(case, RuleOracle(rule), lambda _: None, end, culprit).run()


def leaves_out(question: Question, name: str) -> bool:
    return question.veto is not None and name in question.veto.passes


def test_the_first_backend_and_its_part_are_named() -> None:
    def rule(question: Question) -> Judgement:
        is_hit = question.case.target == "inductor" and not leaves_out(question, "joint/*")
        return FAILS if is_hit else PASSES

    found = ablate(case_for("inductor"), rule)
    assert (found.backend, found.subsystem) == ("inductor", "joint_graph_passes")
    backends = [row.backend for row in found.rows if not row.without]
    assert backends[:3] == ["eager", "aot_eager", "aot_eager_decomp_partition"]
    assert backends[-1] == "inductor"
    assert found.result("joint/fold").startswith(
        "BisectionResult(backend='inductor', subsystem='joint_graph_passes', bisect_number=None"
    )


def test_the_options_are_those_of_torchs_table() -> None:
    asked: list[dict[str, object]] = []

    def rule(question: Question) -> Judgement:
        asked.append(dict(question.case.config))
        return FAILS if question.case.target == "inductor" else PASSES

    found = ablate(case_for("inductor"), rule)
    assert found.subsystem is None
    assert {"emulate_precision_casts": True} in asked
    assert {"fallback_random": True} not in asked  # the target has it already


def test_a_lower_backend_ends_the_ladder() -> None:
    found = ablate(
        case_for("inductor"), lambda q: FAILS if q.case.target == "aot_eager" else PASSES
    )
    assert found.backend == "aot_eager"
    assert "lowerings" not in {row.without for row in found.rows}


def test_of_several_parts_the_one_of_the_culprit_counts() -> None:
    def rule(question: Question) -> Judgement:
        if question.case.target != "inductor" or leaves_out(question, "lowered/lower.*"):
            return PASSES
        return PASSES if leaves_out(question, "dispatch/decompose.*") else FAILS

    case = case_for("inductor")
    assert ablate(case, rule).subsystem == "decomposition"
    assert ablate(case, rule, culprit="lowered/lower.aten.sin").subsystem == "lowerings"


def test_the_partition_is_asked_about_in_training_only() -> None:
    names = [
        {row.without for row in ablate(case_for("inductor", modes=modes), lambda q: FAILS).rows}
        for modes in (Modes(), Modes(backward=True))
    ]
    assert "partition" not in names[0]
    found = ablate(
        case_for("inductor", modes=Modes(backward=True)),
        lambda q: FAILS if q.case.target == "inductor" else PASSES,
    )
    assert "partition" in {row.without for row in found.rows}


def test_a_backend_of_the_user_is_named_without_its_folder() -> None:
    target = "/somewhere/else/my.py:fancy"
    found = ablate(case_for(target), lambda q: FAILS if q.case.target == target else PASSES)
    assert found.backend == "my.py:fancy"


def test_a_backend_that_cannot_be_asked_is_a_row() -> None:
    def rule(question: Question) -> Judgement:
        if question.case.target == "aot_eager":
            raise TargetError("no such backend\nnext: install it")
        return FAILS if question.case.target == "inductor" else PASSES

    rows = ablate(case_for("inductor"), rule).rows
    assert rows[1].answer == "cannot tell: no such backend"


def test_without_time_nothing_is_asked() -> None:
    found = ablate(case_for("inductor"), lambda _: pytest.fail("asked"), seconds=-1)
    assert {row.answer for row in found.rows} == {NOT_ASKED}
    assert found.result("x") == "no backend fails in the same way"


def test_a_backend_that_cannot_be_imported_is_a_row() -> None:
    def rule(question: Question) -> Judgement:
        if question.case.target == "aot_eager":
            raise ImportError("no module named functorch")
        return FAILS if question.case.target == "inductor" else PASSES

    found = ablate(case_for("inductor"), rule)
    assert found.backend == "inductor"
    (row,) = (row for row in found.rows if row.backend == "aot_eager")
    assert row.answer == "cannot tell: no module named functorch"
