"""Our own rules and passes hold on drawn graphs."""

import pytest

from ctk.toolkit.verify_rules.subjects import our_subjects
from ctk.toolkit.verify_rules.verify import verify_subject

SUBJECTS = our_subjects()
IDS = [f"{each.pass_name}-{each.name}" for each in SUBJECTS]


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
