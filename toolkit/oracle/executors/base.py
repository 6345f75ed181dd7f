"""The contract of an executor: who runs a question, and when it is the right one."""

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
    """Who was asked has ended without an answer; another one may have it."""


class Executor(Closeable, Protocol):
    """Runs questions; a context manager that ends what it started.

    Attributes:
        isolates: Whether a crash or a hang of the compiled program leaves this process alone.
        limit_seconds: Longest that it waits for an answer; None: as long as that takes.
        memory: Names what a question may hold: that another amount was too little says nothing.
    """

    isolates: bool
    limit_seconds: float | None = None
    memory: str = ""

    @property
    def members(self) -> "tuple[Executor, ...]":
        """Who may be asked at the same time, in a thread each; one executor is alone."""
        return (self,)

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Answer a question; an executor remembers no answer."""
        if known_only:
            raise NotKnown
        return self.judge(question)

    def judge(self, question: Question) -> Judgement:
        """Compile, run and judge a case.

        A question without a deadline may take `limit_seconds`. Where its time is limited, the
        answer holds the time that it took.

        Raises:
            CtkError: The target, its options or the case are wrong, or nobody can answer.
            Unavailable: Who was asked has ended; another member of a pool can be asked.
        """
        ...

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare the compiled calls of a whole program with its eager calls.

        Raises:
            CtkError: The target or its options are wrong, or nobody can answer.
        """
        return ask(question)

    def is_ready(self, seconds: float) -> bool:
        """Wait up to so long until it can answer; who starts with a question always can."""
        return True

    def want(self) -> None:
        """From now on answers are wanted (again)."""

    def unwant(self) -> None:
        """Let the question that another thread asks here, if it does, raise `Unwanted` soon.

        So do later ones, until `want`. Who cannot be stopped is let finish.
        """

    def close(self) -> None:
        """End every process that the executor started."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many questions may be asked at the same time, and where; see `jobs_of`.

    Attributes:
        count: How many; 0: one per core.
        executor: `local`, or `ray`: on the machines of a Ray cluster.
        resources: What one question takes of the cluster, by name.
    """

    count: int = 1
    executor: ExecutorName = "local"
    resources: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def told(self) -> dict[str, object]:
        """What is not the default, as the keywords of the library."""
        told = {"jobs": self.count, "executor": self.executor, "resources": dict(self.resources)}
        usual = {"jobs": 1, "executor": "local", "resources": {}}
        return {name: value for name, value in told.items() if value != usual[name]}


ONE_JOB = Jobs()


def jobs_of(jobs: object, executor: object, resources: Mapping[str, object] | None) -> Jobs:
    """Return what a caller's words make.

    Raises:
        ConfigError: They make no sense.
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
    """What the questions of one operation need.

    Attributes:
        isolate: Whether the user wants children; None leaves the choice to the rest.
        timeout_seconds: Longest that one question may take.
        memory_nbytes: What one question may hold; None: the default.
        is_deadly: A case records a crash or a hang.
        jobs: How many questions may be asked at the same time, and where.
    """

    isolate: bool | None = None
    timeout_seconds: float | None = None
    memory_nbytes: int | None = None
    is_deadly: bool = False
    jobs: Jobs = ONE_JOB


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """One way to run questions.

    Attributes:
        name: What it is called.
        serves: Whether it is the right one for these needs.
        start: Returns an executor; what it needs to start, it starts with the first question.
    """

    name: str
    serves: Callable[[Needs], bool]
    start: Callable[[Needs], Executor]
