"""The page of a hostile folder: its texts stay texts, and nothing in it runs or loads."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ctk.toolkit.case.formats.plain_text import many_lines
from tests.helpers.cli import ctk
from tests.helpers.hostile import Craft
from tests.helpers.hostile_pages import HOSTILE, write_hostile

TAGS = {
    *("html", "head", "meta", "title", "style", "script", "body", "a", "header", "span", "nav"),
    *("button", "main", "section", "p", "h1", "h2", "div", "ul", "li", "pre", "code", "dl", "dt"),
    *("dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "svg"),
    *("rect", "path", "text", "circle", "details", "summary", "noscript", "label", "input"),
    *("output", "aside", "footer", "title"),
}


class Reader(HTMLParser):
    """Collects the tags and attributes of a page, and the text of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        is_data = ("type", "application/json") in attrs
        self._inside = tag if tag in self.code and not is_data else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.code[self._inside].append(data)


def read_page(path: Path) -> tuple[str, Reader]:
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    return text, reader


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = write_hostile(tmp_path / "diagnosis")
    said = ctk("report", folder)
    assert said.code == 0 and said.out.isprintable() is False  # one line, ended
    assert said.out.rstrip("\n").isprintable()
    return folder / "report.html"


def test_hostile_texts_make_no_markup(page: Path) -> None:
    text, reader = read_page(page)
    assert reader.tags <= TAGS
    names = {name for name, _ in reader.attributes}
    assert not [name for name in names if name.startswith("on")]
    assert not {"src", "style", "srcdoc", "action", "autofocus", "http"} & names
    links = [value for name, value in reader.attributes if name == "href"]
    assert all(re.fullmatch(r"#[\w-]+", link) for link in links)
    assert not re.search("[\u2028\u2029\u202e\u2066\u200f\x00\x07\x1b]", text)


def test_hostile_texts_are_shown_as_texts(page: Path) -> None:
    text, _ = read_page(page)
    assert "&lt;img src=x onerror=window.hit=2&gt;" in text
    assert "\\u202egnp" in text and "{{ 7 * 7 }}" in text and "49{%" not in text


def test_the_policy_allows_the_code_of_the_page_and_nothing_else(page: Path) -> None:
    _, reader = read_page(page)
    (policy,) = (value for name, value in reader.attributes if value.startswith("default-src"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy and "http" not in policy
    assert set(rules["script-src"].split()) == set(map(digest, reader.code["script"]))
    assert set(rules["style-src"].split()) == set(map(digest, reader.code["style"]))


def test_the_data_of_a_page_is_what_was_recorded(page: Path) -> None:
    text, _ = read_page(page)
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert not {"<", ">", "&"} & set(block)
    said = json.loads(block)["trace"]["cut"]
    assert said[0] == HOSTILE[0] and said[8] == many_lines(HOSTILE[8])


def test_a_page_of_huge_texts_is_small(page: Path) -> None:
    assert page.stat().st_size < 3 << 20


@pytest.mark.parametrize("name", ["diagnosis.json", "trace.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": 99}', b'{"schema": null}', b"9" * 10**6]
)
def test_a_damaged_record_is_an_error_or_a_page(name: str, content: bytes, tmp_path: Path) -> None:
    folder = write_hostile(tmp_path / "diagnosis")
    (folder / name).write_bytes(content)
    said = ctk("report", folder)
    assert said.code == (2 if name == "diagnosis.json" else 0)
    assert "Traceback" not in said.out + said.err
    if name == "trace.json":
        assert "cannot be shown" in (folder / "report.html").read_text()


def test_a_report_follows_no_link(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("hidden words")
    for name in ("graph.py", "trace.json", "events.jsonl"):
        (craft.folder / name).unlink(missing_ok=True)
        (craft.folder / name).symlink_to(secret)
    said = ctk("report", craft.folder, "--out", tmp_path / "page.html")
    assert said.code == 0, said.out
    assert "hidden words" not in (tmp_path / "page.html").read_text()


def test_a_report_replaces_only_reports(tmp_path: Path) -> None:
    folder, precious = write_hostile(tmp_path / "diagnosis"), tmp_path / "precious.html"
    precious.write_text("<!DOCTYPE html> my own page")
    assert ctk("report", folder, "--out", precious).code == 2
    assert precious.read_text() == "<!DOCTYPE html> my own page"
    assert ctk("report", folder).code == ctk("report", folder).code == 0
