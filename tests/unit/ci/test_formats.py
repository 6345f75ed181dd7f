"""Markdown, annotations, JUnit XML, SARIF, code quality: valid, whole, and inert for any text."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import xmlschema
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.annotations import render_annotations, render_code_quality
from ctk.toolkit.ci.baseline import Baseline, renew_baseline
from ctk.toolkit.ci.collect import Collection
from ctk.toolkit.ci.junit import find_other_failures, names_of, render_junit
from ctk.toolkit.ci.markdown import LIMIT_NBYTES, render_markdown
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.ci.places import find_place
from ctk.toolkit.ci.report import CiReport, make_report
from ctk.toolkit.ci.sarif import render_sarif
from tests.helpers.ci_outcomes import failing, passing, validator
from tests.helpers.project import ROOT

LINK = "https://example.org/issues/1"

HOSTILE = {
    "html": '<img src=x onerror=alert(1)></code></td></table><script>alert("x")</script>',
    "link": "[see](https://evil.example) ![x](https://evil.example/x.png) https://evil.example",
    "autolinks": "www.evil.example me@evil.example <https://evil.example> #1 org/repo#2",
    "mention": "@everyone please look",
    "backticks": "`` ` ```\n# heading\n```",
    "table": "a | b | c\n| --- | --- |\n\\| x",
    "emphasis": "*a* _b_ **c** __init__ ~~d~~",
    "command": "::error file=x::y\n::set-output name=a::b\r::add-mask::c",
    "old command": "##[error]x ##[set-env name=A]b",
    "escapes": "100% %0A %25 %3A a,b:c",
    "ansi": "\x1b[31mred\x1b[0m\x1b]8;;https://evil.example\x07",
    "xml": "a & b <c> ]]> \x00\x08\x0b\ufffe\uffff \ud800",
    "sarif": "{0} {{1}} [text](https://evil.example) \\[",
    "direction": "\u202egnorw\u2066 \u2028 \u2029 \x85",
    "long": "x" * 50_000,
}


def report_of(*outcomes: Outcome, known: Baseline | None = None) -> CiReport:
    return make_report(Collection(outcomes, ("a document",)), known, other_tests=("t.py::own",))


def hostile_report(text: str, *, is_known: bool = False) -> CiReport:
    signature = Signature("compile-error", exception=text, where=text, message=text)
    bad = failing(
        f"tests/{text}.py::{text}",
        rule=text,
        culprit=f"joint/{text}",
        headline=text,
        signature=signature,
        place=f"{text}.py:3",
        command=text,
        folder=text,
    )
    undecided = passing(text, verdict=Verdict.FLAKY, headline=text)
    worse = passing("tests/w.py::w" + text)
    known = renew_baseline(Baseline(), [worse, *[bad] * is_known])
    known = replace(known, failures=tuple(replace(e, issue=LINK) for e in known.failures))
    every = (bad, undecided, replace(worse, worst_ulp=1e9))
    return make_report(Collection(every, (text,)), known, other_tests=(text,))


@pytest.fixture(params=HOSTILE, ids=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> CiReport:
    return hostile_report(HOSTILE[request.param], is_known=request.param in ("html", "sarif"))


def tokens_of(markdown: str) -> Iterator[Token]:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    for block in parser.parse(markdown):
        yield block
        yield from block.children or ()


ALLOWED = {"inline", "text", "heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td"}
TAGS = {"<code>", "</code>", "<br>", "<span>", "</span>", "</a>"}


def test_markdown_is_inert(hostile: CiReport) -> None:
    text = render_markdown(hostile)
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
    tags: set[str] = set()
    for token in tokens_of(text):
        kind = re.sub("_(open|close)$", "", token.type)
        if kind == "html_inline":
            tags.add(token.content)
        else:
            assert kind in ALLOWED or (kind == "code_inline" and "ctk ci-summary" in token.content)
    links = {tag for tag in tags - TAGS if tag.startswith("<a ")}
    assert tags - TAGS == links
    assert all("example.org" in link and "evil" not in link for link in links)
    bare = re.sub(r"<a href=[^>]*>", "", text)
    assert not re.search(r"://|www\.|##\[|@|^ *::", bare, re.M)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} <= {2, 3, 4, 5, 6}


def test_markdown_shows_a_text_as_it_is() -> None:
    text = render_markdown(hostile_report("a|b `c` <d> & _e_"))
    cells = "".join(token.content for token in tokens_of(text) if token.type == "text")
    assert "a|b `c` <d> & _e_" in cells


def test_markdown_keeps_its_limit_and_counts_the_rest() -> None:
    many = [failing(f"t.py::{i}", rule=f"r{i}", command="y" * 300) for i in range(3000)]
    text = render_markdown(report_of(*many))
    assert 300_000 < len(text.encode()) <= LIMIT_NBYTES
    (left,) = re.findall(r"([\d,]+) of 3,000 rows are left out", text)
    assert int(left.replace(",", "")) + text.count("joint/cse/r") == 3000
    assert "### Unreadable" in text and "### Tests with an error of their own" in text


PROPERTY = re.compile(r"(file|line|title)=([^:,\r\n]*)")


def test_annotations_are_one_command_each(hostile: CiReport) -> None:
    for line in render_annotations(hostile).splitlines():
        command = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
        assert command is not None
        head, properties, message = command.groups()
        assert head == "error" and line.isprintable()
        assert all(PROPERTY.fullmatch(each) for each in properties.split(","))
        assert "%" not in re.sub("%(25|3A|2C|0A|0D)", "", properties + message)
        assert "##[" not in line


def test_annotations_are_at_most_ten_one_per_culprit_and_none_for_known_ones() -> None:
    same = [failing(f"t.py::{i}") for i in range(5)]
    (line,) = render_annotations(report_of(*same)).splitlines()
    assert "::error file=model.py,line=12,title=ctk%3A joint/cse/merge::accuracy at out0" in line
    assert "in t.py::0 and 4 more tests; next: ctk repro out/a" in line
    unproved = [failing(f"t.py::{i}", rule="", confirmed=False) for i in range(5)]
    assert len(render_annotations(report_of(*unproved)).splitlines()) == 1
    many = [failing(f"t.py::{i}", rule=f"r{i:02}") for i in range(30)]
    lines = render_annotations(report_of(*many)).splitlines()
    assert len(lines) == 10 and "21 more failures" in lines[-1]
    assert len(render_annotations(report_of(*many[:10])).splitlines()) == 10
    known = renew_baseline(Baseline(), same)
    known = replace(known, failures=(replace(known.failures[0], issue=LINK),))
    assert render_annotations(report_of(*same, known=known)) == ""


@pytest.fixture(scope="module")
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(ROOT / "tests/schemas/junit-10.xsd"))


def test_junit_is_valid(hostile: CiReport, junit_schema: xmlschema.XMLSchema) -> None:
    text = render_junit(hostile)
    junit_schema.validate(text)
    cases = list(ET.fromstring(text).iter("testcase"))
    assert len(cases) == len(hostile.outcomes)


def test_junit_counts_and_names(junit_schema: xmlschema.XMLSchema) -> None:
    known = renew_baseline(Baseline(), [failing(rule="old"), passing("t.py::worse")])
    known = replace(known, failures=(replace(known.failures[0], issue=LINK),))
    found = report_of(
        failing("tests/t.py::T::a[x::y]"),
        failing(rule="old"),
        passing(verdict=Verdict.FLAKY),
        passing("t.py::worse", worst_ulp=1e6),
        passing("t.py::good"),
        known=known,
    )
    text = render_junit(found)
    junit_schema.validate(text)
    (suite,) = ET.fromstring(text)
    counted = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counted == ["5", "2", "1", "1"]
    first = suite[0]
    assert (first.get("classname"), first.get("name")) == ("tests.t.T", "a[x::y]")
    assert LINK in suite[1][0].get("message", "")


def test_sarif_is_valid(hostile: CiReport) -> None:
    document = json.loads(render_sarif(hostile))
    validator("sarif-2.1.0")(document)
    (result,) = document["runs"][0]["results"]
    plain = result["message"]["text"].replace("\\\\", "").replace("\\[", "").replace("\\]", "")
    assert "[" not in plain and "]" not in plain
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[\w./~%-]+", uri, re.ASCII)


def test_sarif_has_a_rule_a_fingerprint_and_a_suppression() -> None:
    known = renew_baseline(Baseline(), [failing(rule="old")])
    known = replace(known, failures=(replace(known.failures[0], issue=LINK),))
    place = "src/my möd%l #1?.py:7"
    found = report_of(failing(place=place), failing(rule="old"), passing(), known=known)
    document = json.loads(render_sarif(found))
    validator("sarif-2.1.0")(document)
    (run,) = document["runs"]
    new, old = run["results"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "joint/cse/merge",
        "joint/cse/old",
    ]
    assert new["partialFingerprints"]["ctkIdentity/v1"] == "ctk: accuracy: joint/cse: merge"
    physical = new["locations"][0]["physicalLocation"]
    assert physical["region"] == {"startLine": 7}
    assert unquote(physical["artifactLocation"]["uri"]) == "src/my möd%l #1?.py"
    assert run["originalUriBaseIds"].keys() == {physical["artifactLocation"]["uriBaseId"]}
    assert "suppressions" not in new and old["suppressions"][0]["justification"] == LINK
    moved = report_of(failing("other.py::x", place="a.py:1"))
    (result,) = json.loads(render_sarif(moved))["runs"][0]["results"]
    assert result["partialFingerprints"] == new["partialFingerprints"]


def test_code_quality_has_a_fingerprint_and_a_line(hostile: CiReport) -> None:
    for issue in json.loads(render_code_quality(hostile)):
        assert issue["description"].isprintable() and issue["check_name"].isprintable()
    (issue,) = json.loads(render_code_quality(report_of(failing(), passing())))
    assert issue["location"] == {"path": "model.py", "lines": {"begin": 12}}
    assert issue["severity"] == "major" and len(issue["fingerprint"]) == 64


@pytest.mark.parametrize(
    ("place", "test", "expected"),
    [
        ("a/b.py:3", "t.py::x", ("sub/a/b.py", 3)),
        ("{root}/a b/ü.py:3", "t.py::x", ("a b/ü.py", 3)),
        ("../c.py:3", "t.py::x", ("c.py", 3)),
        ("../../c.py:3", "t.py::x", ("sub/t.py", None)),
        ("/etc/passwd:3", "t.py::x", ("sub/t.py", None)),
        ("a.py:0", "t.py::x", ("sub/t.py", None)),
        ("a.py:99999999999", "t.py::x", ("sub/t.py", None)),
        ("a.py:٣", "t.py::x", ("sub/t.py", None)),
        ("", "pytest:t.py::x", ("sub/t.py", None)),
        ("", "model.py:build: graph0", ("sub/model.py", None)),
        ("", "a folder", None),
        ("", "../../t.py::x", None),
        ("\n::error::.py:3", "case", None),
    ],
)
def test_places_are_relative_to_the_repository(
    place: str,
    test: str,
    expected: tuple[Any, ...] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    outcome = failing(test, place=place.replace("{root}", str(tmp_path)))
    found = find_place(outcome, tmp_path)
    assert (found and (found.path, found.line)) == expected


TESTS = """
import pytest
class TestA:
    @pytest.mark.parametrize("x", ["a::b", "c"])
    def test_wrong(self, x): assert x == 0
def test_own(): assert 0
def test_good(): pass
@pytest.fixture
def broken(): raise ValueError
def test_setup(broken): pass
@pytest.mark.xfail
def test_expected(): assert 0
"""


def test_other_failures_are_those_of_pytest_without_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "test_m.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=j.xml"]
    subprocess.run([*command, "sub"], cwd=tmp_path, check=False, capture_output=True)
    wrong = failing("sub/test_m.py::TestA::test_wrong[a::b]")
    outcomes = [wrong, passing("sub/test_m.py::test_own")]
    assert list(find_other_failures(tmp_path / "j.xml", outcomes)) == [
        "sub.test_m.TestA::test_wrong[c]",
        "sub.test_m::test_own",
        "sub.test_m::test_setup",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "not xml", "<a>", "<?xml version='1.0'?><a b=<c>/>",
     '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'],
)  # fmt: skip
def test_a_damaged_report_of_pytest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "j.xml").write_text(text)
    with pytest.raises(CaseError, match=r"j\.xml"):
        list(find_other_failures(tmp_path / "j.xml", []))


def test_names_of_other_subjects() -> None:
    assert names_of("model.py: graph0") == ("ctk", "model.py: graph0")
