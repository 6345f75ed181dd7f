"""Programs played by the warm process, and the repro of one: real Dynamo, its backend `eager`."""

import pytest

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.execution.programs.player import Player
from ctk.toolkit.execution.programs.program_protocol import Plan
from ctk.toolkit.reduce.program.program_repro import (
    ProgramFailure,
    render_program,
    write_program_repro,
)
from ctk.toolkit.reduce.program.statement_search import reduce_program

SHADOWED = '''"""A submodule that an entry of the instance's dict hides has no guard."""
import torch
from beside import scaled


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.sub(scaled(x))


def warmups():
    return [inputs()]


def between(m):
    torch.manual_seed(2)
    object.__setattr__(m, "sub", torch.nn.Linear(4, 4))


def model():
    return M()


def inputs():
    return (torch.ones(3, 4),)
'''
EAGER = Plan(target="eager")
WRONG = Signature("accuracy", output="call2.out0")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    folder.joinpath("beside.py").write_text("def scaled(x):\n    return x * 2\n")
    path = folder / "shadowed.py"
    path.write_text(SHADOWED)
    return path


@pytest.fixture(scope="module")
def player(program):
    with Player(program, timeout_seconds=60) as found:
        yield found


@pytest.mark.slow
def test_a_missing_guard_is_seen_at_the_second_call(player):
    assert player.judge(SHADOWED, EAGER, WRONG).verdict is Verdict.REPRODUCES
    fresh = Plan(target="eager", fresh=True)
    assert player.judge(SHADOWED, fresh, WRONG).verdict is Verdict.PASSES


@pytest.mark.slow
def test_what_is_no_such_failure(player):
    other = Signature("runtime-error", "TypeError")
    assert player.judge(SHADOWED, EAGER, other).verdict is Verdict.DIFFERENT
    healthy = SHADOWED.replace("object.__setattr__", "setattr")
    assert player.judge(healthy, EAGER, WRONG).verdict is Verdict.PASSES
    broken = SHADOWED.replace("def model():", "def model():\n    nothing()")
    assert player.judge(broken, EAGER, WRONG).verdict is Verdict.INVALID


@pytest.mark.slow
def test_a_crash_and_a_hang_are_answers_and_end_nothing_of_ours(player):
    crash = SHADOWED.replace("return M()", "import os; os.abort()")
    assert player.judge(crash, EAGER, WRONG).verdict is Verdict.INVALID
    assert player.judge(SHADOWED, EAGER, WRONG).verdict is Verdict.REPRODUCES


@pytest.mark.slow
def test_the_smallest_program_keeps_the_guard_that_is_missing(player):
    ask = player.make_oracle(EAGER, WRONG, passing=Plan(target="eager", fresh=True))
    found = reduce_program(SHADOWED, ask)
    assert "object.__setattr__" in found.text and "def warmups" in found.text
    assert "scaled" not in found.text and found.statements_after <= 18


@pytest.mark.slow
@pytest.mark.clean_process
def test_the_repro_reproduces_and_says_so(program, tmp_path):
    failure = ProgramFailure(SHADOWED, program, EAGER, WRONG, "Dynamo's guards")
    script, seen = write_program_repro(failure, tmp_path / "minimal")
    assert (seen.outcome, seen.exit_code) == ("reproduced", 1), seen.output
    text = script.read_text()
    assert "# ran:      reproduced on" in text and "# blame:    Dynamo's guards" in text
    assert "import ctk" not in text and "from ctk" not in text
    assert (tmp_path / "minimal" / "program.py").read_text() == SHADOWED


def test_names_of_a_program_that_the_script_has_too_are_changed(program):
    text = SHADOWED.replace("scaled", "leaves")
    failure = ProgramFailure(text, program, EAGER, WRONG)
    script = render_program(failure, None)
    assert "import leaves as leaves_" in script and "self.sub(leaves_(x))" in script


def test_names_that_the_carried_code_imports_are_renamed_unless_they_mean_the_same(program):
    text = SHADOWED.replace("import scaled", "import scaled as replace").replace(
        "scaled(x)", "replace(x)"
    )
    failure = ProgramFailure(f"from pathlib import Path\n{text}", program, EAGER, WRONG)
    script = render_program(failure, None)
    assert "self.sub(replace_(x))" in script and "Path_" not in script and "as torch_" not in script


def test_the_target_and_how_it_is_played_stand_in_the_script(program):
    plan = Plan("inductor", {"freezing": True}, dynamic=True, backward=True, calls=3)
    script = render_program(ProgramFailure(SHADOWED, program, plan, WRONG), None)
    compile(script, "repro.py", "exec")
    assert "'freezing': True" in script and '{"dynamic": True}' in script
    assert "How(calls=3, backward=True)" in script
    assert "    torch._inductor.config.freezing = True" in script


@pytest.mark.parametrize("target", ["ctk", "torchscript", "inductor", f"{__name__}:backend"])
def test_whatever_the_target_carries_has_names_of_its_own(program, target):
    plan = Plan(target, more=("sizes", "values"))
    compile(
        render_program(ProgramFailure(SHADOWED, program, plan, WRONG), None), "repro.py", "exec"
    )
