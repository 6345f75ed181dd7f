"""A page of hostile texts in a real browser: nothing runs, loads, or breaks the layout."""

from pathlib import Path

import pytest

from tests.browser.conftest import Open
from tests.helpers.cli import ctk
from tests.helpers.hostile_pages import write_hostile

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("size", ["laptop", "phone"])
def test_a_hostile_page_is_inert(size: str, open_page: Open, tmp_path: Path) -> None:
    folder = write_hostile(tmp_path / "diagnosis")
    assert ctk("report", folder).code == 0
    opened = open_page(folder / "report.html", size=size)
    assert opened.page.locator("img, iframe, object, embed, form").count() == 0
    for index in range(min(12, opened.page.locator("#canvas .node").count())):
        opened.page.locator("#canvas .node").nth(index).click(force=True)
    opened.page.locator("#find").fill("<img")
    opened.page.locator("#slider").focus()
    for _ in range(8):
        opened.page.keyboard.press("ArrowLeft")
    assert opened.page.evaluate("window.hit") is None
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    assert width <= opened.page.viewport_size["width"]
    opened.assert_quiet()
    opened.assert_accessible()


def test_a_strangers_markup_written_into_the_page_would_not_run(
    open_page: Open, tmp_path: Path
) -> None:
    """The policy stands behind the escaping: code that got into the page is refused."""
    folder = write_hostile(tmp_path / "diagnosis")
    assert ctk("report", folder).code == 0
    text = (folder / "report.html").read_text()
    path = tmp_path / "broken.html"
    path.write_text(text.replace("<main", "<script>window.hit=1</script><img src=x><main", 1))
    opened = open_page(path)
    assert opened.page.evaluate("window.hit") is None
    refused = opened.page.evaluate("window.refused")
    assert {each.split()[0] for each in refused} == {"script-src-elem", "img-src"}
