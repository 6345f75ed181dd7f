"""Rules as users write them: plain functions, tables, rules of two functions, in modules."""

import importlib

import pytest

from ctk.toolkit.case.store import load_case
from ctk.toolkit.verify_rules.keep import keep
from ctk.toolkit.verify_rules.subjects import subjects_in
from ctk.toolkit.verify_rules.verify import verify_rules

TRACED, FUNCTIONS = "tests.planted.user_rules.traced", "tests.planted.user_rules.functions"
RULES = [rule.name for rule in importlib.import_module(TRACED).RULES.rules]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_two_functions(name):
    (finding,) = verify_rules([TRACED], rules=[name], draws=20).findings
    assert finding.verdict == ("holds" if "right" in name else "refuted"), finding.counter


def test_plain_functions_of_a_graph_are_passes():
    module = importlib.import_module(FUNCTIONS)
    assert [each.pass_name for each in subjects_in(module)] == ["drop_relu_of_abs", "swap_minimum"]
    assert [each.pass_name for each in subjects_in(module, "swap_minimum")] == ["swap_minimum"]


def test_a_counter_example_is_a_case(tmp_path):
    report = verify_rules([TRACED], rules=["alpha"], draws=5)
    (folder,) = keep(report.findings, tmp_path)
    case = load_case(folder / "case", trust=True)
    assert case.signature is not None
    assert case.signature.kind != "compile-error"
