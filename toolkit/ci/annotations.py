"""Annotations at the user's lines: workflow commands of GitHub, and code quality of GitLab.

    ::error file=model.py,line=12,title=ctk%3A joint/cse::accuracy at out0 in tests/test_model.py::a

GitHub shows ten annotations of a step, so a longer list ends with the number of the others.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from ctk.compiler.errors import count_of
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.ci.places import Place
from ctk.toolkit.ci.report import CiReport, Group

MOST = 10


def render_annotations(report: CiReport) -> str:
    """Return one workflow command per new culprit and loss of accuracy, at most ten."""
    every = list(_commands(report))
    if len(every) > MOST:
        left = count_of(len(every) - MOST + 1, "more failure")
        every[MOST - 1 :] = [_command(None, "ctk", f"{left}: see the summary of the job")]
    return "".join(f"{each}\n" for each in every)


def render_code_quality(report: CiReport) -> str:
    """Return the new failures that have a place as a code quality report of GitLab."""
    issues = [_quality(each, each.place) for each in report.new if each.place is not None]
    return json.dumps(issues, indent=1) + "\n"


def sentence_of(group: Group, tests: Sequence[str] = ()) -> str:
    """Return a failure in one sentence: its kind, its tests, and the next command."""
    first, tests = group.first, list(tests or group.tests)
    failure = one_line(str(first.signature or first.headline), REASON_LENGTH)
    more = f" and {count_of(len(tests) - 1, 'more test')}" if len(tests) > 1 else ""
    next_step = f"; next: {first.command}" if first.command else ""
    return f"{failure}, in {tests[0]}{more}{next_step}"


def _commands(report: CiReport) -> Iterator[str]:
    by_culprit: dict[object, list[Group]] = {}
    for group in report.new:
        key = group.rule if group.first.culprit else group.first.key
        by_culprit.setdefault(key, []).append(group)
    for first, *others in by_culprit.values():
        tests = [test for group in (first, *others) for test in group.tests]
        yield _command(first.place, f"ctk: {first.rule}", sentence_of(first, tests))
    for loss in report.losses:
        yield _command(loss.place, "ctk: accuracy", f"{loss.outcome.test}: {loss.sentence}")


def _command(place: Place | None, title: str, message: str) -> str:
    properties = {"file": place.path} if place is not None else {}
    if place is not None and place.line is not None:
        properties["line"] = str(place.line)
    properties["title"] = title
    told = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::error {told}::{_escape(message)}"


def _escape(text: str) -> str:
    """Escape the data of a command; `##[` would start a command of the older form."""
    plain = one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return plain.replace("##[", "## [")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _quality(group: Group, place: Place) -> Mapping[str, object]:
    return {
        "description": one_line(sentence_of(group)),
        "check_name": f"ctk: {group.rule}",
        "fingerprint": group.first.digest,
        "severity": "major",
        "location": {"path": place.path, "lines": {"begin": place.line or 1}},
    }
