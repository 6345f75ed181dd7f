"""The sentence on wrong numbers holds for each kind of comparison."""

import pytest
import torch

from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.errors import FACTOR
from ctk.toolkit.operations.report.phrases import MEANINGS

ONES = torch.ones(4)
EXACT = torch.full((4,), 0.5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("eager", "compiled", "exact"),
    [
        (torch.zeros(4), torch.full((4,), 9.0), EXACT),  # eager is far from float64 itself
        (ONES, ONES * 2, None),  # no float64 run
        (ONES, ONES * 2, ONES.double()),
        (ONES.bfloat16(), ONES.bfloat16() * 2, ONES.double()),
        (torch.arange(4), torch.arange(4) + 1, None),
    ],
)
def test_the_error_is_beyond_ten_times_eagers_own(eager, compiled, exact) -> None:
    mismatch = compare_values("out0", eager, compiled, exact)
    assert mismatch is not None and mismatch.kind == "accuracy"
    truth = eager if exact is None else exact
    own, error = (eager - truth).abs().max(), (compiled - truth).abs().max()
    assert error > FACTOR * own
    assert "ten times eager's own error" in MEANINGS["accuracy"]
    assert "eager is within" not in MEANINGS["accuracy"]
