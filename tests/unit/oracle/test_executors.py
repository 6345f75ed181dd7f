"""The executors: the same answers in both, crashes and hangs as verdicts, no process left."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import ConfigError, TargetError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.scratch import scratch_root
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.project import ROOT
from tests.helpers.reduce_graphs import op_names, transformer
from tests.helpers.warm_python import warm_python

BACKENDS = "tests.helpers.oracle_backends"
SOURCE = ROOT / "tests" / "helpers" / "oracle_backends.py"
PROC = Path("/proc")


def case_for(backend: str, layers: int = 1) -> Case:
    return dataclasses.replace(
        transformer(layers, layers - 1), target=f"{BACKENDS}:{backend}", sources=(SOURCE,)
    )


@pytest.fixture(scope="module")
def child() -> Iterator[ChildProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python()))
        with ChildProcess(60) as executor:
            yield executor


@pytest.mark.parametrize("backend", ["right", "wrong_gelu", "talk"])
def test_both_executors_give_the_same_judgement(child: ChildProcess, backend: str):
    case = case_for(backend)
    with InProcess() as here:
        assert child.ask(Question(case)) == here.ask(Question(case))


def test_expected_decides_between_reproduces_and_different(child: ChildProcess):
    case = case_for("wrong_gelu")
    seen = child.ask(Question(case)).signature
    assert child.ask(Question(case, seen)).verdict is Verdict.REPRODUCES
    assert child.ask(Question(case, Signature("nan"))).verdict is Verdict.DIFFERENT


def test_a_signal_is_a_signature_and_the_next_question_works(child: ChildProcess):
    case = case_for("segfault")
    judgement = child.ask(Question(case))
    assert judgement.verdict is Verdict.REPRODUCES
    assert judgement.signature is not None
    assert judgement.signature.kind == "signal"
    assert judgement.signature.signal == signal.SIGSEGV
    assert "in segfault" in judgement.detail  # the Python frames of the crash
    assert (
        child.ask(Question(case, Signature("signal", signal=signal.SIGABRT))).verdict
        is Verdict.DIFFERENT
    )
    assert child.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_a_crash_of_the_running_program_is_seen_too(child: ChildProcess):
    judgement = child.ask(Question(case_for("crash_at_exit")))
    assert judgement.verdict is Verdict.REPRODUCES
    assert judgement.signature is not None and judgement.signature.signal == signal.SIGABRT


def test_a_program_that_crashes_in_eager_is_invalid(child: ChildProcess):
    from tests.helpers.oracle_backends import exploding

    graph = torch.fx.Graph()
    graph.output((graph.call_function(exploding, (graph.placeholder("x"),)),))
    gm = torch.fx.GraphModule({}, graph)
    case = Case(gm, (torch.ones(2),), target=f"{BACKENDS}:right", sources=(SOURCE,))
    assert child.ask(Question(case)).verdict is Verdict.INVALID


def test_a_process_that_leaves_is_a_failure(child: ChildProcess):
    judgement = child.ask(Question(case_for("leave")))
    assert judgement.verdict is Verdict.REPRODUCES
    assert judgement.signature is not None
    assert judgement.signature.kind == "compile-error"
    assert (judgement.signature.exception, judgement.signature.message) == ("SystemExit", "3")


def test_a_process_that_is_ended_without_an_exception_is_deadly(child: ChildProcess):
    judgement = child.ask(Question(case_for("end_the_process")))
    assert judgement.verdict is Verdict.REPRODUCES
    assert judgement.signature is not None and judgement.signature.is_deadly
    assert judgement.signature.kind == "exit" and "status 3" in judgement.signature.message


def test_errors_keep_their_type(child: ChildProcess):
    with pytest.raises(TargetError, match="no_such_backend"):
        child.ask(Question(case_for("no_such_backend")))
    case = dataclasses.replace(case_for("right"), target="inductor", config={"no_such_key": 1})
    with pytest.raises(ConfigError, match="no_such_key"):
        child.ask(Question(case))
    assert child.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_a_crash_is_minimized_in_children(child: ChildProcess):
    case = case_for("segfault", layers=3)
    expected = Signature("signal", signal=signal.SIGSEGV)
    result = minimize(Problem(case, lambda candidate: child.ask(Question(candidate, expected))))
    assert op_names(result.best) == ["gelu", "hardtanh"]
    assert result.questions <= 30


def test_a_planted_miscompile_is_minimized_in_process():
    case = case_for("wrong_gelu", layers=3)
    with InProcess() as here:
        expected = here.ask(Question(case)).signature
        result = minimize(Problem(case, lambda candidate: here.ask(Question(candidate, expected))))
    assert op_names(result.best) == ["gelu", "hardtanh"]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Mark the environment of every process that is started from here on."""
    value = f"test-{uuid.uuid4().hex}"
    monkeypatch.setenv("POOL_TEST", value)
    return value


