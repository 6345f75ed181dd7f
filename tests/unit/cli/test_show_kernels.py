"""`ctk show --kernels`."""

from pathlib import Path

import torch

from ctk import repro, save_case
from tests.helpers.cli import ctk


def test_show_prints_the_loops_and_the_source_of_each_kernel(tmp_path: Path) -> None:
    config = {"codegen": "c"}
    (graph,) = repro(lambda x: (x * 2).exp().sum(1), torch.ones(3, 4), config=config).graphs
    folder = save_case(graph.case, tmp_path / "case")
    said = ctk("show", folder, "--kernels")
    assert said.code == 0
    assert "lowered/c:forward.sum_1: mul, exp, sum_1" in said.out
    assert "for r1 < 4:" in said.out and "# sum_1" in said.out
    assert "void kernel_sum_1(" in said.out and "// sum_1" in said.out
    (kernel,) = ctk("show", folder, "--kernels", "--json").data["kernels"]
    assert kernel["nodes"] == ["mul", "exp", "sum_1"]
    assert ctk("show", folder, "--kernels", "--times").code == 2
