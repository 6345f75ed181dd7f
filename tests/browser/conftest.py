"""A browser, and reports to open in it.

The browser is the one of the system, chromium or Chrome; `CTK_BROWSER` names another. The twelve
reports are made once, by the command line.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.browser.programs import COMMANDS, FAULTS, write_program

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
BROWSER = os.environ.get("CTK_BROWSER")  # before a fixture hides the variables of ctk


def find_browser() -> str:
    found = BROWSER or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(
            f"no browser: none of {', '.join(BROWSERS)} is on PATH; install chromium, or name one: "
            "CTK_BROWSER=PATH make test-browser"
        )
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=find_browser(), args=[*QUIET])
        yield launched
        launched.close()


@dataclass
class Opened:
    """A page in the browser, with everything that it should not do."""

    page: Any
    noticed: list[str] = field(default_factory=list[str])

    def assert_quiet(self) -> None:
        """Fail if the page has logged, asked for, or been refused anything."""
        refused = self.page.evaluate("window.refused ?? []")
        assert not self.noticed and not refused, (self.noticed, refused)

    def assert_accessible(self) -> None:
        """Fail if axe finds a violation."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()

    def is_in_view(self, selector: str) -> bool:
        box = self.page.locator(selector).bounding_box()
        size = self.page.viewport_size
        return box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


REFUSALS = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.refused.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""

Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Return a function that opens a file in a context of its own."""
    contexts: list[Any] = []

    def open_file(
        path: Path, *, size: str = "laptop", scheme: str = "light", **more: Any
    ) -> Opened:
        width, height = SIZES[size]
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, **more)
        contexts.append(context)
        opened = Opened(context.new_page())
        seen = opened.noticed
        if more.get("java_script_enabled", True):
            opened.page.add_init_script(REFUSALS)
        opened.page.on("console", lambda said: seen.append(f"console: {said.text}"))
        opened.page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        opened.page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
        address = path.as_uri()
        opened.page.on(
            "request", lambda asked: seen.append(asked.url) if asked.url != address else None
        )
        opened.page.goto(address)
        return opened

    yield open_file
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Path]:
    """Return the twelve reports, by command and failure."""
    root: Path = request.config.getoption("--reports") or tmp_path_factory.mktemp("reports")
    root.mkdir(exist_ok=True)
    programs = {fault: write_program(root, fault) for fault in FAULTS}
    wanted = [(command, fault) for fault in FAULTS for command in COMMANDS]

    def make(each: tuple[str, str]) -> Path:
        command, fault = each
        folder = root / f"{command}_{fault}"
        words = [command, programs[fault].name, "--out", folder.name, "--report"]
        if (command, fault) == ("check", "crash"):
            words.append("--isolate")
        if (folder / "report.html").is_file():
            words = ["report", folder.name]
        ctk = Path(sys.executable).with_name("ctk")
        done = subprocess.run(
            [ctk, *words], cwd=root, capture_output=True, text=True, check=False, timeout=1500
        )
        said = f"{words}\n{done.stdout}\n{done.stderr[-3000:]}"
        assert done.returncode == int(words[0] == command), said
        return folder / "report.html"

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(wanted, pool.map(make, wanted), strict=True))