@pytest.mark.skipif(not PROC.exists(), reason="looks at processes through /proc")
class TestProcesses:
    def test_a_hang_is_a_timeout_and_its_processes_are_gone(self, mark: str):
        before = children()
        case = case_for("hang")
        with ChildProcess(2.5) as executor:
            judgement = executor.ask(Question(case))
            assert judgement.verdict is Verdict.TIMEOUT
            assert executor.ask(Question(case, judgement.signature)).verdict is Verdict.REPRODUCES
            assert not sleepers(mark)
        assert children() <= before  # others may end meanwhile
        assert not marked(mark)

    @pytest.mark.usefixtures("warm_children")
    def test_more_memory_than_allowed_is_a_failure_of_its_own_kind(self, mark: str):
        executor = ChildProcess(60, memory_nbytes=3 << 29)
        with executor:
            judgement = executor.ask(Question(case_for("devour")))
            assert judgement.verdict is Verdict.REPRODUCES
            assert judgement.signature is not None
            assert judgement.signature.kind == "memory"
            assert judgement.signature.message == "more than 1.5G (--memory)"
            out_of_memory = Signature("runtime-error", "MemoryError")
            assert (
                executor.ask(Question(case_for("devour"), out_of_memory)).verdict
                is Verdict.DIFFERENT
            )
            assert executor.ask(Question(case_for("right"))).verdict is Verdict.PASSES

    @pytest.mark.usefixtures("warm_children")
    def test_what_the_system_kills_is_no_crash_of_the_program(self, mark: str):
        with ChildProcess(60) as executor:
            judgement = executor.ask(Question(case_for("killed_from_outside")))
        assert judgement.signature is not None
        assert judgement.signature.kind == "memory"
        assert "from outside" in judgement.signature.message

    @pytest.mark.usefixtures("warm_children")
    def test_a_daemon_does_not_survive_its_question(self, mark: str):
        with ChildProcess(60) as executor:
            assert executor.ask(Question(case_for("leave_a_daemon"))).verdict is Verdict.PASSES
            assert not sleepers(mark)
            assert executor.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        assert not marked(mark)

    @pytest.mark.usefixtures("warm_children")
    def test_what_a_child_leaves_in_the_temporary_folder_is_in_ours(self):
        with ChildProcess(60) as executor:
            executor.ask(Question(case_for("right")))
            assert not list(scratch_root().glob("ctk-question-*"))
            environment = Path(f"/proc/{executor._worker.pid}/environ").read_bytes()
        assert f"TMPDIR={scratch_root()}".encode() in environment.split(b"\0")

    @pytest.mark.usefixtures("warm_children")
    def test_closing_twice_is_fine_and_a_question_starts_a_new_worker(self):
        executor = ChildProcess(60)
        executor.close()
        assert executor.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        executor.close()
        executor.close()

    def test_ctrl_c_ends_the_worker_and_the_next_question_starts_another(self, mark: str):
        before = children()

        def press_ctrl_c() -> None:
            wait_until(lambda: sleepers(mark))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        with ChildProcess(60) as executor:
            finger = threading.Thread(target=press_ctrl_c)
            finger.start()
            with pytest.raises(KeyboardInterrupt):
                executor.ask(Question(case_for("hang")))
            finger.join()
            assert children() <= before  # others may end meanwhile
            assert not marked(mark)
            assert executor.ask(Question(case_for("right"))).verdict is Verdict.PASSES

    @pytest.mark.slow
    def test_nothing_survives_a_killed_parent(self, tmp_path: Path, mark: str):
        script = tmp_path / "parent.py"
        script.write_text(
            "from tests.unit.oracle.test_executors import BACKENDS, case_for\n"
            "from ctk.toolkit.oracle.executors.child import ChildProcess\n"
            "from ctk.toolkit.oracle.question import Question\n"
            "ChildProcess(600).ask(Question(case_for('hang')))\n"
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen([sys.executable, script], env=env) as parent:
            wait_until(lambda: sleepers(mark))
            parent.kill()
        wait_until(lambda: not marked(mark))


def children() -> set[int]:
    """Return the direct children of this process, zombies included."""
    tasks = PROC / "self" / "task"
    return {int(p) for t in tasks.iterdir() for p in (t / "children").read_text().split()}


def marked(mark: str) -> dict[int, str]:
    """Return the living processes that carry a mark, with their command lines."""
    found: dict[int, str] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().decode()
    return found


def sleepers(mark: str) -> list[int]:
    """Return the processes that `hang` started."""
    return [pid for pid, command in marked(mark).items() if "time.sleep(600)" in command]


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for something that will happen soon, or fail."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
