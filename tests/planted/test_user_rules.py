"""Rules as users write them: plain functions, tables, rules of two functions, in modules."""

import importlib

import pytest

from ctk.toolkit.case.store import load_case
from ctk.toolkit.verify_rules.counter_examples import keep_counter_examples
from ctk.toolkit.verify_rules.subjects import subjects_in
from ctk.toolkit.verify_rules.verify import verify_rules

PLACE = "tests.planted.user_rules"
WRONG_FUNCTIONS, RIGHT_FUNCTIONS = f"{PLACE}.wrong_functions", f"{PLACE}.right_functions"
WRONG_PASSES = f"{PLACE}.wrong_passes"
TRACED, FUNCTIONS = "tests.planted.user_rules.traced", "tests.planted.user_rules.functions"


def names_in(module):
    return [each.pass_name for each in subjects_in(importlib.import_module(module))]


WRONG = [(module, name) for module in (WRONG_FUNCTIONS, WRONG_PASSES) for name in names_in(module)]
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
    (folder,) = keep_counter_examples(report.findings, tmp_path)
    case = load_case(folder / "case", trust=True)
    assert case.signature is not None
    assert case.signature.kind != "compile-error"


QUICK = ("copy_that_leaves", "keepdim_is_ignored")


def verdict_on(module, name, **options):
    (finding,) = verify_rules([module], rules=[name], **options).findings
    return finding.verdict


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_function_is_refuted(name):
    assert verdict_on(WRONG_FUNCTIONS, name) == "refuted"


def test_a_right_function_is_not():
    assert verdict_on(RIGHT_FUNCTIONS, "t_is_transpose", draws=10) == "holds"


UNSEEN = ("negative_dims", "memory_format", "order_of_zeros", "where_to_maximum")
"""What the default draws do not reach: docs/limitations.md."""


def marked(module, name):
    missed = pytest.mark.xfail(strict=True, reason="the default draws do not reach its corner")
    return pytest.param(module, name, marks=[missed] if name in UNSEEN else [])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("module", "name"), [marked(*each) for each in WRONG])
def test_each_wrong_pass_is_refuted_with_the_default_draws(module, name):
    assert verdict_on(module, name) == "refuted"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", names_in(RIGHT_FUNCTIONS))
def test_each_right_pass_holds_on_many_draws(name):
    assert verdict_on(RIGHT_FUNCTIONS, name) == "holds"


def test_functions_beside_rules_are_passes_unless_another_uses_them():
    assert "orphan" in names_in(f"{PLACE}.beside_rules")
    assert "helper" not in names_in(f"{PLACE}.beside_rules")


def test_a_function_says_its_numerics():
    """One that says nothing is tried as exact."""
    found = subjects_in(importlib.import_module(RIGHT_FUNCTIONS))
    numerics = {each.pass_name: each.numerics for each in found}
    assert numerics.pop("bias_of_a_product") == "reassociates"
    assert set(numerics.values()) == {"exact"}
