"""What tests of the oracle share."""

import pytest
from torch import fx

from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.fake_target import FakeTarget

PLAIN = Modes()


@pytest.fixture
def judged(monkeypatch):
    """Return `judged(program, inputs, compile_graph, **options)`: the target is a function."""

    def run(program, inputs, compile_graph, *, modes=PLAIN, **options):
        target = FakeTarget(compile_graph)
        monkeypatch.setattr("ctk.toolkit.execution.execute.resolve_target", lambda spec: target)
        gm = program if isinstance(program, fx.GraphModule) else fx.symbolic_trace(program)
        return judge(Case(gm, inputs, target="fake", modes=modes), **options)

    return run
