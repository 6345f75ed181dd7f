"""Who in Dynamo is to blame: real bugs of torch 2.13, each in a file that says its cause and line.

A bug that torch mends fails here, by name: note the release in `tests/helpers/torch_bugs.py`.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.execution.programs.player import Player
from ctk.toolkit.execution.programs.program_protocol import Plan, PlayAnswer, PlayedDifference
from ctk.toolkit.reduce.program.dynamo_culprit import cause_of, guilty_line, refine, with_line
from ctk.toolkit.reduce.program.eager_lines import outside_lines, with_break
from ctk.toolkit.reduce.program.smallest_program import (
    ProgramQuestioned,
    explain_program,
    name_culprit,
)
from tests.helpers.project import ROOT
from tests.helpers.torch_bugs import OF_DYNAMO

BUGS = sorted((ROOT / "tests" / "dynamo_bugs").glob("*.py"))
QUICK = ("nested_fn_attr", "globals_write")
EAGER = Plan(target="eager")
WRONG = EndToEnd(Judgement(Verdict.REPRODUCES), layer="dynamo", backend="eager")


def rows():
    return [pytest.param(path, id=path.stem, marks=marks(path.stem)) for path in BUGS]


def marks(name):
    needed = [OF_DYNAMO[name].is_needed] if name in OF_DYNAMO else []
    return needed if name in QUICK else [*needed, pytest.mark.slow]


@pytest.fixture(scope="module")
def player():
    with Player(BUGS[0], timeout_seconds=100) as found:
        yield found


def test_there_are_many():
    assert len(BUGS) >= 15


@pytest.mark.parametrize("path", rows())
def test_cause_and_line_are_named_and_confirmed(path, player):
    text = path.read_text()
    answer, blamed = refine(WRONG, player, text, EAGER)
    line = guilty_line(player, text, EAGER)
    assert answer.cause == blamed.cause == re.search(r"^cause: (\w+)", text, re.MULTILINE)[1]
    assert answer.confirmed == (blamed.cause in ("guards", "dynamic_shapes"))
    assert line is not None
    assert text.splitlines()[line.line - 1].endswith("# the line"), line.source


def test_a_healthy_program_is_not_blamed(player):
    text = Path(BUGS[0]).read_text().replace('globals()["len"]', 'globals()["other"]')
    answer, blamed = refine(WRONG, player, text, EAGER)
    assert not answer.confirmed and blamed.cause == ""
    assert "it passes" in answer.evidence[-1]


def test_a_process_that_ended_has_a_cause_though_nobody_knows_in_which_call():
    killed = PlayAnswer((PlayedDifference("signal", "the compiled program", "11"),))

    class Stand:
        def play(self, text, plan):
            return PlayAnswer() if plan.fresh else killed

    found = cause_of(Stand(), "", EAGER, killed)
    assert (found.cause, found.confirmed) == ("guards", True)
    assert found.evidence[0].startswith("compiled again before each call, it passes")


@pytest.mark.parametrize(
    ("passing", "cause"), [("dynamic", "dynamic_shapes"), ("fresh", "reused code")]
)
def test_other_sizes_prove_nothing_about_a_target(passing, cause):
    wrong = PlayAnswer((PlayedDifference("accuracy", "call2.out0", "1"),))

    class Stand:
        def play(self, text, plan):
            passes = plan.fresh if passing == "fresh" else plan.dynamic is False
            return PlayAnswer() if passes else wrong

    answer, _ = refine(replace(WRONG, layer="runtime"), Stand(), "", Plan(target="ctk"))
    assert (answer.cause, answer.confirmed) == (cause, passing == "fresh")
    assert any("it passes" in line for line in answer.evidence)


@pytest.mark.clean_process
@pytest.mark.slow
def test_the_smallest_program_its_line_and_its_repro(tmp_path):
    path = tmp_path / "numbers.py"
    path.write_text(HIDDEN)
    asked = ProgramQuestioned(path, HIDDEN, WRONG, Plan(target="inductor"))
    found = explain_program(asked, tmp_path / "minimal")
    assert (found.answer.cause, found.answer.confirmed) == ("capture", True)
    assert found.answer.line == "numbers.py:11"
    assert "np.fix(" in found.reduction.text and "scaled" not in found.reduction.text
    assert found.reduction.statements_after < found.reduction.statements_before
    assert found.run.outcome == "reproduced", found.run.output
    assert "numbers.py:11" in found.script.read_text()


HIDDEN = """import numpy as np
import torch


