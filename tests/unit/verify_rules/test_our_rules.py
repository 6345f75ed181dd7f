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


QUICK_PASSES = ("fold_uniform_values", "simplify_slices")


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(each, id=name, marks=() if is_quick else pytest.mark.slow)
        for each, name in zip(SUBJECTS, IDS, strict=True)
        for is_quick in [each.name != "any rewrite" or each.pass_name in QUICK_PASSES]
    ],
)
def test_a_rule_of_ours_holds(subject):
    finding = verify_subject(subject, draws=6, seed=0)
    assert finding.verdict == "holds", finding.counter and finding.counter.summary


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("subject", SUBJECTS, ids=IDS)
def test_a_rule_of_ours_holds_on_thousands_of_draws(subject):
    finding = verify_subject(subject, draws=3000, seed=1)
    assert finding.verdict == "holds", finding.counter and finding.counter.summary
