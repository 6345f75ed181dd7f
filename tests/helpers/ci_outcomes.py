"""Outcomes of tests for tests of `toolkit/ci`, and validators of the formats that it writes."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastjsonschema

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.outcome import Outcome, write_outcome
from tests.helpers.project import ROOT

WRONG = Signature("accuracy", output="out0", message="max error 0.1")


def failing(test: str = "tests/t.py::a", rule: str = "merge", **changes: Any) -> Outcome:
    """Return the outcome of a test whose compile a rule of joint/cse makes wrong."""
    made = Outcome(
        test=test,
        target="ctk",
        verdict=Verdict.REPRODUCES,
        headline=f"{test} fails because of joint/cse (confirmed)",
        signature=WRONG,
        culprit="joint/cse",
        rule=rule,
        confirmed=True,
        place="model.py:12",
        command="ctk repro out/a",
        folder=".",
        seconds=0.5,
        graphs=1,
    )
    return replace(made, **changes)


def passing(test: str = "tests/t.py::b", **changes: Any) -> Outcome:
    """Return the outcome of a test that passes, with an error of 2 ULP."""
    made = Outcome(test, "ctk", Verdict.PASSES, f"{test}: no failure", worst_ulp=2.0, graphs=1)
    return replace(made, **changes)


def write_outcomes(root: Path, *outcomes: Outcome) -> Path:
    """Write each outcome into a folder of its own; return the root."""
    for number, outcome in enumerate(outcomes):
        write_outcome(outcome, root / f"test{number}")
    return root


@functools.cache
def validator(name: str) -> Callable[[Any], Any]:
    """Return a function that raises for a document that a schema of `tests/schemas` refuses."""
    schema = json.loads((ROOT / f"tests/schemas/{name}.json").read_text(encoding="utf-8"))
    return fastjsonschema.compile(schema, use_default=False)
