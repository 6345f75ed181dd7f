"""Strategies that leave out and ask again: what they do not ask about."""

import pytest
import torch

from ctk.toolkit.bisect.elimination import PARTITION, by_partition
from ctk.toolkit.bisect.questions import ObservedCompile, Questions
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.project import ROOT


@pytest.mark.parametrize(("backward", "asked"), [(False, []), (True, [PARTITION])])
def test_only_a_graph_that_was_split_is_split_in_another_way(backward, asked):
    torch._dynamo.reset()
    x = torch.linspace(0.1, 2.0, 8, requires_grad=backward)
    (case,) = capture_cases(
        UserProgram(lambda x: x.sin().exp(), (x,), {}, "f", ROOT), backward=backward
    )
    recorder = Recorder()
    seen = ObservedCompile(judge(case, observer=recorder), recorder.log)
    ask = Questions(case, InProcess(), print)
    found = by_partition(ask, seen)
    assert (found is not None) == backward, "the case passes anyway"
    assert list(ask.answers) == [Veto(passes=frozenset({each})) for each in asked]
