"""A question about a case, and the protocol of every layer that answers one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto


@dataclass(frozen=True, slots=True)
class Question:
    """Does this case fail, in this way, if this is left out of its compile?

    Attributes:
        expected: The failure to look for; None: any failure.
        veto: Left out of the compile; an empty veto only observes; None: the compile is unobserved.
        deadline_seconds: Longest time until the answer; None: the limit of the layer below.
        run: Number of this run of a question that is repeated, from 1; 0: it is asked once.
    """

    case: Case
    expected: Signature | None = None
    veto: Veto | None = None
    deadline_seconds: float | None = None
    run: int = 0


class NotKnown(LookupError):
    """A question was only looked up, and no earlier run has its answer."""


@runtime_checkable
class Oracle(Protocol):
    """Answers questions: a layer of the stack, or the executor, command or function below it."""

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Answer a question.

        Args:
            known_only: Only look the answer up; nothing is compiled or run.

        Raises:
            NotKnown: `known_only`, and the answer is not remembered.
        """
        ...


@runtime_checkable
class ParallelOracle(Oracle, Protocol):
    """An oracle that can work on several questions at the same time."""

    @property
    def jobs(self) -> int:
        """How many."""
        ...

    def anticipate(self, questions: Sequence[Question]) -> None:
        """Start on the questions that most likely follow, the likeliest first.

        They replace the ones of the last call.
        """
        ...


class ExecutorOracle(Oracle, Protocol):
    """An oracle whose answers come from an executor."""

    @property
    def isolates(self) -> bool:
        """Whether a crash or a hang of the compiled program leaves this process alone."""
        ...


def look_up(oracle: Oracle, question: Question) -> Judgement | None:
    """Return the remembered answer; None if there is none."""
    try:
        return oracle.ask(question, known_only=True)
    except NotKnown:
        return None


@dataclass(frozen=True, slots=True)
class DirectOracle:
    """An oracle over a function from case to judgement; it has no limits and remembers nothing."""

    judge: Callable[[Case], Judgement]

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Call the function."""
        if known_only:
            raise NotKnown
        return self.judge(question.case)
