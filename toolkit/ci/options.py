"""Options of `ctk ci-summary`; those on the baseline are also options of `ctk check`. No torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ctk.toolkit.options import Flag


def _file(names: tuple[str, ...], text: str) -> Flag:
    return Flag(names, text, metavar="FILE", section="output")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files of a summary: read beside the outcomes, or written."""

    tests: Annotated[
        Path | None,
        Flag(
            ("--tests",),
            "JUnit XML of the run of pytest: a test that failed there without a wrong compile"
            " fails the job as well.",
            metavar="FILE",
        ),
    ] = None
    out: Annotated[
        Path | None,
        _file(("--out", "-o"), "Write the Markdown here (default: stdout, after the answer)."),
    ] = None
    annotations: Annotated[
        Path | None,
        _file(("--annotations",), "Write at most ten workflow commands of GitHub here."),
    ] = None
    junit: Annotated[
        Path | None, _file(("--junit",), "Write JUnit XML here: one test case for each outcome.")
    ] = None
    sarif: Annotated[
        Path | None, _file(("--sarif",), "Write SARIF 2.1.0 here: one result for each failure.")
    ] = None
    code_quality: Annotated[
        Path | None, _file(("--code-quality",), "Write a code quality report of GitLab here.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """The baseline to compare with, and the one to write."""

    baseline: Annotated[
        Path | None,
        Flag(
            ("--baseline",),
            "Failures in this file that have the link of an issue are known, and do not fail; a"
            " test that got less accurate than there fails.",
            metavar="FILE",
            section="report",
        ),
    ] = None
    write_baseline: Annotated[
        Path | None,
        Flag(
            ("--write-baseline",),
            "Write the failures and the accuracy here; an older file's links of issues stay.",
            metavar="FILE",
            section="report",
        ),
    ] = None

    @property
    def is_set(self) -> bool:
        return self.baseline is not None or self.write_baseline is not None
