"""Texts of a stranger reach terminal and scripts escaped; hostile records are no traceback."""

import ast
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ctk.toolkit.case.carried_sources import SourcePlan
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.plain_text import many_lines, one_line
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.repro.header import CleanRun
from ctk.toolkit.repro.script import literal, render_script
from tests.helpers.case_folders import linear_case
from tests.helpers.cli import ctk
from tests.helpers.hostile import Craft
from tests.helpers.mutations import DIAGNOSIS, EVENTS, nested

SECONDS = 1.0

ESCAPES = (
    "\x1b[2K\rno failure",
    "\x1b]8;;file:///x\x07",
    "\u202egnp",
    "\b\b\b",
    "\x9b2J",
    "a\u2028b",
)


@pytest.mark.parametrize("text", ESCAPES)
def test_a_strangers_text_reaches_the_terminal_escaped(text: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    wrong = {"kind": "accuracy", "exception": text, "where": None, "signal": None}
    craft.manifest(
        lambda data: data.update(
            name=f"graph{text}", signature={**wrong, "output": "out0", "message": text}
        )
    )
    craft.put("graph.py", f"# {text}\n")
    craft.put("events.jsonl", EVENTS.replace(b"joint/fold", json.dumps(text)[1:-1].encode()))
    assert read_manifest(craft.folder).name == f"graph{one_line(text)}"
    for command in ("show", "ls"):
        said = ctk(command, craft.folder)
        shown = (said.out + said.err).replace("\n", "")
        assert said.code == 0 and shown.isprintable(), ascii(shown)


@pytest.mark.parametrize("text", ["[bold red]x[/]", "[/]", "[link=file:///x]y[/link]", ":bomb:"])
def test_markup_of_a_stranger_is_text(text: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    wrong = {"kind": "accuracy", "exception": None, "where": None, "signal": None}
    signature = {**wrong, "output": None, "message": text}
    craft.manifest(lambda data: data.update(signature=signature))
    said = ctk("ls", craft.folder)
    assert said.code == 0 and text in said.out


@pytest.mark.parametrize("text", [*ESCAPES, "plain", 'a"b\\c', "ü", "\U0001f600", "\ud800", "\0"])
def test_a_text_in_a_script_is_the_same_text_and_can_be_seen(text: str) -> None:
    source = literal(text)
    assert source.isprintable() and eval(source) == text


def test_one_line_keeps_what_is_printable_and_shortens_what_is_long() -> None:
    assert one_line("größer, 中文: x") == "größer, 中文: x"
    assert one_line("a\tb\nc") == "a\\tb\\nc"
    assert len(one_line("a" * 10**6)) < 2100
    assert many_lines("a\r\n\tb\x1b[0m\n") == "a\n\tb\\x1b[0m\n"


TRICKS = (
    '"""\nimport os\n"""',
    "\\",
    'x"',
    "\nTarget:     other",
    "\x1b[2K",
    "\0",
    "\udcff",
    "# type: x",
)


def script_of(text: str) -> ast.Module:
    """Return the script of a case in which a text stands wherever one may."""
    wrong = Signature(kind="accuracy", where=text, output=text, message=text)
    case = linear_case(name=text, signature=wrong, config={"note": text}, synthetic=(text,))
    plan = SourcePlan(case.target, dict(case.config), {})
    source = render_script(case, plan, culprit_pass=text, clean_run=CleanRun(text, (), True)).text
    source.encode()
    return ast.parse(source)


@pytest.mark.parametrize("text", TRICKS)
def test_no_text_of_a_case_leaves_its_place_in_a_script(text: str) -> None:
    tree, plain = script_of(text), script_of("plain")
    assert [type(each) for each in tree.body] == [type(each) for each in plain.body]
    header = ast.get_docstring(tree, clean=False)
    assert header is not None and len(re.findall(r"^Target:", header, re.MULTILINE)) == 1
    settings = {
        each.targets[0].id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    assert ast.literal_eval(settings["CONFIG"]) == {"note": text}


def diagnosis(**changes: Any) -> str:
    return json.dumps(DIAGNOSIS | changes)


RECORDS: dict[str, str] = {
    "cut short": diagnosis()[:100],
    "empty": "",
    "a list": "[]",
    "deep": "[" * 10**6,
    "deep inside": diagnosis(also=[nested(300)]),
    "5 MB": diagnosis(detail="a" * (5 << 20)),
    "no schema": json.dumps({}),
    "another schema": diagnosis(schema=99),
    "a schema that is a text": diagnosis(schema="2"),
    "a verdict that is none": diagnosis(verdict="\x1b[2K"),
    "nodes that are numbers": diagnosis(culprit={**DIAGNOSIS["culprit"], "nodes": [1, 2]}),
    "nodes that are none": diagnosis(culprit={**DIAGNOSIS["culprit"], "nodes": None}),
    "seconds of a text": diagnosis(seconds="nan"),
    "seconds without end": diagnosis().replace("1.5", "1e999"),
    "a number of 5,000 digits": diagnosis().replace("1.5", "9" * 5000),
    "a key twice": diagnosis().replace('"also"', '"case"', 1),
    "an unknown key": diagnosis(hook="os.system"),
    "half a character": diagnosis(case="\ud800"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_hostile_diagnosis_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "diagnosis.json").write_text(RECORDS[name])
    started = time.thread_time()
    said = ctk("show", tmp_path)
    assert time.thread_time() - started < SECONDS
    assert said.code == 2 and "diagnosis.json" in said.out + said.err
    assert "Traceback" not in said.out + said.err and "bug" not in said.err


def test_the_text_of_a_diagnosis_is_shown_in_lines_of_ours(tmp_path: Path) -> None:
    hostile = "x\x1b[2K\nproof      without it alone the case passes"
    culprit = {**DIAGNOSIS["culprit"], "nodes": [hostile], "evidence": hostile, "rule": hostile}
    culprit["excerpt"] = [hostile]
    (tmp_path / "diagnosis.json").write_text(diagnosis(case=hostile, culprit=culprit))
    said = ctk("show", tmp_path)
    assert said.code == 0
    assert len(re.findall(r"^proof ", said.out, re.MULTILINE)) == 1
    assert said.out.replace("\n", "").isprintable()


LINES: dict[str, bytes] = {
    "no JSON": b'{"event": "pass"\n' * 1000,
    "wrong types": EVENTS.replace(b"0.1", b'"0.1"').replace(b"3", b"[]"),
    "deep": b'{"event": "pass", "pass": ' + b"[" * 10**6 + b"\n",
    "a long line": b'{"event": "pass", "pass": "' + b"a" * (8 << 20) + b'"}\n',
    "bytes": b'"pass"\xff\xfe\n' * 100,
    "no lines": b"\n" * 10**6,
    "other events": b'{"event": "call"}\n' * 500_000,
}


@pytest.mark.parametrize("name", LINES)
def test_hostile_events_are_passed_over(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    (craft.folder / "events.jsonl").write_bytes(LINES[name] + EVENTS)
    started = time.thread_time()
    said = ctk("show", craft.folder)
    assert time.thread_time() - started < 2 * SECONDS
    assert said.code == 0 and "joint/fold" in said.out, said.err
    assert "Traceback" not in said.out + said.err


def test_ten_million_events_are_refused_with_their_number(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    with (craft.folder / "events.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    said = ctk("show", craft.folder)
    assert said.code == 2 and "1,099,511,627,776 bytes" in said.out + said.err
