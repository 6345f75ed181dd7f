"""The viewers of a page: picture of a graph, slider over steps, copy buttons, themes."""

from pathlib import Path
from typing import Any

import pytest

from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.pages.trace_sections import find_focus, trace_sections
from ctk.toolkit.page.page import Answers, Page
from ctk.toolkit.page.rendering import frame, render
from tests.browser.conftest import Open
from tests.helpers.made_traces import made_trace

pytestmark = pytest.mark.browser


def page_of(layers: int = 4, per_layer: int = 24, *, kernel: bool = False) -> Page:
    trace = made_trace(layers, per_layer, kernel=kernel)
    focus = find_focus(trace)
    steps = (NextStep("ctk diagnose net.py", "the culprit with its proof"),)
    return Page(
        "graph0",
        "wrong",
        "fails: accuracy",
        "graph0 with target ctk fails because of joint/fold_scale_into_add",
        Answers("The result is wrong.", "joint/fold_scale_into_add", "By a comparison.", steps),
        trace_sections(trace, focus, "", None),
        trace,
        focus,
    )


def write(page: Page, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render(page), encoding="utf-8")
    return path


def test_a_click_shows_the_details_of_a_node(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path))
    details = opened.page.locator("#details")
    assert "add_tensor_2" in details.inner_text() and "first wrong" in details.inner_text()
    opened.page.locator("#canvas .node", has_text="mul_2_13").click()
    text = details.inner_text()
    assert "mul_2_13" in text and "model.py:33" in text and "encoder.layers.2.mlp" in text
    assert "8.0e6 ULP" in text and "0.9 ULP" in text
    details.get_by_role("button", name="add_tensor_2").click()
    assert "add_tensor_2" in details.locator("h3").inner_text()
    opened.assert_quiet()


def test_a_search_reaches_every_node(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path))
    search = opened.page.locator("#find")
    search.fill("gelu_0_8")  # far from the neighbourhood
    assert opened.page.locator("#found").inner_text() == "1 of 3"  # two lines read it
    selected = opened.page.locator("#canvas .node.selected")
    assert selected.get_attribute("aria-label").startswith("gelu_0_8, gelu.Tensor")
    search.fill("layers.1.attention")
    assert opened.page.locator("#found").inner_text() == "1 of 12"
    search.press("Enter")
    assert opened.page.locator("#found").inner_text() == "2 of 12"
    search.fill("nothing of that name")
    assert opened.page.locator("#found").inner_text() == "no node"
    opened.assert_quiet()


def test_arrow_keys_follow_the_edges(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path))
    opened.page.locator("#canvas .node.selected").focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("#details h3").inner_text() == "mul_2_13"
    opened.page.keyboard.press("ArrowUp")
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("#details h3").inner_text().startswith("add_tensor_2")
    opened.assert_quiet()


def test_the_whole_graph_and_back(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path))
    near = opened.page.locator("#canvas .node").count()
    opened.page.locator("#whole").click()
    assert "All 98 nodes" in opened.page.locator("#graph-note").inner_text()
    opened.page.locator("#zoom-in").click()
    opened.page.locator("#zoom-out").click()
    opened.page.locator("#near").click()
    assert opened.page.locator("#canvas .node").count() == near
    opened.assert_quiet()


def test_a_graph_of_5000_nodes_is_a_few_elements(open_page: Open, tmp_path: Path) -> None:
    """A graph of any size stays usable; `benchmarks.report_page` measures the seconds."""
    opened = open_page(write(page_of(50, 100), tmp_path))
    opened.page.locator("#whole").click()
    assert opened.page.locator("#canvas svg *").count() < 400
    opened.page.locator("#find").fill("view_49_90")
    assert opened.page.locator("#canvas .node.selected").count() == 1
    opened.assert_quiet()


def test_the_slider_shows_each_step(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path))
    step = opened.page.locator("#step")
    assert "joint/fold_scale_into_add" in step.inner_text() and "wrong" in step.inner_text()
    removed, added = step.locator("td.del").first, step.locator("td.add").first
    assert "add_2_12" in removed.inner_text() and "add_tensor_2" in added.inner_text()
    assert "1.6e7" in step.locator("table").last.inner_text()
    slider = opened.page.locator("#slider")
    slider.focus()
    opened.page.keyboard.press("ArrowLeft")
    assert "joint/reassociate" in step.inner_text() and "changed nothing" in step.inner_text()
    assert slider.get_attribute("aria-valuetext") == "joint/reassociate, values agree"
    opened.page.keyboard.press("End")
    assert "Loop IR" in step.inner_text() and "Generated source" in step.inner_text()
    opened.page.keyboard.press("Home")
    assert "98 nodes" in step.inner_text()
    opened.page.locator("#to-culprit").click()
    assert "joint/fold_scale_into_add" in step.inner_text()
    opened.assert_quiet()


def test_the_wrong_line_of_a_kernel_is_marked(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(kernel=True), tmp_path))
    for marked in ("#kernel .bad", "#step .bad"):
        assert opened.page.locator(marked).inner_text().strip() == "out[i] = in1[i] + in0[i];"
    opened.assert_quiet()


def test_a_copy_button_copies_the_command(open_page: Open, tmp_path: Path) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    opened = open_page(write(page_of(kernel=True), tmp_path), permissions=permissions)
    opened.page.locator(".answer.do .copy").click()
    assert opened.page.evaluate("navigator.clipboard.readText()") == "ctk diagnose net.py"
    opened.page.get_by_role("button", name="Copy: Loop IR").click()
    assert opened.page.evaluate("navigator.clipboard.readText()").startswith("kernel forward.add_5")
    opened.assert_quiet()


def test_the_theme_follows_the_system_and_can_be_switched(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path), scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = opened.page.evaluate(background)
    opened.page.locator("#theme").click()
    light = opened.page.evaluate(background)
    assert (dark, light) == ("rgb(18, 22, 28)", "rgb(255, 255, 255)")
    opened.assert_quiet()


def test_a_page_without_scripts_has_the_changes_as_text(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(write(page_of(), tmp_path), java_script_enabled=False)
    text = opened.page.locator("body").inner_text()
    assert "The result is wrong." in text and "ctk diagnose net.py" in text
    assert "+add_tensor_2: float32[4, 32, 64]" in text


def test_a_notebook_shows_the_page_in_a_frame(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{frame(page_of())}")
    opened = open_page(path)
    inner: Any = opened.page.frame_locator("iframe")
    inner.locator("#canvas .node.selected").wait_for()
    inner.locator("#slider").focus()
    assert [seen for seen in opened.noticed if seen != "about:srcdoc"] == []
