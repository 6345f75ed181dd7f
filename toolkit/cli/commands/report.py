"""`ctk report`: a page for the browser, made of a folder; and `--report` of other commands."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ctk.compiler.errors import CtkError
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.options import Flag

if TYPE_CHECKING:
    from ctk.toolkit.page.page import Page

WithReport = Annotated[
    bool,
    Flag(
        ("--report",),
        "Also write report.html, a page for the browser, into DIR; check and diff without DIR: "
        "a new file here.",
        section="output",
    ),
]
"""The option of a command that also writes a page."""


def report(
    folder: Annotated[
        Path,
        argument(
            "FOLDER",
            "A folder that ctk wrote: of diagnose, bisect-pass, minify, bisect-version or check, a "
            "dump, a case, or a folder of several.",
            complete_case,
        ),
    ],
    out: Annotated[
        Path | None,
        Flag(
            ("--out", "-o"),
            "File to write (default: report.html in FOLDER).",
            metavar="FILE",
        ),
    ] = None,
) -> Answer:
    """Make a page for the browser of a folder.

    Writes one HTML file that loads nothing: verdict, proof, graph, steps, errors, reduction, repro.
    Reads the folder and compiles nothing. A folder of several gets an index, and each a page.
    """
    from ctk.toolkit.operations.pages.folder_page import write_report

    path, page = write_report(folder, out)
    data = {"folder": str(folder), "report": str(path), "verdict": page.badge}
    return Answer(ExitCode.NO_FAILURE, f"{path}: {page.headline}", data)


def with_folder_report(answer: Answer, folder: Path | None, *, is_wanted: bool) -> Answer:
    """Return an answer with the page of the folder that its command wrote, if it is wanted."""
    from ctk.toolkit.operations.pages.folder_page import write_report

    if not is_wanted:
        return answer
    if folder is None:
        return _with_path(answer, None, "no folder was written")
    return _with_page(answer, lambda: write_report(folder)[0])


def with_live_report(
    answer: Answer, make: "Callable[[], Page] | None", out: Path | None = None
) -> Answer:
    """Return an answer with a page that is made of a live result.

    Args:
        make: Makes the page; None: no page is wanted.
        out: The folder of the page; None for a new file here.
    """
    from ctk.toolkit.case.formats.files import free_path
    from ctk.toolkit.operations.pages.folder_page import REPORT, write_page

    if make is None:
        return answer
    path = out / REPORT if out is not None else free_path(Path(REPORT))

    def write() -> Path:
        write_page(make(), path)
        return path

    return _with_page(answer, write)


def _with_page(answer: Answer, write: Callable[[], Path]) -> Answer:
    """Return an answer with the page that `write` writes; an error leaves the verdict as it is."""
    from ctk.compiler.observe import first_line

    try:
        return _with_path(answer, write())
    except CtkError as error:
        return _with_path(answer, None, first_line(error))


def _with_path(answer: Answer, path: Path | None, reason: str = "") -> Answer:
    line = f"report     {path if path is not None else f'none: {reason}'}"
    data = {**answer.data, "report": str(path) if path is not None else None}
    return replace(answer, data=data, body=(*answer.body, line))


COMMAND = Command("report", report)
