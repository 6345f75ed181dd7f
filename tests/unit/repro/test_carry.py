"""What a script carries of ours: all that it uses, no more, and nothing that needs ctk."""

import ast
import dataclasses
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.usercode.closure import names_in
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.carry import carry
from ctk.toolkit.repro.script import CARRIED, render_script
from ctk.toolkit.targets import TARGETS, target_of
from tests.helpers.repros import make_case


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "carry_low.py").write_text(
        'LIMIT = 3\n"""The most.\n\nMore."""\nUNUSED = 4\n\ndef other():\n    pass\n'
    )
    (tmp_path / "carry_high.py").write_text(
        "import math\nfrom functools import cache\nfrom carry_low import LIMIT, UNUSED\n\n\n"
        '@cache\ndef check(x):\n    """Say it.\n\n    Args:\n        x: It.\n    """\n'
        "    return helper(x) < LIMIT\n\n\ndef helper(x):\n    return math.floor(x)\n"
    )
    monkeypatch.setattr("ctk.toolkit.repro.carry.OURS", "carry_")
    return ["carry_high"]


def test_what_is_used_is_carried_and_no_more(modules: list[str]) -> None:
    found = carry("print(check(1))", modules)
    assert found.imports == ("import math", "from functools import cache")
    assert found.source == (
        'LIMIT = 3\n"""The most."""\n\n\n@cache\ndef check(x):\n    """Say it."""\n'
        "    return helper(x) < LIMIT\n\n\ndef helper(x):\n    return math.floor(x)"
    )
    assert carry("print(1)", modules).source == ""


def test_a_module_keeps_its_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("ctk.toolkit.repro.carry.OURS", "carry_")
    (tmp_path / "carry_as.py").write_text(
        "import os.path as paths\n\n\ndef here(x):\n    return paths.join(x)\n"
    )
    assert carry("here(1)", ["carry_as"]).imports == ("import os.path as paths",)


def test_one_name_for_two_things_is_refused(modules: list[str], tmp_path: Path) -> None:
    (tmp_path / "carry_same.py").write_text("def helper():\n    pass\n")
    with pytest.raises(ValueError, match="helper is defined in carry_high and in carry_same"):
        carry("check(1)", [*modules, "carry_same"], [("carry_same", "helper")])


@pytest.mark.parametrize("spec", [*(target.name for target in TARGETS), "eager", "mine.py:f"])
def test_what_is_carried_needs_torch_and_the_standard_library_only(spec: str) -> None:
    backend = target_of(spec).repro_backend
    text = "main(Program()); randn; strided; inference; stored; replaced; loaded_function"
    found = carry(text, CARRIED, [(backend.__module__, backend.__name__)])
    packages = {line.split()[1].partition(".")[0] for line in found.imports}
    assert packages - set(sys.stdlib_module_names) == {"torch"}
    outside = [node for node in ast.parse(found.source).body if isinstance(node, ast.ImportFrom)]
    assert not outside, "what needs ctk is imported inside of a target's backend"
    defined = names_in(ast.parse(found.source))
    assert {"judge_runs", "compare_runs", "under"} <= defined


WITH = {
    "recording": lambda x: (x + torch.rand(2),),
    "InFloat64": lambda x: (x.half().sin(),),
    "wide_argument": lambda x: (x.to(torch.float16),),
}


@pytest.mark.parametrize("name", WITH)
def test_what_only_some_programs_need_is_carried_for_them_only(name: str) -> None:
    text = script_of(make_case(WITH[name], torch.ones(2), target="eager"))
    assert f"{name}(" in text
    assert f"{name}(" not in script_of(
        make_case(lambda x: (x.sin(),), torch.ones(2), target="eager")
    )


def test_modes_and_deadly_failures_bring_what_they_need() -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target="eager")
    plain = script_of(case)
    modes = dataclasses.replace(case.modes, autocast=(Autocast("cpu", "bfloat16", True),))
    assert "def autocast(" in script_of(dataclasses.replace(case, modes=modes))
    strict = dataclasses.replace(case, modes=Modes(deterministic=True))
    assert "def deterministic(" in script_of(strict)
    deadly = dataclasses.replace(case, signature=Signature("signal", signal=11))
    assert "def crash_of_child(" in script_of(deadly)
    breaking = Signature("missing-error", exception="AcceleratorError")
    assert "def survives_in_child(" in script_of(dataclasses.replace(case, signature=breaking))
    for name in ("autocast", "deterministic", "crash_of_child", "survives_in_child"):
        assert f"def {name}(" not in plain


def script_of(case: Case) -> str:
    return render_script(case, plan_sources(case, modules=True)).text
