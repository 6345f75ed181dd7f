"""Run questions on the machines of a cluster; each of them in a child there, as it would be here.

A machine that is lost costs one answer: its question is asked again elsewhere, and its room is
looked for anew, for as long as the others work on. Resources are held by a room, not by a question.

    --jobs 8 --executor ray --resources CPU=2,GPU=0.5
"""

import io
import json
import threading
from dataclasses import dataclass

from ctk.compiler.errors import ConfigError, CtkError
from ctk.compiler.options.environment import read_environment
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.apart import ask_apart
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs, Unavailable
from ctk.toolkit.oracle.executors.pool import Pool
from ctk.toolkit.oracle.executors.protocol import (
    ChildQuestion,
    Failure,
    Unwanted,
    error_of,
    read_answer,
)
from ctk.toolkit.oracle.executors.ray_cluster import Lost, Machine, Machines, connect
from ctk.toolkit.oracle.executors.remote_worker import pack, versions
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.memory import name_limit

USUAL = {"CPU": 1.0}
"""What one question takes of the cluster, unless `--resources` says otherwise."""


@dataclass(frozen=True, slots=True)
class _Size:
    """What is the same for each question."""

    resources: dict[str, float]
    timeout_seconds: float | None
    memory_nbytes: int | None


class RemoteExecutor(Executor):
    """Judges on a machine of a cluster, one question at a time.

    Args:
        machines: The cluster.
        size: What a question takes.
    """

    isolates = True

    def __init__(self, machines: Machines, size: _Size) -> None:
        self._machines, self._size = machines, size
        self.limit_seconds = size.timeout_seconds
        self.memory = name_limit(size.memory_nbytes or read_environment().memory_nbytes, "theirs")
        self._machine: Machine | None = None
        self._is_checked = False
        self._unwanted = threading.Event()
        self._number = 0

    def is_ready(self, seconds: float) -> bool:
        """Wait up to so long until a machine has room."""
        try:
            return self._room().is_ready(seconds)
        except Lost:
            self.close()
            return False

    def _room(self) -> Machine:
        if self._machine is None:
            self._is_checked = False
            self._machine = self._machines.start(
                self._size.resources,
                timeout_seconds=self._size.timeout_seconds,
                memory_nbytes=self._size.memory_nbytes,
            )
        return self._machine

    def judge(self, question: Question) -> Judgement:
        """Judge a case on the machine that has room for it.

        Raises:
            Unavailable: It was lost.
        """
        if self._unwanted.is_set():
            raise Unwanted
        sent = ChildQuestion(
            question.case.target,
            "",
            question.expected,
            timeout_seconds=question.deadline_seconds,
            veto=question.veto,
        )
        words = json.dumps(encode(sent))
        self._number += 1
        try:
            self._check(self._room())
            found = self._room().call(
                "answer",
                self._number,
                words,
                pack(question.case),
                is_unwanted=self._unwanted.is_set,
            )
        except Lost as error:
            self.close()
            raise Unavailable(f"a machine of the cluster was lost: {error}") from error
        return _judgement(found)

    def _check(self, machine: Machine) -> None:
        """Make sure that answers from there are those that this machine would give.

        Raises:
            CtkError: Something else is installed there.
        """
        if self._is_checked:
            return
        theirs = machine.call("versions", is_unwanted=self._unwanted.is_set)
        if theirs != versions():
            raise CtkError(
                f"a machine of the cluster has {theirs}, and this one {versions()}: their answers "
                "need not agree\nnext: install the same on all of them"
            )
        self._is_checked = True

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, on this machine, each in a child."""
        return ask_apart(question, self._size.timeout_seconds, self._size.memory_nbytes)

    def want(self) -> None:
        """From now on answers are wanted."""
        self._unwanted.clear()

    def unwant(self) -> None:
        """End the question that another thread asks here."""
        self._unwanted.set()

    def close(self) -> None:
        """Give the room back."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.close()


def _judgement(found: str) -> Judgement:
    answer = read_answer(io.BytesIO(found.encode() + b"\n"))
    assert answer is not None, "a whole line is an answer"
    if isinstance(answer, Failure):
        raise Unwanted if answer.kind == Unwanted.__name__ else error_of(answer)
    return answer


def remote_pool(machines: Machines, needs: Needs) -> Pool:
    """Return a pool on a cluster.

    Args:
        machines: The cluster; closed with the pool.
        needs: How many jobs, and what one takes; 0 jobs: as many as there is room for.

    Raises:
        ConfigError: There is no room for so many, or for any.
    """
    resources = dict(needs.jobs.resources) or dict(USUAL)
    rooms = machines.rooms(resources)
    wanted = ", ".join(f"{name}={amount:g}" for name, amount in resources.items())
    if rooms == 0 or needs.jobs.count > rooms:
        has = machines.describe()
        machines.close()
        raise ConfigError(
            f"the cluster has room for {rooms} questions at once that take {wanted} each: {has}\n"
            + (f"next: --jobs {rooms}, or smaller --resources" if rooms else "next: --resources")
        )
    size = _Size(resources, needs.timeout_seconds, needs.memory_nbytes)
    members = [RemoteExecutor(machines, size) for _ in range(needs.jobs.count or rooms)]
    return Pool(members, machines)


EXECUTOR = ExecutorKind(
    "ray",
    lambda needs: needs.jobs.executor == "ray",
    lambda needs: remote_pool(connect(), needs),
)
