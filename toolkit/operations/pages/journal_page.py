"""The page of a folder that has a journal and no diagnosis: a search over releases, or a start."""

import re
from collections.abc import Sequence
from pathlib import Path

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.bisect.suspects import list_names
from ctk.toolkit.case.formats.growing_file import read_lines
from ctk.toolkit.case.formats.schema import convert, decode
from ctk.toolkit.operations.pages.reduction_sections import repro_section
from ctk.toolkit.operations.pages.sentences import BADGES, sentence
from ctk.toolkit.operations.session.operation_listing import BEGUN, COMMAND, is_ended
from ctk.toolkit.operations.session.version_bisection import REPRO_FOLDER
from ctk.toolkit.operations.versions.questions import VersionAnswer
from ctk.toolkit.oracle.answers.journal import JOURNAL, Header, Line, read_header
from ctk.toolkit.oracle.answers.resume_command import resume_hint
from ctk.toolkit.page.page import (
    Absent,
    Answers,
    Block,
    Facts,
    Page,
    Rows,
    Section,
    Tone,
    section,
)
from ctk.toolkit.repro.run import REPRO

_DIGITS = 9
"""Longest part of a version that counts as a number."""


def page_of_journal(folder: Path) -> Page:
    """Return the page of a folder with a journal.

    Raises:
        CaseError: The journal is damaged, or of another ctk.
    """
    header = read_header(folder)
    if header is None:
        raise CaseError(f"{folder}: its journal is empty; run the command again")
    if header.operation == "bisect-version":
        return _page_of_versions(folder, header)
    is_done, go_on = is_ended(folder), resume_hint(folder)
    text = COMMAND if is_done else BEGUN
    subject = header.subject or "a command"
    steps = (go_on,) if go_on else ()
    return Page(
        subject=subject,
        tone="unsure",
        badge="finished" if is_done else "unfinished",
        headline=f"{header.operation} of {subject}: {text}",
        answers=Answers(
            "Not known yet." if not is_done else sentence(text),
            "Not known yet.",
            f"{count_of(len(read_lines(folder / JOURNAL)) - 1, 'answer')} in the journal.",
            steps,
        ),
        sections=(_environment(header),),
    )


def _page_of_versions(folder: Path, header: Header) -> Page:
    answers = _version_answers(folder)
    bad = [name for name, answer in answers if answer.is_bad]
    good = [name for name, answer in answers if answer.is_bad is False]
    tone: Tone = "wrong" if bad else "right" if good else "unsure"
    reason = next((answer.reason for _, answer in answers if answer.is_bad), "")
    go_on = resume_hint(folder)
    subject, script = header.subject or "a script", folder / REPRO_FOLDER / REPRO
    return Page(
        subject=subject,
        tone=tone,
        badge="fails in some releases" if bad and good else BADGES[tone],
        headline=f"{subject}: {_list('fails', 'fail', bad)}; {_list('passes', 'pass', good)}",
        answers=Answers(
            sentence(reason or "no release fails"),
            sentence(_between(bad, good)),
            f"{count_of(len(answers), 'release')} ran the same script.",
            (go_on,) if go_on else (),
        ),
        sections=(
            section("Releases", _release_rows(answers), Absent("No release was asked yet.")),
            repro_section(
                script if script.is_file() else None, folder, "The script that was asked.", None
            ),
            _environment(header),
        ),
    )


def _release_rows(answers: Sequence[tuple[str, VersionAnswer]]) -> list[Block]:
    rows = tuple(
        (name, answer.outcome, answer.versions.triton if answer.versions else "", answer.reason)
        for name, answer in answers
    )
    wrong = frozenset(at for at, (_, answer) in enumerate(answers) if answer.is_bad)
    columns = ("release", "answer", "Triton", "reason")
    return [Rows("Each release that was asked", columns, rows, wrong)] if rows else []


def _version_answers(folder: Path) -> list[tuple[str, VersionAnswer]]:
    """Return the release and the last answer of each question, in the order of versions."""
    found: dict[str, VersionAnswer] = {}
    for text in read_lines(folder / JOURNAL):
        line = decode(Line, text, where=JOURNAL)
        if line.kind == VersionAnswer.__name__:
            name = line.key.rpartition(" ")[0] or line.key
            found[name] = convert(VersionAnswer, line.value, where=JOURNAL)
    return sorted(found.items(), key=lambda each: _version_key(each[0]))


def _version_key(name: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"[ .+]", name)
    numbers = [int(part) if part.isdigit() and len(part) < _DIGITS else 0 for part in parts]
    return [(part.isdigit(), at, part) for part, at in zip(parts, numbers, strict=True)]


def _list(verb: str, plural: str, names: list[str]) -> str:
    return (
        f"{list_names(names, most=4)} {verb if len(names) == 1 else plural}"
        if names
        else f"none {verb}"
    )


def _between(bad: list[str], good: list[str]) -> str:
    if bad and good:
        return f"between {good[-1]}, which passes, and {bad[0]}, which fails"
    return "in every release that was asked" if bad else "nowhere: nothing fails"


def _environment(header: Header) -> Section:
    rows = [("command", f"ctk {header.operation} {header.subject or ''}".strip())]
    rows += [("torch", header.torch), ("ctk", header.ctk)]
    set_options = [(name, value) for name, value in header.options.items() if value]
    rows += [("option", f"{name} = {value}") for name, value in set_options]
    return section("Environment", [Facts(tuple(rows))])
