"""How a verdict becomes an exit code, lines and JSON; the same for every command."""

from typing import TYPE_CHECKING, Any

from ctk.toolkit.cli.shell.answer import ExitCode

if TYPE_CHECKING:
    from ctk.toolkit.case.judgement import Judgement
    from ctk.toolkit.end_to_end.answer import EndToEnd
    from ctk.toolkit.options import AskOptions

EXIT_CODES = {
    "passes": ExitCode.NO_FAILURE,
    "reproduces": ExitCode.FAILURE,
    "different": ExitCode.FAILURE,
    "invalid": ExitCode.CANNOT_TELL,
    "flaky": ExitCode.CANNOT_TELL,
    "timeout": ExitCode.CANNOT_TELL,
}
"""By verdict; a time limit decides nothing, unless the expected failure is a hang."""


def exit_code_of(judgement: "Judgement") -> ExitCode:
    """Return the exit code of one judgement."""
    return EXIT_CODES[judgement.verdict.value]


def line_of(judgement: "Judgement") -> str:
    """Return one line about a judgement."""
    from ctk.toolkit.operations.report.phrases import VERDICTS

    what = str(judgement.signature) if judgement.signature else judgement.detail
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
) -> list[str]:
    """Return what to do next, about the same subject with the same options."""
    from ctk.toolkit.operations.report.next_steps import after_a_look

    return after_a_look(judgement, subject, options.told, is_program=whole is not None)
