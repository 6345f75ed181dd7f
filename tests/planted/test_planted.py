"""Each planted miscompile: bisect names it, the counterfactual confirms it, minimize reaches it."""

import importlib.util
from pathlib import Path

import pytest

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem

FILES = sorted((Path(__file__).parent / "cases").glob("*.py"))
SLOW = ("frozen_integers", "frozen_onednn_bias")
CASES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in FILES
]


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"planted_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def capture(path: Path, backward: bool) -> Case:
    (case,) = capture_cases(load_program(str(path)), backward=backward)
    return case


def called(case: Case) -> list[str]:
    nodes = [n for n in case.graph.graph.nodes if n.op.startswith("call_")]
    return [getattr(n.target, "__name__", str(n.target)) for n in nodes]


@pytest.mark.parametrize("path", CASES)
def test_planted_miscompile_is_named_and_reached(path):
    module = load(path)
    expect = module.EXPECT
    case = capture(path, getattr(module, "BACKWARD", False))
    search = find_culprit(case)
    assert search.judgement.verdict is Verdict.REPRODUCES
    culprit = search.culprit
    assert culprit is not None
    assert (culprit.stage, culprit.name) == (expect["stage"], expect["pass"])
    assert search.confirmed
    signature = search.judgement.signature
    assert signature.kind == expect.get("kind", "accuracy")
    assert signature.exception == expect.get("exception")
    if "rewrites_in_pass" in expect:
        assert culprit.rewrites_in_pass == expect["rewrites_in_pass"]
    if "rule" in expect:
        assert culprit.rule == expect["rule"]
    if "index" in expect:
        assert culprit.rewrite is not None
        assert index_in_pass(case, culprit) == expect["index"]
    reduced = minimize(Problem(search_case(case, search), lambda c: judge(c, expected=signature)))
    assert reduced.finished
    if "minimal" in expect:
        assert called(reduced.best) == expect["minimal"]
    else:
        assert len(called(reduced.best)) <= expect["minimal_at_most"]
    again = find_culprit(reduced.best)
    assert again.culprit is not None
    assert (again.culprit.stage, again.culprit.name) == (culprit.stage, culprit.name)


def search_case(case: Case, search) -> Case:
    import dataclasses

    return dataclasses.replace(case, signature=search.judgement.signature)


def index_in_pass(case: Case, culprit) -> int:
    """Return the guilty rewrite's place among those of its pass, from 1."""
    from ctk.toolkit.compile_log.recorder import Recorder

    recorder = Recorder()
    judge(case, observer=recorder)
    record = next(p for p in recorder.log.passes() if str(p.id) == culprit.where)
    return [r.id.number for r in record.rewrites].index(culprit.rewrite) + 1
