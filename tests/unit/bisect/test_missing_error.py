"""An assertion that only eager fails and that breaks the process: every question is asked apart."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from ctk.toolkit.bisect.crashes import find_deadly
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.case_zoo import capture


class Apart(Executor):
    """Answers as children on a GPU do: what eager raises is known, and it is not run here."""

    isolates = True

    def judge(self, question: Question) -> Judgement:
        said = "all elements of input should be between 0 and 1"
        assert question.veto is not None
        observer = Recorder(question.veto)
        expected = question.expected
        return judge(question.case, expected=expected, observer=observer, eager_raised=said)

    def close(self) -> None:
        """Nothing was started."""


@pytest.mark.slow
def test_the_decomposition_that_forgets_it_is_named() -> None:
    (case,) = capture(F.binary_cross_entropy, torch.tensor([0.5, 0.2]), torch.tensor([1.0, 0.0]))
    inputs = (torch.tensor([1.5, 0.2]), case.inputs[1])
    case = replace(case, inputs=inputs, target="inductor")
    first = Apart().ask(Question(case))
    assert first.signature is not None
    assert first.signature.is_deadly
    found = find_deadly(case, Apart(), first, lambda _: None)
    assert found.confirmed, found
    assert found.culprit is not None
    assert found.culprit.where == "dispatch/decompose.aten.binary_cross_entropy.default"
