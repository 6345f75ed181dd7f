"""Run questions on the machines of a cluster, each in a child there.

A lost machine costs one answer: its question is asked again on another machine, and a new slot is
requested while the other members work on. A slot holds its resources between questions.

    --jobs 8 --executor ray --resources CPU=2,GPU=0.5
"""

import io
import json
import threading

from ctk.compiler.errors import ChildError, ConfigError, count_of
from ctk.compiler.options.environment import read_environment
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.isolation import ask_in_isolation
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs, Unavailable
from ctk.toolkit.oracle.executors.pool import Pool
from ctk.toolkit.oracle.executors.protocol import (
    Cancelled,
    ChildQuestion,
    Failure,
    error_of,
    read_answer,
)
from ctk.toolkit.oracle.executors.ray_cluster import Lost, Machine, Machines, SlotSize, connect
from ctk.toolkit.oracle.executors.remote_worker import pack, versions
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.memory import name_limit

DEFAULT_RESOURCES = {"CPU": 1.0}
"""Default resources of one question on the cluster."""


class RemoteExecutor(Executor):
    """Judges on a machine of a cluster, one question at a time."""

    isolates = True

    def __init__(self, machines: Machines, size: SlotSize) -> None:
        self._machines, self._size = machines, size
        self.limit_seconds = size.timeout_seconds
        self.memory = name_limit(size.memory_nbytes or read_environment().memory_nbytes, "theirs")
        self._machine: Machine | None = None
        self._is_checked = False
        self._cancelled = threading.Event()
        self._number = 0

    def is_ready(self, seconds: float) -> bool:
        """Wait up to `seconds` until a machine has a free slot; return whether one has."""
        try:
            return self._open_slot().is_ready(seconds)
        except Lost:
            self.close()
            return False

    def _open_slot(self) -> Machine:
        if self._machine is None:
            self._is_checked = False
            self._machine = self._machines.start(self._size)
        return self._machine

    def judge(self, question: Question) -> Judgement:
        """Judge a case on the machine of the slot.

        Raises:
            Unavailable: The machine was lost.
        """
        if self._cancelled.is_set():
            raise Cancelled
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
            self._check(self._open_slot())
            line = self._open_slot().call(
                "answer",
                self._number,
                words,
                pack(question.case),
                is_cancelled=self._cancelled.is_set,
            )
        except Lost as error:
            self.close()
            raise Unavailable(f"a machine of the cluster was lost: {error}") from error
        return _read_judgement(line)

    def _check(self, machine: Machine) -> None:
        """Check that a machine has the versions of this one, so that answers agree."""
        if self._is_checked:
            return
        theirs = machine.call("versions", is_cancelled=self._cancelled.is_set)
        if theirs != versions():
            raise ChildError(
                f"a machine of the cluster has {theirs}, and this one {versions()}: their answers "
                "need not agree\nnext: install the same on all of them"
            )
        self._is_checked = True

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, on this machine, each in a child."""
        return ask_in_isolation(question, self._size.timeout_seconds, self._size.memory_nbytes)

    def resume(self) -> None:
        self._cancelled.clear()

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        """Release the slot."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.close()


def _read_judgement(line: str) -> Judgement:
    answer = read_answer(io.BytesIO(line.encode() + b"\n"))
    assert answer is not None, "a whole line is an answer"
    if isinstance(answer, Failure):
        raise error_of(answer)
    return answer


def remote_pool(machines: Machines, needs: Needs) -> Pool:
    """Return a pool on a cluster.

    Args:
        needs: The jobs and their resources; 0 jobs: as many as fit.

    Raises:
        ConfigError: So many do not fit, or none fits.
    """
    resources = dict(needs.jobs.resources) or dict(DEFAULT_RESOURCES)
    rooms = machines.rooms(resources)
    wanted = ", ".join(f"{name}={amount:g}" for name, amount in resources.items())
    if rooms == 0 or needs.jobs.count > rooms:
        has = machines.describe()
        machines.close()
        raise ConfigError(
            f"the cluster has room for {count_of(rooms, 'question')} at once, each with {wanted}: "
            f"{has}\n"
            + (f"next: --jobs {rooms}, or smaller --resources" if rooms else "next: --resources")
        )
    size = SlotSize(resources, needs.timeout_seconds, needs.memory_nbytes)
    members = [RemoteExecutor(machines, size) for _ in range(needs.jobs.count or rooms)]
    return Pool(members, machines)


EXECUTOR = ExecutorKind(
    "ray",
    lambda needs: needs.jobs.executor == "ray",
    lambda needs: remote_pool(connect(), needs),
)
