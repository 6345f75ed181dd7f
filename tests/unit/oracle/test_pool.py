"""Several children of one warm process: what is killed is asked again, and nothing is left."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctk.compiler.errors import ConfigError, CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.base import Executor, Jobs, make_jobs
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.pool import Pool, count_cores
from ctk.toolkit.oracle.executors.protocol import Cancelled
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.same_failure import SameFailure
from ctk.toolkit.oracle.speculation import speculating
from ctk.toolkit.processes.tree import find_descendants
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.warm_python import warm_python
from tests.unit.oracle.test_executors import case_for, marked, sleepers, wait_until
from tests.unit.oracle.test_speculation import Asked, about

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python()))
        with executor_for([case_for("right")], jobs=Jobs(2)) as executor:
            assert isinstance(executor, Pool)
            yield executor


def members(pool: Pool) -> list[ChildProcess]:
    return [member for member in pool.members if isinstance(member, ChildProcess)]


def test_the_members_are_of_one_warm_process_and_answer_as_one_alone(pool: Pool):
    case = case_for("wrong_gelu")
    first, second = (member.ask(Question(case)) for member in pool.members)
    assert first == second
    assert first.verdict is Verdict.REPRODUCES
    one, other = (member._worker for member in members(pool))
    assert one is not None and other is not None and one.pid != other.pid
    parents = {Path(f"/proc/{each.pid}/stat").read_text().split()[3] for each in (one, other)}
    assert len(parents) == 1


def test_crashes_are_verdicts_of_their_member(pool: Pool):
    for member in pool.members:
        seen = member.ask(Question(case_for("segfault"))).signature
        assert seen is not None and seen.signal == signal.SIGSEGV
    assert pool.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_an_unwanted_question_ends_and_its_worker_goes_on():
    with executor_for([case_for("right")], jobs=Jobs(2)) as executor:
        member = members(executor)[0]
        raised = in_thread(lambda: member.ask(Question(case_for("hang"))))
        wait_until(lambda: member._worker is not None and find_descendants(member._worker.pid))
        time.sleep(0.3)
        member.cancel()
        assert isinstance(raised(), Cancelled)
        with pytest.raises(Cancelled):
            member.ask(Question(case_for("right")))
        worker = member._worker
        member.resume()
        assert member.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        assert member._worker is worker


def test_a_worker_that_is_killed_in_the_middle_is_replaced(pool: Pool):
    member = members(pool)[0]
    member.ask(Question(case_for("right")))
    answer = in_thread(lambda: member.ask(Question(case_for("slow_wrong_gelu"))))
    first = member._worker
    assert first is not None
    wait_until(lambda: first._is_asked)
    os.kill(first.pid, signal.SIGKILL)
    found = answer()
    assert isinstance(found, Judgement) and found.verdict is Verdict.REPRODUCES
    assert member._worker is not None and member._worker.pid != first.pid


def test_a_child_that_is_killed_in_the_middle_is_asked_again(pool: Pool):
    member = members(pool)[0]
    member.ask(Question(case_for("right")))
    worker = member._worker
    assert worker is not None
    answer = in_thread(lambda: member.ask(Question(case_for("slow_wrong_gelu"))))
    wait_until(lambda: worker._is_asked and find_descendants(worker.pid))
    for child in find_descendants(worker.pid):
        os.kill(child, signal.SIGKILL)
    found = answer()
    assert isinstance(found, Judgement) and found.verdict is Verdict.REPRODUCES
    assert member._worker is worker


def test_a_warm_process_that_is_killed_is_started_again(pool: Pool):
    for member in pool.members:
        member.ask(Question(case_for("right")))
        member.close()
    nursery = pool._shared
    os.kill(nursery._process.pid, signal.SIGKILL)
    for member in pool.members:
        assert member.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_workers_that_are_killed_again_and_again_are_told(monkeypatch: pytest.MonkeyPatch):
    executor = ChildProcess(60)
    monkeypatch.setattr(sys, "executable", str(warm_python()))
    monkeypatch.setattr(executor, "_ask_worker", lambda worker, question: None)
    with executor, pytest.raises(CtkError, match="3 times in a row: something kills it"):
        executor.ask(Question(case_for("right")))


def test_who_is_killed_in_company_is_asked_again_alone(pool: Pool):
    seen = pool.ask(Question(case_for("killed_from_outside"))).signature
    assert seen is not None and seen.kind == "memory"
    assert pool.ask(Question(case_for("right"))).verdict is Verdict.PASSES


@pytest.mark.usefixtures("warm_children")
def test_nothing_is_left_after_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POOL_TEST", mark := f"ahead-{os.getpid()}")
    cases = [case_for("hang"), case_for("hang", 2)]

    def press_ctrl_c() -> None:
        wait_until(lambda: len(sleepers(mark)) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with (
        executor_for(cases, jobs=Jobs(2)) as executor,
        speculating(executor, Asked, Digests()) as ahead,
    ):
        finger = threading.Thread(target=press_ctrl_c)
        finger.start()
        ahead.anticipate(about(cases))
        with pytest.raises(KeyboardInterrupt):
            ahead.ask(Question(cases[0]))
        finger.join()
    wait_until(lambda: not marked(mark))


def test_many_jobs_need_children():
    with pytest.raises(ConfigError, match="--jobs works in a child process only"):
        executor_for([], isolate=False, jobs=Jobs(2))
    with executor_for([], jobs=Jobs(0)) as executor:
        assert len(executor.members) == count_cores()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((-1, "local", None), "jobs is -1"),
        ((True, "local", None), "jobs is True"),
        ((2, "cloud", None), "executor is 'cloud'; it must be one of local, ray"),
        ((2, "local", {"CPU": 1}), "need executor 'ray'"),
        ((2, "ray", {"CPU": "x"}), "resource CPU is 'x'"),
        ((2, "ray", {"GPU": -1}), "resource GPU is -1"),
    ],
)
def test_words_that_make_no_sense(words, said: str):
    with pytest.raises(ConfigError, match=said):
        make_jobs(*words)


def test_what_is_not_usual_is_told():
    assert Jobs().keywords == {}
    assert Jobs(2, "ray", {"CPU": 1}).keywords == {
        "jobs": 2,
        "executor": "ray",
        "resources": {"CPU": 1},
    }


def test_one_question_after_questions_ahead_is_answered(pool: Pool):
    case = case_for("slow_wrong_gelu")
    with speculating(pool, Asked, Digests()) as ahead:
        ahead.anticipate(about([case]))
    assert pool.ask(Question(case)).verdict is Verdict.REPRODUCES


def reduced(executor: Executor) -> tuple[str, int, list[str], bool]:
    case = case_for("wrong_gelu", layers=2)
    case = replace(case, signature=executor.ask(Question(case)).signature)
    verdicts: list[str] = []
    with speculating(executor, lambda member: SameFailure(case, member), Digests()) as oracle:
        problem = Problem(case, oracle)
        problem.on_progress = lambda progress: verdicts.append(progress.verdict.value)
        found = minimize(problem)
    return found.graph.code, found.questions, verdicts, found.finished


@pytest.mark.slow
def test_two_jobs_reduce_as_one_does_even_if_workers_are_killed(pool: Pool):
    is_done = threading.Event()

    def kill_workers() -> None:
        killed = 0
        while killed < 3 and not is_done.wait(1.0):  # one question survives three
            worker = members(pool)[1]._worker
            for child in find_descendants(worker.pid)[:1] if worker is not None else ():
                os.kill(child, signal.SIGKILL)
                killed += 1

    one = reduced(pool.members[0])
    killer = threading.Thread(target=kill_workers)
    killer.start()
    two = reduced(pool)
    is_done.set()
    killer.join()
    assert two == one
    assert one[3]


def test_a_crash_that_is_looked_for_is_found_by_each(pool: Pool):
    wanted = Signature("signal", signal=signal.SIGSEGV)
    for member in pool.members:
        member.resume()  # the end of questions ahead has told it the opposite
        assert member.ask(Question(case_for("segfault"), wanted)).verdict is Verdict.REPRODUCES


def in_thread(call):
    """Call something in a thread; return what waits for its result, or what it raised."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> object:
        thread.join(60)
        return found[0]

    return result
