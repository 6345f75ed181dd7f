"""`ctk show --why`: show the outcome of each edit that would make a minimal case smaller."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from ctk.compiler.errors import NoSuchCase
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.exit_codes import document_data

if TYPE_CHECKING:
    from ctk.toolkit.operations.report.certificate_file import CertificateRecord, Part
    from ctk.toolkit.reduce.certificate import Refusal

MOST = 12
"""Edits of one node that are shown; the rest is counted."""


def show_why(folder: Path) -> Answer:
    """Return the answer for `--why`.

    Args:
        folder: A minimal case, or the folder of the minify or diagnose that made it.

    Raises:
        CaseError: There is no certificate, or it is of another case.
    """
    from ctk.toolkit.operations.report.certificate_file import (
        NEIGHBOUR,
        answer_of,
        parts_of,
        read_certificate,
    )

    case = find_certified_case(folder)
    record, neighbour = read_certificate(case), case.parent / NEIGHBOUR
    has_neighbour = record.neighbour is not None and neighbour.is_dir()
    parts = parts_of(record)
    body: list[RenderableType] = []
    for part in parts:
        body += lines_of(part)
    body.append("\n" + "\n".join(_ending_lines(record, case, has_neighbour)))
    told = {
        key: each for key, each in document_data(record).items() if key not in ("nodes", "refusals")
    }
    data = {"case": str(case), "minimal": record.is_minimal, **told}
    data["parts"] = [document_data(part) for part in parts]
    data["neighbour_case"] = str(neighbour) if has_neighbour else None
    return Answer(ExitCode.NO_FAILURE, answer_of(record), data, tuple(body))


def find_certified_case(folder: Path) -> Path:
    """Return the case with a certificate: the folder, or the smallest case of an operation in it.

    Raises:
        CaseError: There is none.
    """
    from ctk.toolkit.case.formats.folder_walk import require_folder
    from ctk.toolkit.case.manifest import MANIFEST
    from ctk.toolkit.operations.report.certificate_file import CERTIFICATE
    from ctk.toolkit.oracle.answers.journal import JOURNAL
    from ctk.toolkit.oracle.answers.resume_command import resume_hint

    require_folder(folder)
    for place in (folder, folder / "minimal", folder / "case"):
        if (place / CERTIFICATE).is_file():
            return place
    if (folder / JOURNAL).is_file():
        next_step = f"the reduction was ended before it could write one: {resume_hint(folder)}"
    elif (folder / MANIFEST).is_file():
        next_step = f"it was not reduced, or by an older ctk: ctk minify {quote(str(folder))}"
    else:
        next_step = f"it is not a case: ctk ls {quote(str(folder))}"
    raise NoSuchCase(
        f"{folder} has no {CERTIFICATE}, the record of why it is not smaller; {next_step}"
    )


def lines_of(part: "Part") -> list[RenderableType]:
    """Return the line of a remaining part, and its edits below."""
    from ctk.toolkit.operations.report.certificate_file import choose_shown, sum_up_refusals

    told, others = choose_shown(part.refusals, MOST)
    lines: list[RenderableType] = [f"\n{part.line}"]
    if not part.refusals:
        return [*lines, "  no edit is about it alone"]
    lines.append(edits_table(told))
    if others:
        lines.append(f"  and {len(others)} more: {sum_up_refusals(others)} (all of them: --json)")
    return lines


def edits_table(refusals: "Sequence[Refusal]") -> Table:
    """Return one row per edit: its change, its outcome, its step."""
    from ctk.toolkit.operations.report.certificate_file import reason_of, verdict_of

    rows = table("", "", "", "")
    rows.show_header = False
    rows.columns[0].min_width = 24
    for refusal in refusals:
        rows.add_row(f"  {refusal.edit}", verdict_of(refusal), refusal.step, reason_of(refusal))
    return rows


def _ending_lines(record: "CertificateRecord", case: Path, has_neighbour: bool) -> list[str]:
    """Return the closest case that passes, and the unfinished steps."""
    lines: list[str] = []
    if record.neighbour is not None:
        lines.append(f"closest case that passes: {record.neighbour.edit} ({record.neighbour.step})")
    if has_neighbour:
        from ctk.toolkit.operations.report.certificate_file import NEIGHBOUR

        pair = f"{quote(str(case))} {quote(str(case.parent / NEIGHBOUR))}"
        lines.append(f"compare the two: ctk diff {pair}")
    if record.unfinished:
        comma = "\n  " if any(":" in each for each in record.unfinished) else ", "
        lines.append(f"not finished: {comma.join(record.unfinished)}")
    if record.left_out:
        lines.append(f"{record.left_out} more edits were tried; the certificate ends here")
    return lines
