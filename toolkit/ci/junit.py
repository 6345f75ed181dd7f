"""The report as JUnit XML, in the form of Surefire and Jenkins, and the failed tests of pytest's.

A new failure and a loss of accuracy is a failure, an undecided test an error, and a known failure
is skipped with the link of its issue.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.bounded_file import read_bounded
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.ci.report import CiReport

JUNIT_NBYTES = 64 << 20
"""The JUnit XML of a test run: about 200 bytes for a test, and the log of each that failed."""


def render_junit(report: CiReport) -> str:
    """Return the outcomes as JUnit XML, one test case each."""
    marks = dict(_marks(report))
    cases = [_test_case(each, marks.get(id(each))) for each in report.outcomes]
    tags = [mark.tag for mark in marks.values()]
    counts = {"tests": len(cases), "failures": tags.count("failure"), "errors": tags.count("error")}
    numbers = {name: str(count) for name, count in counts.items()}
    seconds = sum(max(0.0, outcome.seconds) for outcome in report.outcomes)
    root = ET.Element("testsuites", {"name": "ctk", **numbers})
    skipped = {"skipped": str(tags.count("skipped")), "time": f"{seconds:.3f}"}
    suite = ET.SubElement(root, "testsuite", {"name": "ctk", **numbers, **skipped})
    suite.extend(cases)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def names_of(test: str) -> tuple[str, str]:
    """Return class name and name of a test, as pytest writes them.

    >>> names_of("tests/test_a.py::TestB::test_c[x::y]")
    ('tests.test_a.TestB', 'test_c[x::y]')
    """
    plain, bracket, parameters = test.partition("[")
    file, *classes = plain.split("::")
    if not classes:
        return "ctk", test
    file = file.removesuffix(".py").replace("/", ".")
    return ".".join((file, *classes[:-1])), f"{classes[-1]}{bracket}{parameters}"


def find_other_failures(path: Path, outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the tests that fail in a JUnit XML of pytest without a failing outcome of their own.

    Raises:
        CaseError: It cannot be read.
    """
    explained = {names_of(each.test) for each in outcomes if not each.verdict.is_no_failure}
    for case in _parse(path).iter("testcase"):
        names = case.get("classname", ""), case.get("name", "")
        fails = case.find("failure") is not None or case.find("error") is not None
        if fails and names not in explained:
            yield one_line("::".join(filter(None, names)))


def _parse(path: Path) -> ET.Element:
    try:
        text = read_bounded(path, JUNIT_NBYTES).decode("utf-8")
        if "<!DOCTYPE" in text:
            raise CaseError(f"{path} has a DOCTYPE, which pytest does not write: refused")
        return ET.fromstring(text)
    except (ET.ParseError, OSError, ValueError) as error:
        raise CaseError(
            f"{path} cannot be read as JUnit XML ({error}); next: run pytest --junitxml={path}"
        ) from error


def _marks(report: CiReport) -> Iterator[tuple[int, ET.Element]]:
    """Yield the element below the test case of each outcome that has one."""
    for loss in report.losses:
        yield id(loss.outcome), _mark("failure", "accuracy", loss.sentence)
    for group in report.groups:
        for each in group.outcomes:
            if group.issue:
                yield id(each), _mark("skipped", "known", f"known: {group.issue}")
            else:
                tag = "failure" if each.fails else "error"
                yield id(each), _mark(tag, each.kind, each.headline, each)


def _mark(tag: str, kind: str, message: str, outcome: Outcome | None = None) -> ET.Element:
    mark = ET.Element(tag, {"type": one_line(kind), "message": one_line(message)})
    if outcome is not None:
        lines = {
            "failure": str(outcome.signature or ""),
            "culprit": outcome.culprit or "",
            "place": outcome.place,
            "folder": outcome.folder or "",
            "next": outcome.command,
            "identity": outcome.key,
        }
        mark.text = "\n".join(f"{name}: {one_line(text)}" for name, text in lines.items() if text)
    return mark


def _test_case(outcome: Outcome, mark: ET.Element | None) -> ET.Element:
    class_name, name = map(one_line, names_of(outcome.test))
    seconds = f"{max(0.0, outcome.seconds):.3f}"
    case = ET.Element("testcase", {"classname": class_name, "name": name, "time": seconds})
    if mark is not None:
        case.append(mark)
    return case
