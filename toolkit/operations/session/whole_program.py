"""A program that fails end to end while no graph of it does: its culprit and its smallest form.

    bisect-pass         the change that makes the program pass: a recompile, static sizes
    diagnose, minify    also the smallest program, its line, its repro

A program runs as a file in processes of its own, so for a callable, which has no file, only the
layer is known. `Operation.bisect_cases` has found the failure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.toolkit.bisect import Search
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.isolation import plan_of, source_of
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.execution.programs.player import TIMEOUT_SECONDS
from ctk.toolkit.operations.report.diagnosis import Diagnosis, ProgramSize
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.open_subject import OpenSubject
from ctk.toolkit.reduce.program.smallest_program import (
    ProgramQuestioned,
    explain_program,
    name_culprit,
)
from ctk.toolkit.reduce.progress import Budget
from ctk.toolkit.repro.run import REPRO, ReproRun

_NAMED, _MADE_SMALL = "culprit", "smallest program"


@document
@dataclass(frozen=True, slots=True)
class Known:
    """The result, as the journal holds it."""

    answer: EndToEnd
    size: ProgramSize | None = None
    run: ReproRun | None = None


def refine_program(run: Operation) -> Diagnosis:
    """Name the culprit, and finish the operation."""
    known, is_interrupted = _recall_or_search(
        run, _NAMED, lambda asked: Known(name_culprit(asked, run.say))
    )
    return _finish(run, known, is_interrupted=is_interrupted)


def explain_failing_program(run: Operation, folder: Path, budget: Budget) -> Diagnosis:
    """Name the culprit, reduce the program, write its repro, and finish the operation."""

    def explain(asked: ProgramQuestioned) -> Known:
        program = explain_program(replace(asked, budget=budget), folder, run.say)
        small = program.reduction
        if small is None:
            return Known(program.answer)
        before, after = small.statements_before, small.statements_after
        size = ProgramSize(before, after, small.questions, small.finished, small.left)
        return Known(program.answer, size, program.run)

    known, is_interrupted = _recall_or_search(run, _MADE_SMALL, explain)
    return _finish(run, known, folder, is_interrupted=is_interrupted)


def _recall_or_search(
    run: Operation, key: str, find: Callable[[ProgramQuestioned], Known]
) -> tuple[Known, bool]:
    """Search, or recall the result; after an internal error or Ctrl-C the failure alone is known.

    Returns:
        The result, and whether Ctrl-C was pressed.
    """
    remembered = run.journal.recall(Known, key)
    if remembered is not None:
        return remembered, False
    assert run.found is not None and run.found.end_to_end is not None
    whole = run.found.end_to_end
    make = run.subject.question
    question = make() if make is not None else None
    if question is None or not question.program.spec:
        said = "not narrowed down: only a program in a file of its own can be played again"
        return Known(replace(whole, evidence=(*whole.evidence, said))), False
    try:
        found = find(program_questions(question, whole, run.subject))
    except KeyboardInterrupt:
        return Known(whole), True
    except Exception as error:
        run.record_errors("the search for the culprit", error)
        return Known(whole), False
    if found.size is None or found.size.finished:
        run.journal.note(key, found)
    return found, False


def program_questions(
    question: ProgramQuestion, whole: EndToEnd, subject: OpenSubject
) -> ProgramQuestioned:
    """Return the questions about a failing program.

    It makes only as many calls as it takes to fail, unless the file lists its calls.
    """
    program = question.program
    return ProgramQuestioned(
        program.path,
        source_of(program),
        whole,
        plan_of(question, whole.call),
        timeout_seconds=subject.timeout_seconds or TIMEOUT_SECONDS,
        memory_nbytes=subject.memory_nbytes,
    )


def _finish(
    run: Operation, known: Known, folder: Path | None = None, *, is_interrupted: bool
) -> Diagnosis:
    assert run.found is not None
    script = folder / REPRO if folder is not None else None
    has_script = script is not None and script.is_file()
    return run.finish(
        is_done=not is_interrupted,
        search=search_of_whole(run.found.search, known.answer),
        end_to_end=known.answer,
        program=known.size,
        minimal=folder if has_script else None,
        repro=script if has_script else None,
        repro_run=known.run,
        is_interrupted=is_interrupted,
    )


def search_of_whole(search: Search, answer: EndToEnd) -> Search:
    """Return the search for the graphs as one for the whole program, whose answer is known."""
    reason = (
        "" if answer.confirmed else "no graph shows it, and no counterfactual that was asked passes"
    )
    if search.judgement.verdict is Verdict.PASSES:
        said = "each graph, compiled alone, gives eager's results"
        search = replace(search, excluded=(*search.excluded, said))
    search = replace(search, judgement=answer.judgement, confirmed=answer.confirmed, reason=reason)
    if not answer.cause or answer.layer is None:
        return search
    evidence = answer.evidence[-1] if answer.evidence else ""
    culprit = Culprit(
        answer.layer,
        answer.cause,
        Veto(),
        evidence=evidence,
        line=answer.line,
        alternatives=answer.alternatives,
    )
    return replace(search, culprit=culprit, found_by="elimination")
