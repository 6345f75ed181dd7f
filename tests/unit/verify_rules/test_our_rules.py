"""Our own rules and passes hold on drawn graphs."""

import pytest

from ctk.compiler.passes import PASSES
from ctk.toolkit.verify_rules.subjects import UNDRAWN, our_subjects
from ctk.toolkit.verify_rules.verify import verify_subject

SUBJECTS = our_subjects()
IDS = [f"{each.pass_name}-{each.name}" for each in SUBJECTS]


def test_every_pass_of_ours_has_a_subject_or_a_reason():
    names = {step.name for table in PASSES.values() for step in table}
    assert names == {each.pass_name for each in SUBJECTS} | UNDRAWN.keys()


@pytest.mark.parametrize("subject", SUBJECTS, ids=IDS)
def test_a_rule_of_ours_holds(subject):
    finding = verify_subject(subject, draws=6, seed=0)
    assert finding.verdict == "holds", finding.counter and finding.counter.said


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("subject", SUBJECTS, ids=IDS)
def test_a_rule_of_ours_holds_on_thousands_of_draws(subject):
    finding = verify_subject(subject, draws=3000, seed=1)
    assert finding.verdict == "holds", finding.counter and finding.counter.said
