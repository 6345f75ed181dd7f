"""Open a subject for questions: its program, its cases, and the executor that answers."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from ctk.compiler.errors import CtkError, EagerError, NoGraphError
from ctk.compiler.observe import first_line
from ctk.compiler.options.environment import read_environment
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.importers import Inputs, Loaded, Subject, load_subject
from ctk.toolkit.importers.base import Source
from ctk.toolkit.importers.program import merge_options
from ctk.toolkit.options import AskOptions, CaseOptions
from ctk.toolkit.oracle.executors import HANG_SECONDS, executor_for
from ctk.toolkit.oracle.executors.base import ONE_JOB, Executor, Jobs
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.questions.judge import conclude
from ctk.toolkit.processes.link import Watch, apply_limits, set_compiled_limits
from ctk.toolkit.processes.memory import default_limit_nbytes

SILENT_SECONDS = 120.0
"""Longest silence (no pass, kernel or result) of a compile in the process of a command. For a case
from another person the limit holds for eager as well.
"""

CAPTURE_SECONDS = 600.0
"""Longest time of a capture without `--timeout`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenSubject:
    """The subject of an operation, and its executor.

    Attributes:
        cases: The graphs, in order; none where Dynamo gives none of the program.
    """

    source: Source
    cases: list[Case]
    executor: Executor
    question: Callable[[], ProgramQuestion] | None = None
    uncaptured: CtkError | None = None
    timeout_seconds: float | None = None
    memory_nbytes: int | None = None

    def end_to_end(self, say: Say = silent) -> EndToEnd | None:
        """Compare the program's compiled calls with its eager calls; None for cases and graphs.

        A program has no answer (INVALID) if no graph was captured, or eager raises.

        Raises:
            CtkError: It could not be captured, and its calls agree: nothing was compared.
        """
        if self.question is None:
            return None
        say("compare the program's compiled calls with its eager calls")
        program = self.executor.ask_program(self.question())
        error, passes = self.uncaptured, program.judgement.verdict is Verdict.PASSES
        if passes and error is not None and not isinstance(error, NoGraphError | EagerError):
            raise error
        why = first_line(error) if isinstance(error, NoGraphError) else ""
        return replace(program, judgement=conclude(program.judgement, why))


@contextmanager
def open_subject(
    subject: Subject,
    inputs: Inputs | None,
    options: AskOptions,
    jobs: Jobs = ONE_JOB,
) -> Generator[OpenSubject]:
    """Load the program and the cases of a subject, and start their executor.

    Raises:
        CtkError: As `load_subject` and `executor_for` raise it.
    """
    with apply_limits(_limits_of_capture(options)):
        loaded = load_subject(subject, inputs, options)
    cases = _with_question(loaded.cases, options)
    executor = executor_for(
        cases,
        isolate=options.isolate,
        timeout_seconds=options.timeout_seconds,
        memory_nbytes=options.memory_nbytes,
        jobs=jobs,
    )
    is_ours = options.isolate is None and not executor.isolates
    is_strangers = is_ours and loaded.is_untrusted
    limits = _limits()
    compiled = replace(limits, task="the compiled program", is_patient=True)
    with (
        executor,
        apply_limits(limits if is_strangers else None),
        set_compiled_limits(compiled if is_ours and not is_strangers else None),
    ):
        is_measured = options.compile_above is not None and bool(cases)  # no results are compared
        question = None if is_measured else _question(loaded, options)
        limits = options.timeout_seconds, options.memory_nbytes
        yield OpenSubject(loaded.source, cases, executor, question, loaded.uncaptured, *limits)


def _question(loaded: Loaded, options: CaseOptions) -> Callable[[], ProgramQuestion] | None:
    """Return a function that loads the program again for the question about the whole of it."""
    load = loaded.program
    if load is None:
        return None
    target = options.target or "ctk"

    def make() -> ProgramQuestion:
        program = load()
        return ProgramQuestion(
            program,
            target,
            merge_options(program, target, options.config),
            backward=options.backward or program.backward,
            dynamic=options.dynamic,
            calls=options.calls,
            aliases=options.aliases,
            strides=bool(options.strides),
        )

    return make


def _with_question(cases: list[Case], options: AskOptions) -> list[Case]:
    """Return the cases; with `--compile-above`, a slow compile is the failure of each."""
    if options.compile_above is None:
        return cases
    slow = Signature("slow-compile", limit=options.compile_above)
    return [replace(case, signature=slow) for case in cases]


def _limits_of_capture(options: AskOptions) -> Watch | None:
    """Return the limits of loading and capturing; children would have to capture again."""
    if options.isolate is False:
        return None
    given = options.timeout_seconds
    seconds = CAPTURE_SECONDS if given is None else max(given, HANG_SECONDS)
    return Watch(seconds, None, "the capture of the program", repeats=False)


def _limits() -> Watch:
    return Watch(SILENT_SECONDS, read_environment().memory_nbytes or default_limit_nbytes())


def first_failing(
    cases: Iterable[Case], ask: Callable[[Case], T], judgement_of: Callable[[T], Judgement]
) -> tuple[Case, T]:
    """Ask about each case until one shows its failure; there is at least one case.

    Returns:
        The first case that reproduces, with its answer; else the most informative one.
    """
    asked: list[tuple[Case, T]] = []
    for case in cases:
        asked.append((case, ask(case)))
        if judgement_of(asked[-1][1]).verdict is Verdict.REPRODUCES:
            break
    return max(asked, key=lambda pair: judgement_of(pair[1]).telling)


def judge_program(graphs: Iterable[Judgement], whole: Judgement | None) -> Judgement:
    """Return the most informative judgement of a program.

    A comparison of whole calls replaces the judgements of graphs that cannot be asked about alone.
    """
    if whole is None:
        return most_telling(graphs)
    return most_telling([*(each for each in graphs if each.verdict is not Verdict.INVALID), whole])


def most_telling(judgements: Iterable[Judgement]) -> Judgement:
    """Return the most informative judgement, the first of equals; there is at least one."""
    return max(judgements, key=lambda judgement: judgement.telling)
