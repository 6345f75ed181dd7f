"""The history of a reduction: a line per answer as it comes, and a plot of them at the end.

    history.jsonl    {"question":0,"seconds":0.0,"step":"start",…}: the given case
                     {"question":21,"seconds":12.1,"step":"remove","verdict":"passes",…}
    history.svg      size over questions (`history_plot.py`)

A resumed run appends its lines, with questions and seconds counted on; a remembered answer has no
line. A history that cannot be written stops nothing.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.bounded_file import check_no_link, read_bounded
from ctk.toolkit.case.formats.checked_types import Count, Line
from ctk.toolkit.case.formats.files import append_line, write_text
from ctk.toolkit.case.formats.limits import EVENTS_NBYTES
from ctk.toolkit.case.formats.schema import decode, document, encode
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.history_plot import Point, svg_of
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.reduce.progress import Progress
from ctk.toolkit.reduce.size import counts_of

HISTORY, PLOT = "history.jsonl", "history.svg"

OnProgress = Callable[[Progress], None]


@document
@dataclass(frozen=True, slots=True)
class Answered:
    """A line: the answer to a question, and how large the smallest case was after it."""

    question: Count
    seconds: float
    step: Line
    verdict: Verdict
    call_nodes: Count
    inputs: Count
    elements: Count


class History:
    """Writes the history of one reduction; called after each answer."""

    def __init__(self, run: Operation, given: Case, on_progress: OnProgress | None) -> None:
        self._run, self._on_progress = run, on_progress
        last = next(reversed(read_history(run.folder)), None)
        self._questions, self._seconds = (last.question, last.seconds) if last else (0, 0.0)
        if last is None:
            self._write(0, 0.0, "start", Verdict.REPRODUCES, given)

    def __call__(self, state: Progress) -> None:
        """Write a line, then call `on_progress`."""
        seconds = round(self._seconds + state.seconds, 3)
        question = self._questions + state.questions
        self._write(question, seconds, state.step, state.verdict, state.best)
        if self._on_progress is not None:
            self._on_progress(state)

    def _write(
        self, question: int, seconds: float, step: str, verdict: Verdict, best: Case
    ) -> None:
        counts = counts_of(best)
        sizes = (counts.call_nodes, counts.inputs, counts.elements)
        line = Answered(question, seconds, step, verdict, *sizes)
        text = json.dumps(encode(line), separators=(",", ":"))
        self._run.save(HISTORY, lambda: append_line(self._run.folder / HISTORY, text))

    def draw(self) -> None:
        """Draw all lines."""
        points = [
            Point(each.question, each.step, each.call_nodes, each.elements)
            for each in read_history(self._run.folder)
        ]
        if points:
            svg = svg_of(points)
            self._run.save(PLOT, lambda: write_text(self._run.folder / PLOT, svg))


def read_history(folder: Path) -> list[Answered]:
    """Return the lines of a history without torn or foreign ones."""
    path = folder / HISTORY
    if not path.is_file():
        return []
    try:
        check_no_link(folder, path)
        text = read_bounded(path, EVENTS_NBYTES).decode(errors="replace")
    except (CaseError, OSError):  # the history is for display only
        return []
    lines: list[Answered] = []
    for line in text.splitlines():
        with suppress(CaseError):
            lines.append(decode(Answered, line, where=HISTORY))
    return lines
