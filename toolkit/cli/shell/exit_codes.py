"""How a verdict becomes an exit code, lines and JSON; the same for every command."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctk.toolkit.cli.shell.answer import Answer, ExitCode

if TYPE_CHECKING:
    from ctk.toolkit.case.judgement import Judgement
    from ctk.toolkit.case.next_step import NextStep
    from ctk.toolkit.end_to_end.answer import EndToEnd
    from ctk.toolkit.options import AskOptions

EXIT_CODES = {
    "passes": ExitCode.NO_FAILURE,
    "reproduces": ExitCode.FAILURE,
    "different": ExitCode.FAILURE,
    "invalid": ExitCode.CANNOT_TELL,
    "flaky": ExitCode.CANNOT_TELL,
    "timeout": ExitCode.CANNOT_TELL,
    "ill-conditioned": ExitCode.NO_FAILURE,
    "uninitialized": ExitCode.NO_FAILURE,
    "documented": ExitCode.NO_FAILURE,
}
"""By verdict; a time limit decides nothing, unless the expected failure is a hang."""


def exit_code_of(judgement: "Judgement") -> ExitCode:
    """Return the exit code of one judgement."""
    return EXIT_CODES[judgement.verdict.value]


def apply_acceptance(answer: Answer, judgement: "Judgement", options: "AskOptions") -> Answer:
    """Return the answer of a command; with `--no-accept-documented` such a difference is 1."""
    is_documented = judgement.verdict.value == "documented"
    if options.accept_documented or not is_documented or answer.exit_code != ExitCode.NO_FAILURE:
        return answer
    return replace(answer, exit_code=ExitCode.FAILURE)


def line_of(judgement: "Judgement") -> str:
    """Return one line about a judgement."""
    from ctk.toolkit.operations.report.phrases import VERDICTS

    is_seen = judgement.signature is not None and not judgement.is_excused
    what = str(judgement.signature) if is_seen else judgement.detail
    explanation = VERDICTS[judgement.verdict]
    return f"{explanation}: {what}".splitlines()[0] if what else explanation


def document_data(document: object) -> Any:
    """Return the JSON form of a document; None for None."""
    from ctk.toolkit.case.formats.schema import encode

    return encode(document)


def evidence_lines(found: "EndToEnd | None") -> tuple[str, ...]:
    """Return how the layer of a failing program is known, one line each."""
    if found is None or not found.judgement.fails:
        return ()
    return tuple(f"evidence: {each}" for each in found.evidence)


def steps_after(
    judgement: "Judgement",
    whole: "EndToEnd | None",
    subject: str,
    options: "AskOptions",
) -> "list[NextStep]":
    """Return what to do next, about the same subject with the same options."""
    from ctk.toolkit.operations.report.next_steps import after_a_look

    return after_a_look(judgement, subject, options.told, is_program=whole is not None)
