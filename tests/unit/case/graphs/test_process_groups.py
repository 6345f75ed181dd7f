"""Cases with collectives run in a process that has no such group."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.torch_compat.fx.graphs import trace_calls
from ctk.compiler.torch_compat.process.process_groups import place_in_group, stand_in_for_group
from ctk.toolkit.case.graphs.process_groups import ProcessGroup, groups_of, replace_missing
from tests.helpers.faulty_backends import run_python

C10D = torch.ops._c10d_functional
GROUP = "ctk-test"
Program = Callable[[torch.Tensor], torch.Tensor]


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    return C10D.wait_tensor(C10D.all_reduce(x * 2, "sum", GROUP)).sin()


def gather_and_reduce(x: torch.Tensor) -> torch.Tensor:
    gathered = C10D.wait_tensor(C10D.all_gather_into_tensor(x, 2, GROUP))
    return C10D.wait_tensor(C10D.all_reduce(gathered.exp(), "avg", GROUP))[:4]


def in_a_branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, all_reduce, torch.neg, (x,))


@pytest.mark.parametrize("program", [all_reduce, gather_and_reduce, in_a_branch])
def test_a_case_with_collectives_runs_in_a_fresh_process(program: Program, tmp_path: Path):
    stand_in_for_group(GROUP, 1, 2)
    gm = trace_calls(program, [torch.ones(4)])
    assert groups_of(gm) == {GROUP: ProcessGroup(1, 2)}
    report = ctk.check(gm, torch.ones(4))
    assert report.ok, str(report)
    ctk.save_case(report.graphs[0].case, tmp_path / "case")
    text = f"import ctk; print(ctk.check(ctk.load_case({str(tmp_path / 'case')!r}, trust=True)))"
    done = run_python("-c", text)
    assert "no failure" in done.stdout, done.stderr


def test_a_known_group_stays():
    stand_in_for_group(GROUP, 1, 2)
    replace_missing({GROUP: ProcessGroup(0, 8), "ctk-other": ProcessGroup(0, 8)})
    assert place_in_group(GROUP) == (1, 2)
    assert place_in_group("ctk-other") == (0, 8)
    assert place_in_group("ctk-nobody") is None
