"""Twelve reports, three commands by four failures, opened in a browser; and their screenshots.

`pytest tests/browser --update-screenshots` writes those of docs/screenshots.
"""

from pathlib import Path

import pytest

from tests.browser.conftest import Open, Opened
from tests.browser.programs import COMMANDS, FAULTS
from tests.helpers.project import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(3600)]

SCREENSHOTS = ROOT / "docs" / "screenshots"
ANSWERS = ".answers"
NAMES = {
    "accuracy": "joint/fold_scale_into_add",
    "exception": "joint/raise_at_gelu",
    "crash": "joint/crash_at_gelu",
    "nan": "joint/divide_by_nothing",
}

Reports = dict[tuple[str, str], Path]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_report(
    command: str, fault: str, reports: Reports, open_page: Open, request: pytest.FixtureRequest
) -> None:
    path = reports[command, fault]
    assert path.stat().st_size < 3 << 20
    for size, scheme in (("laptop", "light"), ("laptop", "dark"), ("phone", "light")):
        opened = open_page(path, size=size, scheme=scheme)
        assert opened.is_in_view(ANSWERS), f"{size}: the answers do not fit the first screen"
        width = opened.page.evaluate("document.documentElement.scrollWidth")
        assert width <= opened.page.viewport_size["width"]
        opened.assert_quiet()
        if request.config.getoption("--update-screenshots"):
            name = f"{command}-{fault}-{size}-{scheme}.png"
            if name in KEPT:
                opened.page.screenshot(path=SCREENSHOTS / name)
        opened.assert_accessible()
    assert_answers(opened, command, fault)
    use_it(opened)


def assert_answers(opened: Opened, command: str, fault: str) -> None:
    """Check that the first screen names the failure, the culprit and a command."""
    said = opened.page.locator(".first").inner_text()
    assert opened.page.locator(".badge").inner_text().startswith("fails")
    if command != "check" or fault != "crash":  # a crash leaves no steps to look at
        assert NAMES[fault] in said
    command_line = opened.page.locator(".answer.do .command code").first.inner_text()
    assert command_line.startswith(("ctk ", "python "))


def use_it(opened: Opened) -> None:
    """Search and click in the picture, and move the slider, where the report has them."""
    if opened.page.locator("#graph-view").count():
        opened.page.locator("#find").fill("gelu")
        opened.page.locator("#find").press("Enter")
        assert " of " in opened.page.locator("#found").inner_text()
        opened.page.locator("#whole").click()
        opened.page.locator("#near").click()
    if opened.page.locator("#slider").count():
        opened.page.locator("#slider").focus()
        opened.page.keyboard.press("Home")
        assert opened.page.locator("#step").inner_text().strip()
    opened.assert_quiet()


KEPT = {
    *(f"{command}-{fault}-laptop-light.png" for command in COMMANDS for fault in FAULTS),
    "diagnose-accuracy-laptop-dark.png",
    "diagnose-accuracy-phone-light.png",
}


SHOTS = {
    "graph": ("#graph", "dark"),
    "steps": ("#steps", "light"),
    "errors": ("#errors", "light"),
}
"""The section and the theme of each further screenshot."""


@pytest.mark.parametrize("name", SHOTS)
def test_screenshots_of_the_viewers(
    name: str, reports: Reports, open_page: Open, request: pytest.FixtureRequest
) -> None:
    selector, scheme = SHOTS[name]
    opened = open_page(reports["diagnose", "accuracy"], scheme=scheme)
    opened.page.evaluate("document.querySelector('header').remove()")
    opened.page.locator("#whole").click()
    part = opened.page.locator(selector)
    assert part.is_visible()
    if request.config.getoption("--update-screenshots"):
        part.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png")
