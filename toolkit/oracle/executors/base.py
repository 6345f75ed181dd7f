"""The contract of an executor, and the choice of one by the needs of an operation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast, get_args

from ctk.compiler.errors import ConfigError, CtkError
from ctk.compiler.options.choices import ExecutorName
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.processes.closeable import Closeable


class Unavailable(CtkError):
    """The executor has ended without an answer; another member of its pool may answer."""


class Executor(Closeable, Protocol):
    """Runs questions; a context manager that ends its processes.

    Attributes:
        isolates: Whether this process survives a crash or a hang of the compiled program.
        limit_seconds: Time limit of a question; None: no limit.
        memory: The name of its memory limit, which is part of an answer: under another limit, a
            question may not run out of memory.
    """

    isolates: bool
    limit_seconds: float | None = None
    memory: str = ""

    @property
    def members(self) -> "tuple[Executor, ...]":
        """The executors that may be asked at the same time, in a thread each."""
        return (self,)

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Answer a question; an executor remembers no answer."""
        if known_only:
            raise NotKnown
        return self.judge(question)

    def judge(self, question: Question) -> Judgement:
        """Compile, run and judge a case.

        A question without a deadline may take `limit_seconds`. If its time is limited, the answer
        holds the time that it took.

        Raises:
            CtkError: The target, its options or the case are wrong, or no process can answer.
            Unavailable: This executor has ended; another member of its pool can be asked.
        """
        ...

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare the compiled calls of a whole program with its eager calls.

        Raises:
            CtkError: The target or its options are wrong, or no process can answer.
        """
        return ask(question)

    def is_ready(self, seconds: float) -> bool:
        """Wait up to `seconds` until it can answer; return whether it can."""
        return True

    def resume(self) -> None:
        """Accept questions again after `cancel`."""

    def cancel(self) -> None:
        """Cancel the running question of another thread, and later ones until `resume`.

        They raise `Cancelled`. An executor that cannot be stopped finishes the running question.
        """

    def close(self) -> None:
        """End every process that the executor started."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many questions may run at the same time, and where; see `make_jobs`.

    Attributes:
        count: Number of questions; 0: one per core.
        executor: `local`, or `ray`: on the machines of a Ray cluster.
    """

    count: int = 1
    executor: ExecutorName = "local"
    resources: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def keywords(self) -> dict[str, object]:
        """The fields without their defaults, as keywords of the library."""
        values = {"jobs": self.count, "executor": self.executor, "resources": dict(self.resources)}
        defaults = {"jobs": 1, "executor": "local", "resources": {}}
        return {name: value for name, value in values.items() if value != defaults[name]}


ONE_JOB = Jobs()


def make_jobs(jobs: object, executor: object, resources: Mapping[str, object] | None) -> Jobs:
    """Return the jobs for some arguments, after checking them.

    Raises:
        ConfigError: An argument is wrong.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 0:
        raise ConfigError(f"jobs is {jobs!r}; it must be a count, or 0 for one per core")
    if executor not in get_args(ExecutorName):
        names = ", ".join(get_args(ExecutorName))
        raise ConfigError(f"executor is {executor!r}; it must be one of {names}")
    if resources and executor == "local":
        raise ConfigError("resources are those of a cluster: they need executor 'ray'")
    amounts: dict[str, float] = {}
    for name, amount in (resources or {}).items():
        amounts[name] = _number(amount)
        if not 0 <= amounts[name] < math.inf:
            raise ConfigError(f"resource {name} is {amount!r}; it must be a number, such as 0.5")
    return Jobs(jobs, cast("ExecutorName", executor), amounts)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return value


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of the questions of one operation.

    Attributes:
        is_deadly: Whether a case records a crash or a hang.
    """

    isolate: bool | None = None
    timeout_seconds: float | None = None
    memory_nbytes: int | None = None
    is_deadly: bool = False
    jobs: Jobs = ONE_JOB


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """One way to run questions."""

    name: str
    serves: Callable[[Needs], bool]
    start: Callable[[Needs], Executor]
