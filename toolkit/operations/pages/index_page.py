"""The page of a folder of many: cases and operations, with links to a page of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.bisect.suspects import list_names
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case_listing import CaseEntry, find_cases
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.pages.dump_sections import dump_sections
from ctk.toolkit.operations.pages.sentences import BADGES, sentence
from ctk.toolkit.operations.session.operation_listing import OperationEntry, find_operations
from ctk.toolkit.page.page import (
    Answers,
    Cell,
    Link,
    Page,
    Prose,
    Rows,
    Section,
    Tone,
    section,
)
from ctk.toolkit.watch.dump_index import read_dump_index

MOST = 500
"""Entries that have a row and a page of their own."""


@dataclass(frozen=True, slots=True)
class PageLink:
    """The relative path of the page of a folder, and its tone."""

    path: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Entries:
    """The cases and operations below a folder."""

    cases: tuple[CaseEntry, ...]
    operations: tuple[OperationEntry, ...]
    is_cut: bool = False

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that can have a page of their own."""
        cases = [each.path for each in self.cases if each.problem is None]
        return tuple([*[each.path for each in self.operations], *cases][:MOST])


def find_entries(root: Path) -> Entries:
    """Return the cases and operations below a folder; the cases of an operation are its own.

    Raises:
        CaseError: There are none.
    """
    walk = Walk(root)
    operations = find_operations(walk)
    own = {each.path for each in operations}
    cases = [each for each in find_cases(Walk(root)) if own.isdisjoint(each.path.parents)]
    if not cases and not operations:
        raise CaseError(
            f"{root} holds no case, diagnosis or dump; next: make one with "
            "ctk diagnose FILE.py --out DIR, or ctk run SCRIPT"
        )
    return Entries(tuple(cases), tuple(operations), walk.is_cut)


def page_of_entries(
    root: Path, entries: Entries, pages: Mapping[Path, PageLink], problems: Sequence[str] = ()
) -> Page:
    """Return the index page.

    Args:
        pages: The page of each folder that has one.
        problems: Why the other folders have none, a sentence each.
    """
    failing = [each for each in entries.cases if each.failure is not None]
    bad = [each for each in entries.operations if _tone(each, pages) == "wrong"]
    undecided = [each.path for each in entries.operations if _tone(each, pages) == "unsure"]
    undecided += [each.path for each in entries.cases if each.problem is not None]
    counts = f"{count_of(len(entries.cases), 'case')}, {len(failing)} failing"
    if entries.operations:
        counts += f"; {count_of(len(entries.operations), 'operation')}"
    steps = (NextStep(f"ctk ls {quote(str(root))}", "lists them with age and state"),)
    if failing:
        remark = "the culprit and the smallest repro of the first failing case"
        steps = (NextStep(command_on("diagnose", failing[0].path), remark),)
    return Page(
        subject=root.name or str(root),
        tone="wrong" if failing or bad else "unsure" if undecided else "right",
        badge=f"{len(failing) + len(bad)} failing"
        if failing or bad
        else BADGES["unsure"]
        if undecided
        else "no failure recorded",
        headline=f"{root}: {counts}",
        answers=Answers(
            _first_failure(failing, bad, undecided),
            _places(failing, bad),
            "Each case records the failure that was seen when it was written.",
            steps,
        ),
        sections=_sections(root, entries, pages, problems),
    )


def _tone(entry: OperationEntry, pages: Mapping[Path, PageLink]) -> Tone:
    return pages[entry.path].tone if entry.path in pages else "unsure"


def _first_failure(
    failing: Sequence[CaseEntry], bad: Sequence[OperationEntry], undecided: Sequence[Path]
) -> str:
    if failing:
        return f"{failing[0].name}: {failing[0].failure}."
    if bad:
        return f"{bad[0].answer}."
    names = list_names([each.name for each in undecided], most=6)
    return (
        f"No failure is recorded; not decided: {names}." if names else "No case records a failure."
    )


def _places(failing: Sequence[CaseEntry], bad: Sequence[OperationEntry]) -> str:
    names = [str(each.path.name) for each in (*failing, *bad)]
    return f"{list_names(names, most=6)}." if names else "Nowhere."


def _sections(
    root: Path, entries: Entries, pages: Mapping[Path, PageLink], problems: Sequence[str]
) -> tuple[Section, ...]:
    parts: list[Section] = []
    if entries.operations:
        parts.append(section("Operations", [_operation_rows(root, entries.operations, pages)]))
    if entries.cases:
        parts.append(section("Cases", [_case_rows(root, entries.cases, pages)]))
    parts += dump_sections(read_dump_index(root))
    left_out = [Prose(sentence(each)) for each in problems[:MOST]]
    if entries.is_cut or len(entries.cases) + len(entries.operations) > MOST:
        left_out.append(Prose(f"Only the first {MOST} entries are listed."))
    if left_out:
        parts.append(section("Left out", left_out))
    return tuple(parts)


def _operation_rows(
    root: Path, operations: Sequence[OperationEntry], pages: Mapping[Path, PageLink]
) -> Rows:
    rows = tuple(
        (
            _link(each.path, root, pages),
            each.state,
            each.answer or "; ".join(each.problems),
            str(each.go_on or ""),
        )
        for each in operations[:MOST]
    )
    wrong = frozenset(at for at, each in enumerate(operations) if _tone(each, pages) == "wrong")
    columns = ("folder", "state", "answer", "to go on")
    return Rows("Diagnoses, reductions and searches", columns, rows, wrong)


def _case_rows(root: Path, cases: Sequence[CaseEntry], pages: Mapping[Path, PageLink]) -> Rows:
    ordered = sorted(cases, key=lambda each: each.failure is None)[:MOST]
    rows = tuple(
        (
            _link(each.path, root, pages),
            each.target,
            "" if each.call_nodes is None else f"{each.call_nodes:,}",
            each.problem or each.failure or "no failure recorded",
        )
        for each in ordered
    )
    wrong = frozenset(at for at, each in enumerate(ordered) if each.failure is not None)
    columns = ("case", "target", "calls", "state")
    return Rows(
        f"{count_of(len(cases), 'case')}, the failing ones first",
        columns,
        rows,
        wrong,
        frozenset({2}),
    )


def _link(path: Path, root: Path, pages: Mapping[Path, PageLink]) -> Cell:
    name = str(path.relative_to(root)) if path != root else str(path)
    return Link(name, pages[path].path) if path in pages else name
