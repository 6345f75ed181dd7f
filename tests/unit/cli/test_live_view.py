"""The live view of a reduction: what it shows, on which terminals, and what it leaves behind."""

import io
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch.fx import symbolic_trace

import ctk
from ctk.toolkit.case.graphs.graph_lines import graph_lines, last_lines
from ctk.toolkit.cli.shell.live_view import LiveReporter, ReductionView, live_progress
from ctk.toolkit.cli.shell.progress import LogReporter, progress, progress_told
from ctk.toolkit.reduce.progress import Progress

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def states() -> list[Progress]:
    """A reduction of 41 calls to two, answer by answer."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.tanh(x)
        x = torch.relu(torch.sin(x))
        for _ in range(19):
            x = torch.cos(x)
        return x

    def fails(gm: torch.fx.GraphModule, inputs: tuple[object, ...]) -> bool:
        return {torch.sin, torch.relu} <= {node.target for node in gm.graph.nodes}

    told: list[Progress] = []
    ctk.minimize(symbolic_trace(program), [torch.randn(3)], fails, on_progress=told.append)
    return told


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)


def drawn(view: ReductionView, width: int = 80, height: int = 40) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height, color_system=None)
    console.print(view)
    return [line.rstrip() for line in ESCAPES.sub("", out.getvalue()).splitlines()]


def test_it_shows_size_rate_steps_and_graph(states: list[Progress]) -> None:
    now = [100.0]
    view = ReductionView(clock=lambda: now[0])
    view.tell(states[-1])
    now[0] += 65.0
    size, rate, head, *rows = drawn(view)
    assert re.fullmatch(r"41 -> 2 call nodes, 1 input, \d elements?", size)
    assert rate.startswith(f"{states[-1].questions} questions (") and re.search(
        r"; 1 min \d+ s;", rate
    )
    assert re.search(r"last 65 s ago: \w+ \(\w+\)$", rate)
    assert head.split() == ["step", "questions", "won", "call", "nodes", "elements"]
    end = head.index("call nodes") + len("call nodes")
    won = [re.search(r" ([-+]\d+)$", row[:end]) for row in rows if len(row) >= end]
    assert sum(int(row[1]) for row in won if row) == 2 - 41
    assert "relu(sin)" in rows[-2]
    assert rows[-1].startswith("  return (")
    view.stop()
    assert " ago" not in drawn(view)[1]


@pytest.mark.parametrize(("width", "height"), [(200, 60), (80, 24), (40, 12), (20, 5), (8, 3)])
def test_it_fits_any_terminal(states: list[Progress], width: int, height: int) -> None:
    view = ReductionView()
    for state in states:
        view.tell(state)
        lines = drawn(view, width, height)
        assert max(map(len, lines)) <= width
        assert len(lines) <= max(height - 1, 2), lines


def test_a_graph_of_any_size_shows_its_end(states: list[Progress]) -> None:
    graph = states[0].best.graph
    assert last_lines(graph, 3) == graph_lines(graph)[-3:]
    assert last_lines(graph, 1000) == graph_lines(graph)


def test_the_last_state_stays_and_the_bar_goes(states: list[Progress]) -> None:
    out = Terminal()
    with live_progress(out) as report:
        report("bisect graph0")
        for state in states:
            report.reduction(state)
        report("run the repro")
    last = ESCAPES.sub("", out.getvalue().rpartition("\x1b[2K")[2])
    assert "return (" in last and "run the repro" not in last
    assert out.getvalue().count("\x1b[?25h") >= 1  # the cursor is back


def test_without_a_reduction_nothing_stays() -> None:
    out = Terminal()
    with live_progress(out) as report:
        report("bisect graph0", 1, 3)
        report("[bold]check\x1b[2K")
    assert "minifying" not in out.getvalue()
    assert ESCAPES.sub("", out.getvalue().rpartition("\x1b[2K")[2]).strip() == ""


def test_ctrl_c_leaves_the_terminal_as_it_was(states: list[Progress]) -> None:
    out, before = Terminal(), (sys.stdout, sys.stderr)
    with pytest.raises(KeyboardInterrupt), live_progress(out) as report:
        report.reduction(states[3])
        raise KeyboardInterrupt
    assert (sys.stdout, sys.stderr) == before
    assert out.getvalue().rstrip().endswith("\x1b[?25h")
    assert f"{states[3].questions} questions" in out.getvalue()


def test_what_is_logged_and_printed_stands_above(
    states: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    handler = logging.StreamHandler(out)  # as --verbose has it: it holds the terminal itself
    logger = logging.getLogger("ctk")
    logger.addHandler(handler)
    try:
        with live_progress(out) as report:
            report.reduction(states[0])
            logger.error("a log line")
            print("a printed line", file=sys.stderr)
            report.reduction(states[-1])
        assert handler.stream is out
    finally:
        logger.removeHandler(handler)
    lines = ESCAPES.sub("", out.getvalue()).splitlines()
    assert "a log line" in lines and "a printed line" in lines


@pytest.mark.parametrize(
    "plain", ["NO_COLOR=1", "TERM=dumb", "TERM=unknown", "--json", "no terminal"]
)
def test_elsewhere_there_are_lines(
    plain: str, states: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = plain.partition("=")
    if value:
        monkeypatch.setenv(name, value)
    out = io.StringIO() if plain == "no terminal" else Terminal()
    with progress_told("lines" if plain == "--json" else "live"), progress(out) as report:
        assert isinstance(report, LogReporter)
        report.reduction(states[-1])
    assert out.getvalue() == f"ctk: minifying: 41 -> 2 call nodes ({states[-1].questions})\n"


def test_a_terminal_gets_the_view() -> None:
    with progress(Terminal()) as report:
        assert isinstance(report, LiveReporter)


def test_steps_say_what_they_have_won(states: list[Progress]) -> None:
    first, last = states[0], states[-1]
    assert not any(each.nodes for each in first.statistics.values())  # a copy: it stays as it was
    assert sum(each.nodes for each in last.statistics.values()) == 41 - 2
    assert last.best.graph is not first.best.graph


def test_it_is_drawn_a_few_times_a_second(
    states: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings: list[int] = []
    draw: Callable[..., object] = ReductionView.__rich_console__
    monkeypatch.setattr(
        ReductionView,
        "__rich_console__",
        lambda self, *more: (drawings.append(1), draw(self, *more))[1],
    )
    with live_progress(Terminal()) as report:
        for state in states * 50:
            report.reduction(state)
    assert len(drawings) < 20 < len(states * 50)


def test_nobody_is_asked_to_wait(tmp_path: Path) -> None:
    with progress_told("nothing"), progress(Terminal()) as report:
        report("bisect")
