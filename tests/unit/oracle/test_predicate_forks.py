"""Predicates in forks: the same answers, at the same time, and clear errors."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import fx

import ctk
from ctk.compiler.errors import ConfigError, CtkError, PredicateError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.executors.predicate_forks import PredicateForks
from ctk.toolkit.oracle.question import ParallelOracle, Question
from ctk.toolkit.processes.forks import ForkedChild
from ctk.toolkit.processes.groups import end_group
from ctk.toolkit.processes.tree import find_descendants
from tests.helpers.forking import FORKS
from tests.helpers.reduce_graphs import chain, has_ops, op_names
from tests.unit.oracle.test_executors import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes")


def others() -> list[int]:
    """Return what runs below this process: a warm interpreter, workers of torch's compiler."""
    return find_descendants(os.getpid())


def forks(others: list[int]) -> list[int]:
    """Return what runs below this process, less what others have started meanwhile."""
    return find_descendants(os.getpid(), spare=others)


def said(predicate):
    return lambda case: Judgement(Verdict.REPRODUCES if predicate(case) else Verdict.PASSES)


def test_a_fork_answers_and_what_it_changes_stays_there():
    seen: list[str] = []

    def ask(case: Case) -> Judgement:
        seen.append("asked")
        return Judgement(Verdict.REPRODUCES, detail=str(os.getpid()))

    with PredicateForks(ask, 2) as forked:
        assert isinstance(forked, ParallelOracle)
        answer = forked.ask(Question(chain(2, {})))
    assert answer.verdict is Verdict.REPRODUCES
    assert int(answer.detail) != os.getpid() and seen == []


def test_what_is_anticipated_runs_at_the_same_time(tmp_path: Path):
    cases = [chain(length, {}) for length in (2, 3, 4)]

    def ask(case: Case) -> Judgement:
        nodes = str(len(case.graph.graph.nodes))
        (tmp_path / nodes).touch()
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)  # the other one is there as well
        return Judgement(Verdict.PASSES, detail=nodes)

    with PredicateForks(ask, 2) as forked:
        forked.anticipate([Question(case) for case in cases[:2]])
        found = [forked.ask(Question(case)).detail for case in cases[:2]]
    assert found == ["4", "5"]


def test_an_unwanted_fork_leaves_its_place_and_closing_ends_all():
    quick, slow, other = (chain(length, {}) for length in (2, 3, 4))

    def ask(case: Case) -> Judgement:
        time.sleep(600 if case is slow else 0)
        return Judgement(Verdict.PASSES)

    before = others()
    with PredicateForks(ask, 2) as forked:
        forked.anticipate([Question(case) for case in [quick, slow]])
        assert forked.ask(Question(quick)).verdict is Verdict.PASSES
        forked.anticipate([Question(case) for case in [other, quick]])
        assert forked.ask(Question(other)).verdict is Verdict.PASSES
        assert forked.ask(Question(quick)).verdict is Verdict.PASSES
        forked.anticipate([Question(case) for case in [slow]])
    assert forks(before) == []


@FORKS
def test_a_process_that_does_not_lead_its_group_yet_is_ended_as_well():
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    assert end_group(pid) == -signal.SIGKILL


def test_an_exception_is_raised_here():
    def ask(case: Case) -> Judgement:
        raise KeyError("mine")

    with PredicateForks(ask, 2) as forked, pytest.raises(KeyError, match="mine"):
        forked.ask(Question(chain(2, {})))


def test_the_end_of_the_process_is_told_and_one_killed_from_outside_is_asked_again(
    tmp_path: Path,
):
    def ask(case: Case) -> Judgement:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError

    with (
        PredicateForks(ask, 2) as forked,
        pytest.raises(CtkError, match=r"ended its process \(signal 11\)"),
    ):
        forked.ask(Question(chain(2, {})))

    def killed_at_first(case: Case) -> Judgement:
        if not (tmp_path / "asked").exists():
            (tmp_path / "asked").touch()
            time.sleep(600)
        return Judgement(Verdict.PASSES)

    before = others()
    with PredicateForks(killed_at_first, 2) as forked:
        case = chain(2, {})
        forked.anticipate([Question(case) for case in [case]])
        wait_until((tmp_path / "asked").exists)
        (fork,) = forks(before)
        os.kill(fork, signal.SIGKILL)
        assert forked.ask(Question(case)).verdict is Verdict.PASSES


def test_ctrl_c_ends_the_forks():
    def ask(case: Case) -> Judgement:
        time.sleep(600)
        raise AssertionError

    before = others()

    def press_ctrl_c() -> None:
        wait_until(lambda: len(forks(before)) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    cases = [chain(2, {}), chain(3, {})]
    with PredicateForks(ask, 2) as forked:
        finger = threading.Thread(target=press_ctrl_c)
        finger.start()
        with pytest.raises(KeyboardInterrupt):  # it may come as soon as both forks run
            forked.anticipate([Question(case) for case in cases])
            forked.ask(Question(cases[0]))
        finger.join()
    assert forks(before) == []


def test_ctrl_c_right_after_a_fork_ends_it(monkeypatch: pytest.MonkeyPatch):
    start = ForkedChild.start

    def interrupted(serve):
        child = start(serve)
        signal.raise_signal(signal.SIGINT)
        return child

    monkeypatch.setattr(ForkedChild, "start", interrupted)
    before = others()
    with pytest.raises(KeyboardInterrupt), PredicateForks(lambda _: time.sleep(600), 2) as forked:
        forked.anticipate([Question(chain(2, {}))])
    assert forks(before) == []


def test_a_predicate_can_terminate_a_process_of_its_own():
    def terminates(case: Case) -> Judgement:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join(20)
        is_alive = process.exitcode is None
        process.kill()
        return Judgement(Verdict.PASSES if is_alive else Verdict.REPRODUCES)

    with PredicateForks(terminates, 2) as forked:
        assert forked.ask(Question(chain(2, {}))).verdict is Verdict.REPRODUCES


def test_cuda_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="CUDA is in use"):
        PredicateForks(said(has_ops("sin")), 2)


def program(x: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(torch.tanh(x) * 2).sin()
    return torch.relu(torch.cos(y) + 1).exp()


def test_minimize_gives_the_same_with_two_jobs():
    def fails(gm: fx.GraphModule, inputs: tuple[object, ...]) -> bool:
        names = {getattr(node.target, "__name__", node.target) for node in gm.graph.nodes}
        return {"tanh", "cos"} <= names

    given = fx.symbolic_trace(program), [torch.randn(3)], fails
    one, two = ctk.minimize(*given), ctk.minimize(*given, jobs=2)
    assert op_names(two.best) == op_names(one.best)
    assert two.graph.code == one.graph.code
    assert (two.questions, two.finished) == (one.questions, True)


def test_minimize_with_two_jobs_raises_what_the_predicate_raises():
    def fails(gm: fx.GraphModule, inputs: tuple[object, ...]) -> bool:
        if len(gm.graph.nodes) < 5:
            raise ValueError("too small")
        return True

    with pytest.raises(PredicateError, match="ValueError: too small"):
        ctk.minimize(fx.symbolic_trace(program), [torch.randn(3)], fails, jobs=2)


def test_jobs_that_are_no_count_are_refused():
    with pytest.raises(ConfigError, match="jobs is -2"):
        ctk.minimize(fx.symbolic_trace(program), [torch.randn(3)], lambda *_: True, jobs=-2)
