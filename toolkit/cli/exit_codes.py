"""How an oracle's verdict becomes an exit code, a line and JSON; the same for every command."""

from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import ExitCode

if TYPE_CHECKING:
    from ctk.toolkit.oracle.judgement import Judgement

EXIT_CODES = {
    "passes": ExitCode.NO_FAILURE,
    "reproduces": ExitCode.FAILURE,
    "different": ExitCode.FAILURE,
    "invalid": ExitCode.CANNOT_TELL,
    "flaky": ExitCode.CANNOT_TELL,
    "timeout": ExitCode.CANNOT_TELL,
}
"""By verdict; a time limit that ran out says nothing, unless the failure looked for is a hang."""

EXPLANATIONS = {
    "passes": "no failure: compiled and eager agree",
    "reproduces": "failure",
    "different": "failure, but another one than the case records",
    "invalid": "cannot tell: the program itself fails in eager",
    "flaky": "cannot tell: two runs of the same program differ",
    "timeout": "cannot tell: the time limit ran out",
}


def exit_code_of(judgement: "Judgement") -> ExitCode:
    """Return the exit code of one judgement."""
    return EXIT_CODES[judgement.verdict.value]


def line_of(judgement: "Judgement") -> str:
    """Return one line that says what was seen."""
    what = str(judgement.signature) if judgement.signature else judgement.detail
    explanation = EXPLANATIONS[judgement.verdict.value]
    return f"{explanation}: {what}".splitlines()[0] if what else explanation


def judgement_data(judgement: "Judgement") -> dict[str, object]:
    """Return the JSON form of a judgement."""
    from ctk.toolkit.formats.schema import encode

    return encode(judgement)