def scaled(x):
    return x * 2


def model():
    def f(x):
        whole = np.fix(scaled(x).numpy() * 0.3)
        return torch.from_numpy(whole) + x
    return f


def inputs():
    return torch.tensor([1.0, 2.0, 3.0])
"""


def moved(text):
    return {each.source: each.text for each in outside_lines(text)}


def test_lines_that_can_run_outside():
    found = moved(
        "def model():\n"
        "    x = helper()\n"
        "    def f(x):\n"
        "        y = x + 1\n"
        "        y.a[0] += 2\n"
        "        y.b = x\n"
        "        for i in range(3):\n"
        "            y = (yield y)\n"
        "        if flag(x):\n"
        "            return x\n"
        "        return super().f(y)\n"
        "    return f\n"
        "def helper():\n"
        "    return [1]\n"
    )
    assert set(found) == {
        "y = x + 1",
        "y.a[0] += 2",
        "y.b = x",
        "for i in range(3):",
        "if flag(x):",
    }
    assert "y = _outside(lambda: x + 1)" in found["y = x + 1"]
    assert "_ = _outside(lambda: y.a.__setitem__(0, y.a[0] + 2))" in found["y.a[0] += 2"]
    assert "_ = _outside(lambda: setattr(y, 'b', x))" in found["y.b = x"]
    assert "for i in _outside(lambda: range(3)):" in found["for i in range(3):"]
    assert "if _outside(lambda: flag(x)):" in found["if flag(x):"]


def test_a_line_knows_which_functions_of_the_program_it_calls():
    text = "def g(x):\n    return x + 1\ndef model():\n    return lambda x: g(x)\n"
    found = {each.source: each.calls for each in outside_lines(text)}
    assert found == {"return x + 1": frozenset(), "return lambda x: g(x)": frozenset({"g"})}


TWO_LINES = """def model():
    def f(x):
        x = x + 1
        y = read(x)
        z = y
        return z.half()
    return f
"""


class Scripted:
    """Plays a program by its text: it passes if one of the marks is in it."""

    def __init__(self, *marks: str) -> None:
        self.marks = marks

    def play(self, text, plan):
        if any(mark in text for mark in self.marks):
            return PlayAnswer()
        return PlayAnswer((PlayedDifference("accuracy", "call1.out0", "1"),))


CAUSE, SYMPTOM = "_outside(lambda: read(x))", "return _outside(lambda: z.half())"


def test_a_line_that_a_graph_break_mends_is_a_symptom():
    broken = "_outside(lambda: None)\n        return z.half()"
    found = guilty_line(Scripted(CAUSE, SYMPTOM, broken), TWO_LINES, EAGER)
    assert found is not None and (found.line, found.others) == (4, ())


def test_two_lines_that_nothing_tells_apart_are_both_listed():
    found = guilty_line(Scripted(CAUSE, SYMPTOM), TWO_LINES, EAGER)
    assert found is not None and (found.line, found.others) == (4, (6,))
    answer = with_line(WRONG, "net.py:4", found, "net.py:6")
    assert answer.alternatives == ("net.py:6",)
    assert "it passes with net.py:6 outside as well" in answer.evidence


def test_a_program_with_a_break_around_a_line():
    text = with_break(TWO_LINES, 4)
    assert text is not None
    around = "_outside(lambda: None)\n        y = read(x)\n        _outside(lambda: None)\n"
    assert around in text
    assert with_break(TWO_LINES, 99) is None


def test_only_the_target_differs_so_no_line_is_named(player):
    answer = replace(WRONG, layer="runtime", cause="recompile", backend="")
    found, blamed = refine(answer, Scripted(), TWO_LINES, EAGER)
    assert (found.cause, found.confirmed, blamed.cause) == ("recompile", False, "recompile")
    asked = ProgramQuestioned(BUGS[0], BUGS[0].read_text(), answer, EAGER)
    assert name_culprit(asked).line == ""
