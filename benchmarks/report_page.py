"""Seconds to make and open a report, by nodes: `python -m benchmarks.report_page`.

A page is opened in Chromium (`CTK_BROWSER`, else chromium on PATH) until its first picture stands;
then the whole graph is shown. The median of five.
"""

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import sync_playwright

from ctk.toolkit.operations.pages.trace_sections import find_focus, trace_sections
from ctk.toolkit.page.page import Answers, Page
from ctk.toolkit.page.rendering import render
from tests.helpers.made_traces import made_trace

SIZES = ((4, 24), (12, 80), (50, 100), (100, 200))
"""Layers and nodes of each."""

RUNS = 5
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
WHOLE = """() => {
  const start = performance.now();
  document.getElementById("whole").click();
  document.getElementById("canvas").getBoundingClientRect();
  return performance.now() - start;
}"""


def make(layers: int, per_layer: int) -> str:
    """Return the page of a made-up compile."""
    trace = made_trace(layers, per_layer)
    focus = find_focus(trace)
    answers = Answers("Wrong values.", "In a pass.", "By a comparison.")
    sections = trace_sections(trace, focus, "", None)
    return render(Page("graph0", "wrong", "fails", "graph0 fails", answers, sections, trace, focus))


def open_once(tab: BrowserPage, path: Path) -> tuple[float, float]:
    """Return the seconds until the first picture, and those until the whole graph."""
    started = time.perf_counter()
    tab.goto(path.as_uri())
    tab.locator("#canvas .node").first.wait_for()
    first = time.perf_counter() - started
    return first, tab.evaluate(WHOLE) / 1000


def main() -> None:
    """Print a line per size."""
    browser_path = os.environ.get("CTK_BROWSER") or shutil.which("chromium")
    print(f"{'nodes':>7}{'KB':>8}{'make s':>9}{'open s':>9}{'whole s':>9}")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        for layers, per_layer in SIZES:
            started = time.perf_counter()
            text = make(layers, per_layer)
            made = time.perf_counter() - started
            path = Path(folder) / "report.html"
            path.write_text(text, encoding="utf-8")
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            runs = [open_once(tab, path) for _ in range(RUNS)]
            first, whole = (statistics.median(column) for column in zip(*runs, strict=True))
            size = f"{len(text) // 1000:,}"
            nodes = f"{layers * per_layer + 2:,}"
            print(f"{nodes:>7}{size:>8}{made:9.2f}{first:9.2f}{whole:9.2f}")
        browser.close()


if __name__ == "__main__":
    main()
