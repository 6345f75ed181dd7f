"""The error of each value after each step of a compile, as inline SVG in the style of the page.

Steps from left to right, units in the last place upwards, logarithmic. A dot is one value that the
step changed; a stem leads to the worst of the step.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from ctk.toolkit.case.formats.scrub import scrub_line
from ctk.toolkit.compile_log.trace.document import TraceError, TraceStep

WIDTH, LEFT, RIGHT = 1160, 64, 16
TOP, HEIGHT, BELOW = 26, 230, 30
MOST_DOTS = 40
"""Values of one step that have a dot; the worst ones."""

ALL_DOTS = 4_000
"""Dots of all steps, about 500 kB: of many steps each has fewer."""

_INFINITE = 1e12
"""The place of an infinite error, and the top of the axis."""


def plot_errors(steps: Sequence[TraceStep]) -> str:
    """Return the picture of the steps with measured errors; empty if no step changed a value."""
    worst = {at: _worst(step) for at, step in enumerate(steps) if step.errors}
    if not worst:
        return ""
    most = max(10.0, *worst.values())
    dots = min(MOST_DOTS, max(1, ALL_DOTS // len(worst)))
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {TOP + HEIGHT + BELOW}" role="img" '
        f'aria-label="Largest error of each step in units in the last place">',
        *_wrong_bands(steps),
        *_axis(most),
        _stems([(_x(at, len(steps)), _y(value, most)) for at, value in worst.items()]),
        *(dot for at in worst for dot in _dots(steps[at], _x(at, len(steps)), most, dots)),
        *_names(steps, worst, most),
        "</svg>",
    ]
    return "".join(parts)


def _x(at: int, count: int) -> float:
    width = WIDTH - LEFT - RIGHT
    return LEFT + width * (at + 0.5) / count


def _y(ulp: float, most: float) -> float:
    return TOP + HEIGHT * (1 - math.log1p(min(ulp, most)) / math.log1p(most))


def _ulp(error: TraceError) -> float:
    return _INFINITE if error.after.ulp is None else min(error.after.ulp, _INFINITE)


def _worst(step: TraceStep) -> float:
    return max(map(_ulp, step.errors or ()))


def _wrong_bands(steps: Sequence[TraceStep]) -> Iterator[str]:
    width = max(4.0, (WIDTH - LEFT - RIGHT) / len(steps))
    for at, step in enumerate(steps):
        if step.status == "wrong":
            left = _x(at, len(steps)) - width / 2
            yield (
                f'<rect class="bad-band" x="{left:.1f}" y="{TOP}" width="{width:.1f}" '
                f'height="{HEIGHT}"><title>{escape(scrub_line(step.id))}: wrong</title></rect>'
            )


def _axis(most: float) -> Iterator[str]:
    yield f'<path class="axis" d="M{LEFT} {TOP}V{TOP + HEIGHT}H{WIDTH - RIGHT}"/>'
    yield f'<text x="{LEFT}" y="14">error, units in the last place</text>'
    powers = range(int(math.log10(most)) + 1)
    for value in (0, *(10**power for power in powers[:: 1 + len(powers) // 7])):
        line = _y(value, most)
        text = (
            "∞"
            if value >= _INFINITE
            else f"{value:,}"
            if value < 1e6
            else f"1e{len(str(value)) - 1}"
        )
        yield f'<path class="grid" d="M{LEFT} {line:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{line + 4:.1f}" text-anchor="end">{text}</text>'
    place = f'x="{WIDTH - RIGHT}" y="{TOP + HEIGHT + 20}"'
    yield f'<text {place} text-anchor="end">steps of the compile</text>'


def _dots(step: TraceStep, x: float, most: float, count: int) -> Iterator[str]:
    kind = "dot bad" if step.status == "wrong" else "dot"
    worst_first = sorted(step.errors or (), key=_ulp, reverse=True)
    for error in worst_first[:count]:
        size = "infinite" if error.after.ulp is None else f"{error.after.ulp:.3g} ULP"
        name = escape(scrub_line(f"{error.node or error.value} after {step.id}: {size}"))
        yield (
            f'<circle class="{kind}" cx="{x:.1f}" cy="{_y(_ulp(error), most):.1f}" r="3">'
            f"<title>{name}</title></circle>"
        )


def _stems(points: Sequence[tuple[float, float]]) -> str:
    path = "".join(f"M{x:.1f} {TOP + HEIGHT}V{y:.1f}" for x, y in points)
    return f'<path class="most" d="{path}"/>'


def _names(steps: Sequence[TraceStep], worst: dict[int, float], most: float) -> Iterator[str]:
    """Yield the name of the first wrong step, at its dot."""
    at = next((at for at in worst if steps[at].status == "wrong"), None)
    if at is not None:
        x, y = _x(at, len(steps)), _y(worst[at], most)
        anchor, shift = ("end", -10) if x > WIDTH / 2 else ("start", 10)
        yield (
            f'<text class="bad" x="{x + shift:.1f}" y="{max(TOP + 14, y + 4):.1f}" '
            f'text-anchor="{anchor}">{escape(scrub_line(steps[at].id, 80))}</text>'
        )
