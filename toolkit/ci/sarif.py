"""The report as SARIF 2.1.0, for code scanning: one result for each failure.

A rule is a pass with its guilty rule, or a kind of failure without a culprit. The fingerprint of a
result is the identity of the failure, so that it stays one alert while lines move. A known failure
is suppressed, with the link of its issue. Losses of accuracy are left out: they are not in a line.
Code scanning refuses a result without a location, so without a place the name of the test is one.
"""

import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.manifest import ctk_version
from ctk.toolkit.ci.annotations import sentence_of
from ctk.toolkit.ci.places import Place
from ctk.toolkit.ci.report import CiReport, Group

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT = "%SRCROOT%"


def render_sarif(report: CiReport) -> str:
    """Return the failures as SARIF."""
    groups = [group for group in report.groups if group.first.fails]
    rules = sorted({group.rule for group in groups})
    run = {
        "tool": {
            "driver": {
                "name": "ctk",
                "version": ctk_version(),
                "rules": [_rule(name) for name in rules],
            }
        },
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(group, rules.index(group.rule)) for group in groups],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(name: str) -> Mapping[str, object]:
    text = _plain(f"A compiled program differs from eager because of {name}.")
    return {"id": one_line(name), "shortDescription": {"text": text}}


def _plain(text: str) -> str:
    """Return a text for a message, in which `[text](address)` is a link unless it is escaped."""
    return re.sub(r"([\\\[\]])", r"\\\1", one_line(text))


def _result(group: Group, index: int) -> Mapping[str, object]:
    result: dict[str, object] = {
        "ruleId": one_line(group.rule),
        "ruleIndex": index,
        "level": "error",
        "message": {"text": _plain(sentence_of(group))},
        "locations": [_location(group.place or Place(one_line(group.tests[0])))],
        "partialFingerprints": {
            "ctkIdentity/v1": group.first.key,
            "primaryLocationLineHash": f"{group.first.digest[:16]}:1",
        },
        "properties": {"tests": list(group.tests), "target": group.first.target},
    }
    if group.issue:
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": group.issue}
        ]
    return result


def _location(place: Place) -> Mapping[str, object]:
    physical: dict[str, object] = {
        "artifactLocation": {"uri": quote(place.path), "uriBaseId": ROOT}
    }
    if place.line is not None:
        physical["region"] = {"startLine": place.line}
    return {"physicalLocation": physical}
