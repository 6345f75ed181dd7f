"""Each planted rule is wrong in one corner: it is refuted, quickly, by a graph of that corner."""

import importlib
import pkgutil

import pytest

from ctk.toolkit.verify_rules import verify
from ctk.toolkit.verify_rules.shrinking import size_of
from ctk.toolkit.verify_rules.subjects import Owner, rule_subject
from ctk.toolkit.verify_rules.verify import verify_rules, verify_subject
from tests.planted import rules

NAMES = {each.name for each in pkgutil.iter_modules(rules.__path__)}
PLANTED = sorted(NAMES - {"common", "twins"})


def module_of(name):
    return importlib.import_module(f"tests.planted.rules.{name}")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_rule_is_refuted_in_its_corner(name):
    module = module_of(name)
    (rule,) = module.RULES.rules
    subject = rule_subject(rule, Owner(name, getattr(module, "NUMERICS", "exact")))
    finding = verify_subject(subject, draws=400, seed=0)
    assert finding.verdict == "refuted", finding
    counter = finding.counter
    assert counter.trial.difference.kind == module.CORNER, counter.summary
    drawn = counter.draw.tensors().values()
    wanted = getattr(module, "VALUES", None)
    assert not wanted or wanted & {value for each in drawn for value in each.values}, counter
    shapes = getattr(module, "SHAPES", None)
    assert not shapes or shapes & {each.shape for each in drawn}, counter
    assert counter.draw.dynamic == getattr(module, "DYNAMIC", False)
    assert not counter.draw.neighbours


def test_there_are_ten_planted_rules():
    assert len(PLANTED) >= 10


def test_right_twins_hold():
    report = verify_rules([module_of("twins")], draws=12)
    assert report.ok, str(report)
    assert [each.accepted for each in report.findings] == [12] * len(report.findings)


def test_a_counter_example_is_the_same_for_the_same_seed():
    module = module_of("minus_zero")
    first, second = (verify_rules([module], draws=100, seed=3).findings[0] for _ in range(2))
    assert first.counter.draw.bound == second.counter.draw.bound
    assert size_of(first.counter.draw) == size_of(second.counter.draw)


def test_a_rule_that_never_fires_does_not_hold(monkeypatch):
    monkeypatch.setattr(verify, "TRIES", 20)
    (rule,) = module_of("minus_zero").RULES.rules
    idle = type(rule)(rule.name, rule.pattern, rule.replacement, lambda _: "never")
    finding = verify_subject(rule_subject(idle, Owner("p")), draws=1)
    assert finding.verdict == "never fired"
