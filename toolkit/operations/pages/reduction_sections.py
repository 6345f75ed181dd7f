"""The sections of a page about a reduction: its plot, the proof that it is minimal, its script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.case.formats.bounded_file import check_no_link, read_bounded
from ctk.toolkit.case.formats.limits import TEXT_NBYTES
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.report.certificate_file import (
    CERTIFICATE,
    NEIGHBOUR,
    CertificateRecord,
    answer_of,
    choose_shown,
    parts_of,
    read_certificate,
    reason_of,
    verdict_of,
)
from ctk.toolkit.operations.report.history_plot import Point, svg_of
from ctk.toolkit.operations.session.history import Answered, read_history
from ctk.toolkit.page.page import (
    Absent,
    Bars,
    Block,
    Code,
    Picture,
    Prose,
    Rows,
    Section,
    section,
)

_MOST_EDITS = 400
_CARRIED = "# ----------"
"""Begins the line of a repro script from which on it holds code of ctk."""


def reduction_section(folder: Path, again: NextStep) -> Section:
    """Return the section with the plot of a reduction, and the contribution of each step."""
    lines = read_history(folder)
    if len(lines) < 2:
        return section("Reduction", (), Absent("The case was not reduced.", again))
    points = [Point(each.question, each.step, each.call_nodes, each.elements) for each in lines]
    first, last = lines[0], lines[-1]
    caption = (
        f"{first.call_nodes:,} to {count_of(last.call_nodes, 'call node')} in "
        f"{count_of(last.question, 'question')} and {last.seconds:.1f} s"
    )
    return section("Reduction", (Picture(svg_of(points), caption), *_contributions(lines)))


@dataclass(slots=True)
class _Gain:
    """The gain of a step of the reducer: nodes and elements that its questions took away."""

    questions: int = 0
    useful: int = 0
    nodes: int = 0
    elements: int = 0


def _contributions(lines: Sequence[Answered]) -> tuple[Block, ...]:
    gains: dict[str, _Gain] = {}
    for before, after in pairwise(lines):
        gain = gains.setdefault(after.step, _Gain())
        nodes, elements = before.call_nodes - after.call_nodes, before.elements - after.elements
        gain.questions += max(1, after.question - before.question)
        gain.useful += bool(nodes or elements or before.inputs != after.inputs)
        gain.nodes += nodes
        gain.elements += elements
    blocks: list[Block] = []
    for label, amount in (("Call nodes", "nodes"), ("Elements of inputs", "elements")):
        taken = {name: getattr(gain, amount) for name, gain in gains.items()}
        most = max(1, *taken.values())
        bars = tuple((name, n / most, f"{n:,}") for name, n in taken.items() if n > 0)
        blocks += [Bars(f"{label} that each step took away", bars)] if bars else []
    rows = tuple(
        (name, f"{gain.questions:,}", f"{gain.useful:,}", f"{-gain.nodes:,}", f"{-gain.elements:,}")
        for name, gain in sorted(gains.items(), key=lambda pair: -pair[1].useful)
    )
    columns = ("step", "questions", "useful", "call nodes", "elements")
    table = Rows("Questions of each step", columns, rows, numbers=frozenset(range(1, 5)))
    return (*blocks, table)


def certificate_section(minimal: Path, again: NextStep) -> Section:
    """Return the section with the refused edits of the smallest case, and the neighbour."""
    if not (minimal / CERTIFICATE).exists():
        why = "No certificate was written: no reduction has ended here."
        return section("Certificate", (), Absent(why, again))
    try:
        record = read_certificate(minimal)
    except CaseError as error:
        return section("Certificate", (), Absent(one_line(f"It cannot be shown: {error}.")))
    blocks: list[Block] = [Prose(f"{answer_of(record)}.".capitalize()), _edits(record)]
    return section("Certificate", (*blocks, *_neighbour(minimal, record)))


def _edits(record: CertificateRecord) -> Rows:
    rows: list[tuple[str, ...]] = []
    most = _MOST_EDITS // max(1, len(record.nodes)) + 3
    for part in parts_of(record):
        shown, rest = choose_shown(part.refusals, most)
        names = (part.line, *[""] * len(shown))
        rows += [
            (name, each.edit, verdict_of(each), reason_of(each))
            for name, each in zip(names, shown, strict=False)
        ]
        rows += [("", f"and {len(rest)} more", "", "")] if rest else []
    label = "Each edit that would make it smaller, and its outcome"
    return Rows(label, ("node", "edit", "outcome", "reason"), tuple(rows))


def _neighbour(minimal: Path, record: CertificateRecord) -> Iterable[Block]:
    folder = minimal.parent / NEIGHBOUR
    if record.neighbour is None:
        yield Prose("No smaller case passes.")
        return
    yield Prose(f"The nearest case that passes: {record.neighbour.edit}.")
    sides = [read_listing(each, "graph.py") for each in (minimal, folder)]
    for label, text in zip(("Smallest failing graph", "Nearest passing graph"), sides, strict=True):
        if text:
            yield Code(label, text)


def repro_section(script: Path | None, root: Path, how: str, again: NextStep | None) -> Section:
    """Return the section with the repro script.

    Args:
        how: The outcome of its run in a clean process.
    """
    text = read_listing(root, str(script.relative_to(root))) if script is not None else ""
    if script is None or not text:
        return section("Repro", (), Absent("No script was written.", again))
    own, mark, _ = text.partition(f"\n{_CARRIED}")
    blocks: list[Block] = [Prose(how), Code("The program and its inputs", own if mark else text)]
    if mark:
        blocks.append(
            Code("The whole script, with the code of ctk that judges it", text, is_folded=True)
        )
    return section("Repro", blocks)


def read_listing(folder: Path, name: str) -> str:
    """Return a text file of a folder; empty if it is missing, a link, or too large."""
    path = folder / name
    try:
        check_no_link(folder, path)
        return read_bounded(path, TEXT_NBYTES).decode("utf-8", "replace") if path.is_file() else ""
    except (CaseError, OSError):
        return ""
