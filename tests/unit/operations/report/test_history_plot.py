"""history.svg: stairs in the colours of the steps, whatever the sizes are."""

import re
from xml.etree import ElementTree

import pytest

from ctk.toolkit.operations.report.history_plot import (
    COLOURS,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Point,
    svg_of,
)

SVG = "{http://www.w3.org/2000/svg}"


def stairs(svg: str) -> list[tuple[str, str, str]]:
    """Return step, colour and path of each run of questions, both panels."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}path")
    titled = [(each, each.find(f"{SVG}title")) for each in found]
    return [
        (str(title.text), each.attrib["stroke"], each.attrib["d"])
        for each, title in titled
        if title is not None
    ]


def test_each_run_of_a_step_is_one_path_in_its_colour() -> None:
    sizes = [("start", 100), ("cut", 100), ("cut", 10), ("remove", 10), ("cut", 2)]
    points = [Point(n, step, size, 64) for n, (step, size) in enumerate(sizes, 1)]
    told = stairs(svg_of(points))
    steps = ["start", "cut", "remove", "cut"]
    assert [step for step, _, _ in told] == [*steps, *steps]
    colour = {step: colour for step, colour, _ in told}
    assert colour == dict(zip(("start", "cut", "remove"), COLOURS, strict=False))
    heights = [float(y) for _, _, path in told[:4] for y in re.findall(r"V([\d.]+)", path)]
    assert len(heights) == 2 and TOP < heights[0] < heights[1]  # down twice: 10, then 2
    assert not any("V" in path for _, _, path in told[4:])  # the elements stay


def test_runs_meet_and_end_at_the_last_question() -> None:
    points = [Point(1, "a", 9, 9), Point(2, "b", 5, 9), Point(9, "b", 5, 9)]
    (_, _, first), (_, _, second) = stairs(svg_of(points))[:2]
    assert second.partition("H")[0].split()[0][1:] == first.rpartition("H")[2]
    assert float(second.rpartition("H")[2]) == WIDTH - RIGHT
    assert first.startswith(f"M{LEFT:.1f} ")


@pytest.mark.parametrize("size", [0, 1, 10, 20_000, 10**12])
def test_any_size(size: int) -> None:
    svg = svg_of([Point(1, "a", size, size), Point(2, "a", 0, 0)])
    numbers = re.findall(r'y="([-\d.]+)"', svg)
    assert all(0 <= float(number) <= 600 for number in numbers)


def test_a_long_history_is_a_short_picture() -> None:
    points = [Point(n, "values", 2, 9) for n in range(1, 50_000)]
    assert len(svg_of(points)) < 10_000


def test_a_step_of_somebody_else_is_text() -> None:
    points = [Point(1, "<script>alert('&')</script>", 3, 3)]
    assert "<script" not in svg_of(points)
    assert stairs(svg_of(points))[0][0] == points[0].step
