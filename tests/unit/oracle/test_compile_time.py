"""The time of a compile by a fake clock: growth is a failure, proportion is none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.execution.execute import Outcome
from ctk.toolkit.execution.stack_samples import StackSamples
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions import compile_time
from ctk.toolkit.oracle.questions.compile_time import Stopwatch, Timed, judge_compile_time, part_of
from ctk.toolkit.oracle.slow_prefix import find_slow_prefix
from tests.helpers.repros import make_case

Seconds = Callable[[list[str]], float]
LIMIT = Signature("slow-compile", limit=5.0)


def chain(length: int) -> Case:
    """Return the case of a chain of so many calls, with one cosine in its second half."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for number in range(length):
            x = x.cos() if number == length - 2 else x.sin()
        return x

    return make_case(program, torch.ones(3), target="ctk")


def judge(case: Case, seconds: Seconds, monkeypatch: pytest.MonkeyPatch) -> Judgement:
    """Judge a case whose compile takes a time that its calls determine, and 1 s besides."""

    def time(self: Stopwatch, part: Case) -> Timed:
        calls = [str(node.target) for node in part.graph.graph.nodes if node.op in CALLS]
        is_empty = any("getitem" in call for call in calls)
        return Timed(1.0 + (0 if is_empty else seconds(calls)), CompileLog(), StackSamples())

    monkeypatch.setattr(compile_time.Stopwatch, "time", time)
    found = judge_compile_time(case, LIMIT, None)
    assert isinstance(found, Judgement)
    return found


GROWING: dict[str, Seconds] = {
    "doubles": lambda calls: 0.01 * 2 ** len(calls),
    "square": lambda calls: 0.1 * len(calls) ** 2,
    "one call": lambda calls: 0.01 * len(calls) + 30 * ("cos" in calls),
    "doubles in the second half": lambda calls: 0.1 * 3 ** len(calls) * ("cos" in calls),
}
HONEST: dict[str, Seconds] = {
    "proportion": lambda calls: 2.0 * len(calls),
    "n log n": lambda calls: len(calls) * (4 + len(calls)).bit_length(),
    "constant": lambda calls: 0.5,
    "below the limit": lambda calls: 0.0001 * 2 ** len(calls),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_time_that_grows_faster_than_its_graph_is_a_failure(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judge(chain(12), GROWING[name], monkeypatch)
    assert found.verdict is Verdict.REPRODUCES
    assert found.signature is not None
    assert (found.signature.kind, found.signature.limit) == ("slow-compile", 5.0)
    assert "s for 12 call nodes; " in found.detail


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_time_is_no_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(chain(12), HONEST[name], monkeypatch)
    assert (found.verdict, found.signature) == (Verdict.PASSES, None)


def test_the_figures_show_the_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(chain(12), GROWING["doubles"], monkeypatch)
    assert found.detail == (
        "41.96 s for 12 call nodes; its halves take 1.64 s and 1.64 s; 41.96 s for 12, 21.48 s "
        "for 11, 11.24 s for 10 calls: 2.0 times as long with each call"
    )
    found = judge(chain(12), HONEST["proportion"], monkeypatch)
    assert found.detail == (
        "the compile takes 25.00 s for 12 call nodes; its halves take 13.00 s and 13.00 s: in "
        "proportion to its size"
    )


def test_one_slow_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "x_11, x_12 alone" in judge(chain(13), GROWING["one call"], monkeypatch).detail


def test_a_slow_start_of_the_compiler_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def time(self: Stopwatch, part: Case) -> Timed:
        return Timed(9.0 + 0.1 * len(part.graph.graph.nodes), CompileLog(), StackSamples())

    monkeypatch.setattr(compile_time.Stopwatch, "time", time)
    found = judge_compile_time(chain(12), LIMIT, None)
    assert isinstance(found, Judgement)
    assert found.verdict is Verdict.PASSES
    assert "for an almost empty program" in found.detail


def test_a_part_computes_the_same_values() -> None:
    case = chain(8)
    names = [node.name for node in case.graph.graph.nodes if node.op in CALLS]
    first, second = part_of(case, names[:4]), part_of(case, names[4:])
    assert first is not None
    assert second is not None
    whole = case.graph(*case.inputs)
    assert torch.equal(second.graph(*first.graph(*case.inputs))[0], whole[0])
    assert torch.equal(second.graph(*second.inputs)[0], whole[0])


def test_an_error_of_the_compile_is_its_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Outcome(None, RuntimeError("no"), "compile")

    def time(self: Stopwatch, part: Case) -> Timed:
        return Timed(9.0, CompileLog(), StackSamples(), failed)

    monkeypatch.setattr(compile_time.Stopwatch, "time", time)
    assert judge_compile_time(chain(3), LIMIT, None) is failed


def test_a_compile_is_timed_without_caches() -> None:
    watch, case = Stopwatch(Veto()), chain(2)
    timed: Any = [watch.time(case) for _ in range(2)]
    assert all(each.seconds > 0 and each.error is None for each in timed)
    assert [str(each.id) for each in timed[0].log.passes()] == [
        str(each.id) for each in timed[1].log.passes()
    ]


def answers(seconds: Seconds, limit: float) -> Callable[[Question], Judgement]:
    """Return the answers of a child that a time limit ends, for a compile of so many seconds."""

    def ask(question: Question) -> Judgement:
        assert question.expected is not None
        taken = seconds([n.name for n in question.case.graph.graph.nodes if n.op in CALLS])
        if taken >= limit:
            return Judgement(Verdict.DIFFERENT, Signature("timeout"))
        if taken >= (question.expected.limit or 0.0):
            return Judgement(Verdict.REPRODUCES, question.expected, f"{taken:.1f} s")
        return Judgement(Verdict.PASSES)

    return ask


class Answers(InProcess):
    """An oracle with the answers of a function."""

    def __init__(self, ask: Callable[[Question], Judgement]) -> None:
        self._ask = ask

    def judge(self, question: Question) -> Judgement:
        return self._ask(question)


ENDED = Judgement(Verdict.REPRODUCES, Signature("timeout"))


def test_the_beginning_of_an_endless_compile_is_slow() -> None:
    oracle = Answers(answers(lambda calls: 0.001 * 2.0 ** len(calls), 40.0))
    found = find_slow_prefix(chain(40), ENDED, oracle, 40.0)
    assert found is not None
    assert found.name == "graph0_first15"
    assert found.signature is not None
    assert found.signature.message == "32.8 s; all 40 do not end"


@pytest.mark.parametrize("answer", [ENDED, Judgement(Verdict.PASSES)])
def test_a_hang_has_no_slow_beginning(answer: Judgement) -> None:
    oracle = Answers(answers(lambda calls: 1e9 * (len(calls) > 30), 40.0))
    assert find_slow_prefix(chain(40), answer, oracle, 40.0) is None
