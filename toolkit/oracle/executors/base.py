"""The contract of an executor: who runs a question, and when it is the right one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.processes.closing import Closing


class Executor(Closing, Protocol):
    """Runs questions; a context manager that ends what it started.

    Attributes:
        isolates: Whether a crash or a hang of the compiled program leaves this process alone.
    """

    isolates: bool

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        """Judge a case, compiled without what a veto names; an empty veto only observes.

        About a candidate of a reduction "no" is a safe answer: it need not be waited for long.

        Raises:
            CtkError: The target, its options or the case are wrong, or nobody can answer.
        """
        ...

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare the compiled calls of a whole program with its eager calls.

        Raises:
            CtkError: The target or its options are wrong, or nobody can answer.
        """
        return ask(question)

    def close(self) -> None:
        """End every process that the executor started."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the questions of one operation need.

    Attributes:
        isolate: Whether the user wants children; None leaves the choice to the rest.
        timeout_seconds: Longest that one question may take.
        memory_nbytes: What one question may hold; None: the default.
        is_deadly: A case records a crash or a hang.
    """

    isolate: bool | None = None
    timeout_seconds: float | None = None
    memory_nbytes: int | None = None
    is_deadly: bool = False


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
