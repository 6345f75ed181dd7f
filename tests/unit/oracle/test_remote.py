"""Questions on a cluster, over a fake of the thin layer: what is lost is asked again elsewhere."""

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from ctk.compiler.errors import ConfigError, CtkError, TargetError
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.executors import executor_for, ray_cluster
from ctk.toolkit.oracle.executors import remote as module
from ctk.toolkit.oracle.executors.base import Jobs, Needs, Unavailable
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.pool import Pool
from ctk.toolkit.oracle.executors.protocol import Cancelled
from ctk.toolkit.oracle.executors.ray_cluster import Lost, SlotSize
from ctk.toolkit.oracle.executors.remote import remote_pool
from ctk.toolkit.oracle.executors.remote_worker import RemoteWorker, pack, surroundings
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.speculation import speculating
from tests.helpers.warm_python import warm_python
from tests.unit.oracle.test_executors import case_for
from tests.unit.oracle.test_speculation import Asked, about


@dataclass
class Here:
    """A machine that is this process; it is lost with the calls whose numbers are in `fatal`."""

    far: RemoteWorker
    machines: "Machines"

    def is_ready(self, seconds: float) -> bool:
        return True

    def call(self, name: str, *arguments: object, is_cancelled: Callable[[], bool]) -> str:
        self.machines.calls.append(name)
        if name == "versions":
            return self.machines.versions or self.far.versions()
        number, self.machines.asked = self.machines.asked, self.machines.asked + 1
        if number in self.machines.fatal:
            raise Lost("NodeDiedError: gone")
        with self.machines.answering:  # all far sides share one child
            return self.far.answer(*arguments)  # pyright: ignore[reportArgumentType]

    def close(self) -> None:
        self.machines.closed += 1
        self.far.close()


