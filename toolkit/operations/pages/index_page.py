"""The page of a folder of many: cases and operations, with links to a page of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.bisect.suspects import list_names
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case_listing import CaseEntry, find_cases
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.operations.pages.dump_sections import dump_sections
from ctk.toolkit.operations.session.operation_listing import OperationEntry, find_operations
from ctk.toolkit.page.page import Absent, Answers, Cell, Link, Page, Rows, Section, Step, section
from ctk.toolkit.watch.dump_index import read_dump_index

MOST = 500
"""Entries that have a row and a page of their own."""


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


def page_of_entries(root: Path, entries: Entries, links: Mapping[Path, str]) -> Page:
    """Return the index page.

    Args:
        links: The relative path of the page of each folder.
    """
    failing = [each for each in entries.cases if each.failure is not None]
    bad = [each for each in entries.operations if " fails" in each.answer]
    counts = f"{count_of(len(entries.cases), 'case')}, {len(failing)} failing"
    if entries.operations:
        counts += f"; {count_of(len(entries.operations), 'operation')}"
    steps: tuple[Step, ...] = ()
    if failing:
        remark = "the culprit and the smallest repro of the first failing case"
        steps = (Step(command_on("diagnose", failing[0].path), remark),)
    return Page(
        subject=root.name or str(root),
        tone="wrong" if failing or bad else "right",
        badge=f"{len(failing) + len(bad)} failing" if failing or bad else "no failure recorded",
        headline=f"{root}: {counts}",
        answers=Answers(
            _first_failure(failing, bad),
            _places(failing, bad),
            "Each case records the failure that was seen when it was written.",
            steps,
        ),
        sections=_sections(root, entries, links),
    )


def _first_failure(failing: Sequence[CaseEntry], bad: Sequence[OperationEntry]) -> str:
    if failing:
        return f"{failing[0].name}: {failing[0].failure}."
    return f"{bad[0].answer}." if bad else "No case records a failure."


def _places(failing: Sequence[CaseEntry], bad: Sequence[OperationEntry]) -> str:
    names = [str(each.path.name) for each in (*failing, *bad)]
    return f"{list_names(names, most=6)}." if names else "Nowhere."


def _sections(root: Path, entries: Entries, links: Mapping[Path, str]) -> tuple[Section, ...]:
    parts: list[Section] = []
    if entries.operations:
        parts.append(section("Operations", [_operation_rows(root, entries.operations, links)]))
    if entries.cases:
        parts.append(section("Cases", [_case_rows(root, entries.cases, links)]))
    parts += dump_sections(read_dump_index(root))
    if entries.is_cut or len(entries.cases) + len(entries.operations) > MOST:
        parts.append(section("Left out", [], Absent(f"Only the first {MOST} entries are listed.")))
    return tuple(parts)


def _operation_rows(
    root: Path, operations: Sequence[OperationEntry], links: Mapping[Path, str]
) -> Rows:
    rows = tuple(
        (
            _link(each.path, root, links),
            each.state,
            each.answer or "; ".join(each.problems),
            each.go_on or "",
        )
        for each in operations[:MOST]
    )
    wrong = frozenset(at for at, each in enumerate(operations) if " fails" in each.answer)
    columns = ("folder", "state", "answer", "to go on")
    return Rows("Diagnoses, reductions and searches", columns, rows, wrong)


def _case_rows(root: Path, cases: Sequence[CaseEntry], links: Mapping[Path, str]) -> Rows:
    ordered = sorted(cases, key=lambda each: each.failure is None)[:MOST]
    rows = tuple(
        (
            _link(each.path, root, links),
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


def _link(path: Path, root: Path, links: Mapping[Path, str]) -> Cell:
    name = str(path.relative_to(root)) if path != root else str(path)
    return Link(name, links[path]) if path in links else name
