"""The history of a reduction as a picture: SVG, made by hand, that any browser shows.

Two panels over the same questions, both logarithmic: call nodes, and elements of inputs. Each stair
has the colour of the step that asked. A page replaces the colours by its own, through the classes.
This module reads no files and does not measure text.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from ctk.toolkit.case.formats.scrub import scrub_line

WIDTH, LEFT, RIGHT = 900, 70, 190
PANEL, GAP, TOP = 200, 40, 40

COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#004488",
    "#ddaa33", "#117733", "#882255", "#999933", "#cc6677", "#332288", "#44aa99", "#777777",
)  # fmt: skip
"""For the steps, in the order in which they first asked; then from the start again.

Source: the bright and muted schemes of Paul Tol, which colour-blind people can tell apart.
"""


@dataclass(frozen=True, slots=True)
class Point:
    """The smallest case after a question, and the step that had asked it."""

    question: int
    step: str
    call_nodes: int
    elements: int


def svg_of(points: Sequence[Point]) -> str:
    """Return the picture of at least one point, by question."""
    steps = dict.fromkeys(point.step for point in points)
    colours = {step: COLOURS[place % len(COLOURS)] for place, step in enumerate(steps)}
    height = TOP + 2 * PANEL + GAP + 50
    first, last = points[0], points[-1]
    title = (
        f"{first.call_nodes:,} to {last.call_nodes:,} call nodes, {first.elements:,} to "
        f"{last.elements:,} elements, {last.question:,} questions"
    )
    lower = TOP + PANEL + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" class="plot" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect class="paper" width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 16, title, size=14),
        *_panel(points, "call nodes", lambda point: point.call_nodes, TOP, colours),
        *_panel(points, "elements of inputs", lambda point: point.elements, lower, colours),
        _text((LEFT + WIDTH - RIGHT) // 2, lower + PANEL + 36, "questions", anchor="middle"),
        *_legend(colours),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(
    points: Sequence[Point],
    label: str,
    size: Callable[[Point], int],
    top: int,
    colours: dict[str, str],
) -> Iterator[str]:
    """Yield the frame, the ticks and the stairs of one panel."""
    most = max(10, *(size(point) for point in points))
    end = max(point.question for point in points)
    right = WIDTH - RIGHT

    def x(question: float) -> float:
        return LEFT + (right - LEFT) * question / max(end, 1)

    def y(value: int) -> float:  # log(1 + n), so that 0 has a place
        return top + PANEL * (1 - math.log1p(value) / math.log1p(most))

    frame = f"M{LEFT} {top}V{top + PANEL}H{right}"
    yield f'<path class="axis" fill="none" stroke="#dddddd" d="{frame}"/>'
    yield _text(LEFT, top - 6, label)
    for value in _powers(most):
        yield f'<path class="grid" d="M{LEFT} {y(value):.1f}H{right}" stroke="#eeeeee"/>'
        yield _text(LEFT - 6, y(value) + 4, f"{value:,}", anchor="end")
    for question in (0, end // 2, end):
        yield _text(x(question), top + PANEL + 16, f"{question:,}", anchor="middle")
    for step, path in _stairs(points, size, x, y):
        number = COLOURS.index(colours[step])
        how = f'class="c{number}" fill="none" stroke="{colours[step]}" stroke-width="2"'
        yield f'<path {how} d="{path}"><title>{escape(scrub_line(step))}</title></path>'


def _stairs(
    points: Sequence[Point],
    size: Callable[[Point], int],
    x: Callable[[float], float],
    y: Callable[[int], float],
) -> Iterator[tuple[str, str]]:
    """Yield a path per run of questions of one step: along the questions, and down or up."""
    start = points[0]
    step, path = start.step, f"M{x(max(start.question - 1, 0)):.1f} {y(size(start)):.1f}"
    for before, point in pairwise([start, *points]):
        if point.step != step:
            yield step, f"{path}H{x(before.question):.1f}"
            step = point.step
            path = f"M{x(before.question):.1f} {y(size(before)):.1f}"
        if size(point) != size(before):
            path += f"H{x(point.question):.1f}V{y(size(point)):.1f}"
    yield step, f"{path}H{x(points[-1].question):.1f}"


def _powers(most: int) -> list[int]:
    """Return the numbers on the axis: 0, 1, 10, 100, up to the most; of many, every other."""
    powers = [10**exponent for exponent in range(int(math.log10(most)) + 1)]
    return [0, *powers[:: 1 + len(powers) // 6]]


def _legend(colours: dict[str, str]) -> Iterator[str]:
    left, between = WIDTH - RIGHT + 20, min(20, (2 * PANEL + GAP) / max(len(colours), 1))
    for place, (step, colour) in enumerate(colours.items()):
        line = TOP + 6 + place * between
        how = f'class="f{COLOURS.index(colour)}" fill="{colour}"'
        yield f'<rect {how} x="{left}" y="{line - 6:.1f}" width="14" height="8"/>'
        yield _text(left + 20, line + 2, step)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="#333333">{escape(scrub_line(text))}</text>'
