"""A page becomes one HTML file: its parts, its plots, its frame for a notebook."""

import json
import re
from dataclasses import replace
from html import unescape

from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.trace.document import TraceError, TraceStep
from ctk.toolkit.operations.pages.trace_sections import find_focus, place_of, trace_sections
from ctk.toolkit.page.page import (
    Absent,
    Answers,
    Bars,
    Code,
    Facts,
    Focus,
    Link,
    Page,
    Rows,
    Section,
    section,
)
from ctk.toolkit.page.plots import MOST_DOTS, plot_errors
from ctk.toolkit.page.rendering import frame, render
from tests.helpers.made_traces import error, made_trace

ANSWERS = Answers("It is wrong.", "In a pass.", "By the proof.", (NextStep("ctk ls", "lists"),))


def page_with(*sections: Section) -> Page:
    return Page("graph0", "wrong", "fails", "graph0 fails", ANSWERS, sections)


def test_the_first_screen_has_four_answers_and_a_command_to_copy() -> None:
    text = render(page_with())
    for words in ("It is wrong.", "In a pass.", "By the proof.", 'data-copy="ctk ls"'):
        assert words in text
    assert text.index("What is wrong") < text.index("What to do now")


def test_blocks() -> None:
    blocks = (
        Facts((("failure", "accuracy"), ("excluded", "a"), ("excluded", "b"))),
        Rows("Cases", ("case", "calls"), ((Link("graph0", "graph0/report.html"), "3"),)),
        Bars("Nodes", (("cut", 0.5, "12"),)),
        Code("Source", "a\nb\nc", marked=frozenset({2})),
        Code("Changes", "-a\n+b\n c", is_diff=True, is_folded=True),
    )
    text = render(page_with(Section("All parts", blocks)))
    assert '<a href="graph0/report.html">graph0</a>' in text
    assert '<dt class="again">excluded</dt><dd>b</dd>' in text
    assert '<rect width="50.00" height="10"/>' in text
    assert 'a\n<span class="bad">b\n</span>c\n' in text
    assert '<span class="del">-a\n</span><span class="add">+b\n</span> c\n' in text
    assert 'href="#all-parts"' in text


def test_an_empty_section_says_why_and_how_to_fill_it() -> None:
    text = render(
        page_with(section("Graph", (), Absent("No compile was recorded.", NextStep("ctk x"))))
    )
    assert "No compile was recorded." in text and 'data-copy="ctk x"' in text


def test_a_page_without_a_trace_carries_no_viewers() -> None:
    small, trace = render(page_with()), made_trace()
    full = render(replace(page_with(), trace=trace, focus=find_focus(trace)))
    assert "dagre" not in small and len(small) < 40_000 < len(full)
    data = re.search(r'id="data">(.*?)</script>', full)
    assert data and json.loads(data[1])["focus"]["label"] == "first wrong"


def test_a_frame_has_no_rights_of_its_notebook() -> None:
    text = frame(page_with())
    assert text.startswith('<iframe sandbox="allow-scripts"')
    assert unescape(text).count("<!DOCTYPE html>") == 1 and text.count('"') % 2 == 0


def test_the_focus_is_the_first_wrong_step() -> None:
    trace = made_trace()
    focus = find_focus(trace)
    assert trace.steps[focus.step].id == "joint/fold_scale_into_add"
    assert focus.nodes == ("add_tensor_2",) and place_of(trace, focus) == "model.py:32"
    kernel = made_trace(kernel=True)
    assert kernel.steps[find_focus(kernel).step].kernel is not None


def test_the_sections_of_a_kernel_mark_its_wrong_line() -> None:
    trace = made_trace(kernel=True)
    parts = trace_sections(trace, find_focus(trace), "", None)
    (kernel,) = (part for part in parts if part.title == "Kernel")
    (source,) = (block for block in kernel.blocks if isinstance(block, Code) and block.marked)
    marked = [line for line, mark in source.lines if mark]
    assert marked == ["        out[i] = in1[i] + in0[i];"]
    lowering = TraceStep("lowered/lower.aten.add.Tensor", "pass", "lowered", None, 0)
    guilty = replace(trace, steps=(*trace.steps, lowering))
    (shown,) = (
        part
        for part in trace_sections(guilty, Focus(len(trace.steps), (), "culprit"), "", None)
        if part.title == "Kernel"
    )
    assert shown.blocks == kernel.blocks


def test_without_a_trace_one_section_says_so() -> None:
    trace = made_trace()
    parts = trace_sections(None, find_focus(trace), "Nothing was recorded.", None)
    assert [part.title for part in parts] == ["Compile"]


def sorted_errors(step: TraceStep) -> list[TraceError]:
    return sorted(step.errors or (), key=lambda each: -(each.after.ulp or 0.0))


def test_the_plot_of_errors() -> None:
    steps = made_trace().steps
    svg = plot_errors(steps)
    names = re.findall(r"<title>(\S+) after (\S+):", svg)
    errors = [error for step in steps for error in sorted_errors(step)[:MOST_DOTS]]
    assert len(names) == len(errors) and {node for node, _ in names} == {e.node for e in errors}
    assert "joint/fold_scale_into_add</text>" in svg
    numbers = [float(y) for y in re.findall(r'cy="([-\d.]+)"', svg)]
    assert all(20 <= number <= 260 for number in numbers)
    assert plot_errors([]) == "" == plot_errors(made_trace().steps[:2])


def test_a_plot_of_many_steps_is_small() -> None:
    (step,) = [step for step in made_trace().steps if step.status == "wrong"]
    errors = (step.errors or ())[:1] * 50
    svg = plot_errors([replace(step, errors=errors)] * 2_000)
    assert len(svg) < 1 << 20 and svg.count("<circle") >= 2_000


def test_infinite_errors_have_a_place() -> None:
    (step,) = [step for step in made_trace().steps if step.status == "wrong"]
    assert step.errors is not None
    infinite = error("x", 1.0, None)
    svg = plot_errors([replace(step, errors=(infinite,))])
    assert "infinite" in svg and "∞" in svg
