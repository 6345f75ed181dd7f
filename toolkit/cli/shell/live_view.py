"""The live view of a command on a terminal: its current step, and the progress of a reduction.

    98 -> 45 call nodes, 3 inputs, 24,576 elements
    21 questions (2.3/s), 4 known; 12 s; last: passes (remove)
    step         questions  won  call nodes  elements
    drop_suffix  3          1    -40
    remove       18         4    -13         -8,192
    the graph now, its last 4 of 48 lines:
      mul_5: float32[4, 32, 64] = _operator.mul(0.5, input_11)
      ...
    - minifying: remove  ----------  21/200 0:00:12 ETA 0:01:40

A thread draws it four times a second from the last report, which is immutable. Log lines and
output meanwhile stand above it. At the end the last state stays. Direct writes of a compiler to the
terminal are not held back.
"""

import contextlib
import itertools
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.cli.shell.answer import Rows
from ctk.toolkit.processes.link import report_alive

if TYPE_CHECKING:
    from ctk.toolkit.case.case import Case
    from ctk.toolkit.reduce.progress import Progress as Reduction
    from ctk.toolkit.reduce.size import Counts

PER_SECOND = 4
GRAPH_LINES = 8
_FIXED_LINES = 6
"""Two lines of numbers, two headings, the bar, and the line of the cursor."""


@contextlib.contextmanager
def live_progress(out: TextIO) -> Generator["LiveReporter"]:
    """Draw the reports of the block while it runs."""
    report = LiveReporter()
    live = Live(
        console=Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False),
        get_renderable=lambda: report.shown,
        refresh_per_second=PER_SECOND,
    )
    with live:
        live.console.show_cursor(True)  # a killed process would leave it hidden
        try:
            with _logs_above():
                yield report
        finally:
            live.refresh()  # the last report is shown even after a short run
            report.finish()
            live.transient = not report.view.is_begun


@contextlib.contextmanager
def _logs_above() -> Generator[None]:
    """Redirect handlers that hold the terminal above the live view, as `sys.stderr` already is."""
    held: list[tuple[logging.StreamHandler[Any], object]] = []
    behind = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # while something is drawn
    for each in [*logging.getLogger().handlers, *logging.getLogger("ctk").handlers]:
        if isinstance(each, logging.StreamHandler):
            handler = cast("logging.StreamHandler[Any]", each)
            if handler.stream in (sys.__stderr__, behind):
                held.append((handler, handler.stream))
    for handler, _ in held:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler, stream in held:
            handler.setStream(stream)


class LiveReporter:
    """Receives the progress of a command; a thread draws it.

    Attributes:
        view: The reduction, from its first answer on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = ReductionView(clock)
        self._is_done = False
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            auto_refresh=False,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        report_alive()
        self.view.stop()
        self._move(message, done, total)

    def reduction(self, state: "Reduction") -> None:
        """Show how far a reduction is."""
        report_alive()
        self.view.tell(state)
        self._move(f"minifying: {state.step}", state.questions, state.budget.questions)

    def finish(self) -> None:
        """Leave the bar out from now on, and stop the clock."""
        self._is_done = True
        self.view.stop()

    def _move(self, message: str, done: int | None, total: int | None) -> None:
        self._bar.update(
            self._task, description=one_line(message), completed=done or 0, total=total
        )

    @property
    def shown(self) -> RenderableType:
        """The current view."""
        parts: list[RenderableType] = [self.view] if self.view.is_begun else []
        return Group(*parts, *([] if self._is_done else [self._bar]))


class ReductionView:
    """The last report of a reduction: a renderable as wide and high as the terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: Reduction | None = None
        self._told_at = 0.0
        self._is_stopped = False
        self._counts: tuple[Case, Counts] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether there is something to show."""
        return self._state is not None

    def tell(self, state: "Reduction") -> None:
        """Take note of a new state; the clock goes on from there."""
        self._told_at, self._state, self._is_stopped = self._clock(), state, False

    def stop(self) -> None:
        """Stop the clock: something else is done now, or nothing."""
        self._is_stopped = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = self._state
        if state is None:
            return
        yield from self._numbers(state)
        room = console.size.height
        steps = [name for name, each in state.statistics.items() if each.questions or each.useful]
        graph = min(GRAPH_LINES, max(room - _FIXED_LINES - len(steps), 0))
        if room >= _FIXED_LINES + len(steps):
            yield steps_table(state, steps)
        if graph:
            yield from self._graph(state, graph)

    def _numbers(self, state: "Reduction") -> Iterator[Text]:
        """Yield how small it is, and how fast it goes."""
        counts = self._counts_of(state.best)
        yield _line(
            f"{state.call_nodes_before:,} -> {counts.call_nodes:,} call nodes, "
            f"{counts.inputs:,} input{'' if counts.inputs == 1 else 's'}, "
            f"{counts.elements:,} element{'' if counts.elements == 1 else 's'}",
            style="bold",
        )
        waited = 0.0 if self._is_stopped else self._clock() - self._told_at
        seconds = state.seconds + waited
        ahead = f", {state.ahead} asked ahead" if state.ahead and not self._is_stopped else ""
        slow = f" {waited:.0f} s ago" if waited >= 1 else ""
        yield _line(
            f"{state.questions:,} questions ({state.questions / max(seconds, 0.1):.1f}/s){ahead}, "
            f"{state.cached:,} known; {_time(seconds)}; "
            f"last{slow}: {state.verdict.value} ({state.step})"
        )

    def _graph(self, state: "Reduction", count: int) -> Iterator[Text]:
        """Yield the last lines of the graph as it is now."""
        from ctk.toolkit.case.graphs.graph_lines import last_lines

        lines = last_lines(state.best.graph, count)
        whole = len(state.best.graph.graph.nodes)
        cut = f", its last {len(lines)} of {whole:,} lines" if whole > len(lines) else ""
        yield _line(f"the graph now{cut}:", style="bold")
        for line in lines:
            yield _line(f"  {line}")

    def _counts_of(self, best: "Case") -> "Counts":
        """Return the counts of the best case, taken once for each."""
        from ctk.toolkit.reduce.size import counts_of

        if self._counts is None or self._counts[0] is not best:
            self._counts = (best, counts_of(best))
        return self._counts[1]


def steps_table(state: "Reduction", steps: list[str]) -> Table:
    """Return one row per step: its questions, its successes, its gains."""
    rows = Rows(box=None, pad_edge=False, header_style="bold")
    for column in ("step", "questions", "won", "call nodes", "elements"):
        rows.add_column(column, no_wrap=True, justify="left" if column == "step" else "right")
    for name in steps:
        each = state.statistics[name]
        asked = (f"{number:,}" if number else "" for number in (each.questions, each.useful))
        won = (f"{-number:+,}" if number else "" for number in (each.nodes, each.elements))
        rows.add_row(name, *asked, *won)
    return rows


def _line(text: str, style: str = "") -> Text:
    """Return one line that is cut where the terminal ends."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = itertools.dropwhile(lambda part: not part[0], [(hours, "h"), (minutes, "min")])
    return " ".join([*(f"{number} {unit}" for number, unit in parts), f"{rest} s"])