@dataclass
class Machines:
    """A cluster with some rooms."""

    size: int = 2
    fatal: set[int] = field(default_factory=set)
    versions: str = ""
    asked: int = 0
    started: int = 0
    closed: int = 0
    is_closed: bool = False
    calls: list[str] = field(default_factory=list)
    answering: threading.Lock = field(default_factory=threading.Lock)

    def rooms(self, resources: Mapping[str, float]) -> int:
        return int(self.size / resources.get("CPU", 1))

    def describe(self) -> str:
        return f"CPU={self.size}"

    def start(self, size: SlotSize) -> Here:
        self.started += 1
        return Here(RemoteWorker(size.timeout_seconds, size.memory_nbytes), self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(scope="module")
def child():
    """One worker for all tests: each far side asks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python()))
        with ChildProcess(60) as executor:
            yield executor


@pytest.fixture(autouse=True)
def one_worker(child: ChildProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: RemoteWorker, *limits: object) -> None:
        child.resume()
        self._executor, self._number, self._cancelled = child, 0, 0
        self._changing = threading.Lock()

    monkeypatch.setattr(RemoteWorker, "__init__", init)
    monkeypatch.setattr(RemoteWorker, "close", lambda self: None)


def needs(jobs: int = 1, **resources: float) -> Needs:
    return Needs(timeout_seconds=60, jobs=Jobs(jobs, "ray", resources))


def test_a_question_gets_the_answer_of_this_machine(child: ChildProcess):
    machines = Machines()
    with remote_pool(machines, needs()) as pool:
        for backend in ("right", "wrong_gelu", "segfault"):
            case = case_for(backend)
            there, here = pool.ask(Question(case)), child.ask(Question(case))
            assert (there.verdict, there.signature) == (here.verdict, here.signature)
    assert machines.calls == ["versions", "answer", "answer", "answer"]
    assert machines.is_closed and machines.closed == machines.started == 1


def test_a_lost_machine_costs_one_answer():
    machines = Machines(fatal={1})
    with remote_pool(machines, needs()) as pool:
        assert pool.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        assert pool.ask(Question(case_for("wrong_gelu"))).verdict is Verdict.REPRODUCES
    assert machines.started == 2
    assert machines.asked == 3


def test_a_member_says_that_it_was_lost():
    with remote_pool(Machines(fatal={0}), needs()) as pool:
        with pytest.raises(Unavailable, match="NodeDiedError"):
            pool.members[0].ask(Question(case_for("right")))
        assert pool.members[0].ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_a_question_that_loses_every_machine_is_given_up():
    machines = Machines(fatal={0, 1, 2})
    with (
        remote_pool(machines, needs()) as pool,
        pytest.raises(CtkError, match=r"lost 3 times, and is given up; .*NodeDiedError"),
    ):
        pool.ask(Question(case_for("right")))


def test_questions_ahead_survive_a_lost_machine_as_well():
    cases = [case_for("right"), case_for("wrong_gelu"), case_for("segfault")]
    machines = Machines(fatal={0, 1})
    with (
        remote_pool(machines, needs(2)) as pool,
        speculating(pool, Asked, Digests()) as ahead,
    ):
        ahead.anticipate(about(cases))
        verdicts = [ahead.ask(Question(case)).verdict for case in cases]
    assert verdicts == [Verdict.PASSES, Verdict.REPRODUCES, Verdict.REPRODUCES]
    with (
        remote_pool(Machines(fatal=set(range(9))), needs(2)) as pool,
        speculating(pool, Asked, Digests()) as ahead,
        pytest.raises(CtkError, match="lost 3 times"),
    ):
        ahead.ask(Question(cases[0]))


def test_errors_keep_their_type_and_an_unwanted_question_ends():
    with remote_pool(Machines(), needs()) as pool:
        with pytest.raises(TargetError, match="no_such_backend"):
            pool.ask(Question(case_for("no_such_backend")))
        member = pool.members[0]
        member.cancel()
        with pytest.raises(Cancelled):
            member.ask(Question(case_for("right")))
        assert pool.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        assert member.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_a_question_that_was_unwanted_before_it_came_is_not_asked():
    far = RemoteWorker(None, None)
    far.cancel(2)
    assert '"kind": "Cancelled"' in far.answer(2, "{}", b"")


def test_another_version_is_refused():
    machines = Machines(versions="torch 1.0, ctk 0, Python 3.9")
    with (
        remote_pool(machines, needs()) as pool,
        pytest.raises(CtkError, match=r"torch 1\.0.* need not"),
    ):
        pool.ask(Question(case_for("right")))


def test_more_than_there_is_room_for_is_refused():
    machines = Machines(size=2)
    with pytest.raises(ConfigError, match="room for 2 questions at once, each with CPU=1: CPU=2"):
        remote_pool(machines, needs(3))
    assert machines.is_closed
    with pytest.raises(ConfigError, match="room for 0 questions"):
        remote_pool(Machines(), needs(1, CPU=4))
    assert len(remote_pool(Machines(), needs(0, CPU=0.5)).members) == 4


def test_where_nobody_has_room_it_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctk.toolkit.oracle.executors.pool.READY_SECONDS", 0.2)
    monkeypatch.setattr("ctk.toolkit.oracle.speculation.READY_SECONDS", 0.2)
    monkeypatch.setattr(Here, "is_ready", lambda self, seconds: False)
    with remote_pool(Machines(), needs(2)) as pool:
        with pytest.raises(CtkError, match="no machine of the cluster has had room"):
            pool.ask(Question(case_for("right")))
        with (
            speculating(pool, Asked, Digests()) as ahead,
            pytest.raises(CtkError, match="no machine of the cluster has had room"),
        ):
            ahead.ask(Question(case_for("right")))


def test_the_executor_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "connect", Machines)
    with executor_for([case_for("right")], jobs=Jobs(2, "ray")) as executor:
        assert isinstance(executor, Pool) and len(executor.members) == 2
    with pytest.raises(ConfigError, match="--executor works in a child process only"):
        executor_for([], isolate=False, jobs=Jobs(1, "ray"))


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ctk\[ray\]'"):
        ray_cluster.connect()


def test_a_case_travels_with_its_files_and_the_number_of_threads():
    data = pack(case_for("right"))
    assert b"inputs.safetensors" in data and b"def wrong_gelu" not in data
    assert int(surroundings()["OMP_NUM_THREADS"]) >= 1
    assert "CTK_OWNER" not in surroundings()
