"""The page of a hostile folder: its texts stay texts, and nothing in it runs or loads."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ctk.toolkit.case.formats.plain_text import many_lines
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.operations.pages.diagnosis_page import page_of_diagnosis
from ctk.toolkit.operations.pages.folder_page import page_of_folder
from ctk.toolkit.page.page import Answers, Code, Page, Picture, section
from ctk.toolkit.page.plots import plot_errors
from ctk.toolkit.page.rendering import frame, render
from ctk.toolkit.watch.dump_index import read_dump_index
from tests.helpers.cli import ctk
from tests.helpers.hostile import Craft
from tests.helpers.hostile_pages import HOSTILE, write_hostile
from tests.helpers.made_traces import made_trace

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


SECRET = "ab<cd&ef'12345678"


@pytest.mark.parametrize("make", [render, frame])
def test_secrets_are_removed_before_they_are_escaped(
    make: Callable[[Page], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    monkeypatch.setenv("DB_PASSWORD", "function")
    block = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----"
    trace, text = made_trace(2, 12), f"reads {SECRET}"
    steps = [replace(step, id=text) for step in trace.steps]
    blocks = (Code("Program", f"{text}\n{block}"), Picture(plot_errors(steps), text))
    page = Page("graph0", "wrong", text, text, Answers(text, text, text), (section(text, blocks),))
    shown = make(replace(page, trace=replace(trace, steps=tuple(steps), cut=(text,))))
    assert "12345678" not in shown and "MIIE" not in shown
    assert "reads [secret]" in shown
    if make is render:
        reader = Reader()
        reader.feed(shown)
        (policy,) = (value for _, value in reader.attributes if value.startswith("default-src"))
        assert all(digest(code) in policy for code in reader.code["script"] + reader.code["style"])


NUMBERS = (-(10**30), -5, 0, 10**30, -1e300, 1e-300, 1e300)


def replace_numbers(value: Any, number: float) -> Iterator[Any]:
    """Yield a JSON value with each of its numbers in turn replaced."""
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in [*keys]:
            for each in replace_numbers(value[key], number):
                changed = value.copy()
                changed[key] = each
                yield changed
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield number


LINES: dict[str, list[dict[str, Any]]] = {
    "events.jsonl": [
        {
            "event": "kernel", "kernel": "lowered/c:k", "nodes": ["a"], "vetoed": False,
            "seconds": 1.0, "modules": {"a": 1, "b": 2},
        },
        {
            "event": "pass", "pass": "joint/fold", "number": 0, "changed": True, "vetoed": False,
            "rewrites": 1, "vetoed_rewrites": 0, "seconds": 0.5,
        },
        {"event": "stage", "stage": "captured", "nodes": 3, "modules": {"a": 1}},
    ],
    "history.jsonl": [
        {
            "question": at, "seconds": 1.0, "step": "cut", "verdict": "reproduces",
            "call_nodes": 9 - at, "inputs": 1, "elements": 4,
        }
        for at in (0, 1)
    ],
    "frames.jsonl": [
        {
            "event": "frame", "compile": "0/0", "function": "f", "place": "a.py:1",
            "resumed": True, "seconds": 1.0, "breaks": ["a call"], "guard": "x",
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_hostile_numbers_of_lines_make_a_page(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    place = {"frames.jsonl": craft.folder.parent, "history.jsonl": tmp_path / "diagnosis"}
    folder = place.get(name, craft.folder)
    if name == "history.jsonl":
        write_hostile(folder)
    for number in NUMBERS:
        for lines in replace_numbers(LINES[name], number):
            (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            page_of_folder(folder)
            read_dump_index(folder)


def test_hostile_numbers_of_a_trace_make_a_page_or_are_refused(tmp_path: Path) -> None:
    small = made_trace(1, 12)
    step = next(step for step in small.steps if step.rewrites)
    kernel = replace(made_trace(1, 12, kernel=True).steps[-1], errors=None)
    errors = (step.errors or ())[:1]
    graphs = encode(replace(small, graphs=small.graphs[1:], steps=(), cut=()))["graphs"]
    for number in NUMBERS:
        for edits in replace_numbers(graphs, number):
            data = encode(small)
            data["graphs"][1:] = edits
            check_trace(tmp_path, data)
        for steps in replace_numbers(
            encode(replace(small, steps=(replace(step, errors=errors), kernel)))["steps"], number
        ):
            check_trace(tmp_path, {**encode(small), "steps": steps})


def check_trace(folder: Path, data: dict[str, Any]) -> None:
    """Draw the pictures of a trace, unless it is refused."""
    write_hostile(folder)
    (folder / "trace.json").write_text(json.dumps(data))
    render(page_of_diagnosis(folder))
