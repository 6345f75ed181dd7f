"""A layer is named only if the plays that decide it give the same answers twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import answer_by
from ctk.toolkit.end_to_end.question import Compared, ProgramQuestion

FAILS = Judgement(Verdict.REPRODUCES, Signature("accuracy", output="call1.out0"))
PASSES = Judgement(Verdict.PASSES)
TARGET, DYNAMO, DISPATCH = "inductor", "eager", "aot_eager"


def answered(**plays: Sequence[Judgement]) -> tuple[EndToEnd, list[str]]:
    """Return the answer for scripted plays of each backend, and the backends in their order."""
    asked: list[str] = []

    def play(backend: str, config: object) -> Compared:
        asked.append(backend)
        answers = plays.get(backend, [PASSES])
        judgement = answers[min(asked.count(backend), len(answers)) - 1]
        return Compared(judgement, 1 if judgement.fails else 0, False)

    program = UserProgram(abs, (), {}, "program", Path(__file__))
    return answer_by(play, ProgramQuestion(program, TARGET)), asked


def test_a_program_that_passes_is_played_once() -> None:
    found, asked = answered()
    assert found.judgement is PASSES and asked == [TARGET]


@pytest.mark.parametrize(
    ("failing", "layer", "repeated"),
    [
        ([TARGET, DYNAMO, DISPATCH], "dynamo", [DYNAMO]),
        ([TARGET, DISPATCH], "dispatch", [DISPATCH, DYNAMO]),
        ([TARGET], "runtime", [TARGET, "aot_eager_decomp_partition"]),
    ],
)
def test_the_plays_that_decide_are_repeated(
    failing: list[str], layer: str, repeated: list[str]
) -> None:
    found, asked = answered(**{backend: [FAILS] for backend in failing})
    assert (found.layer, found.judgement.verdict) == (layer, Verdict.REPRODUCES)
    assert asked[-len(repeated) :] == repeated


def test_a_failure_that_does_not_come_again_is_flaky() -> None:
    found, _ = answered(inductor=[FAILS, PASSES])
    assert found.judgement.verdict is Verdict.FLAKY
    assert found.layer is None
    assert "played again, backend='inductor': as eager" in found.judgement.detail


def test_a_layer_below_that_fails_at_random_leaves_the_layer_unknown() -> None:
    found, _ = answered(inductor=[FAILS], aot_eager=[FAILS], eager=[PASSES, FAILS])
    assert found.judgement.verdict is Verdict.REPRODUCES
    assert (found.layer, found.where) == (None, "an unknown layer")
    assert "it fails at random" in found.evidence[-1]


def test_a_target_of_the_ladder_is_not_played_twice_before_it_is_repeated() -> None:
    program = UserProgram(abs, (), {}, "program", Path(__file__))
    asked: list[str] = []

    def play(backend: str, config: object) -> Compared:
        asked.append(backend)
        return Compared(FAILS if backend == DISPATCH else PASSES, 1, False)

    found = answer_by(play, ProgramQuestion(program, DISPATCH))
    assert found.layer == "dispatch"
    assert asked == [DISPATCH, DYNAMO, DISPATCH, DYNAMO]
