"""`ctk show --why-not`."""

from pathlib import Path

import torch

from ctk import repro, save_case
from tests.helpers.cli import ctk


def test_show_says_why_a_rule_did_not_fire(tmp_path: Path) -> None:
    (graph,) = repro(lambda x: x.t().exp().t(), torch.ones(2, 3)).graphs
    folder = save_case(graph.case, tmp_path / "case")
    said = ctk("show", folder, "--why-not", "t(t(x)) -> x")
    assert said.code == 0
    assert "at t: 1 of 2 nodes match, then arg0_1 is a placeholder, not a aten.t" in said.out
    assert ctk("show", folder, "--why-not", "no such rule").code == 2
    assert ctk("show", folder, "--why-not", "x", "--times").code == 2
    assert ctk("show", folder, "--why-not", "x", "--target", "ctk").code == 2


def test_show_says_what_a_pass_says_of_its_nodes(tmp_path: Path) -> None:
    (graph,) = repro(lambda x: (x @ x).t().t(), torch.ones(3, 3)).graphs
    folder = save_case(graph.case, tmp_path / "case")
    said = ctk("show", folder, "--why-not", "pad_mm")
    assert said.code == 0
    assert "joint/pad_mm: it rewrote nothing" in said.out
    assert "mm: left alone: cpu is not in pad_mm.devices: nothing is measured" in said.out
    rules = ctk("show", folder, "--why-not", "simplify_views", "--json")
    assert len(rules.data["runs"]) > 2  # one for each rule
    assert "left alone" in ctk("show", folder, "--times").out


def test_show_says_why_an_operator_stays_whole(tmp_path: Path) -> None:
    (graph,) = repro(lambda x: torch.nn.functional.gelu(x), torch.ones(2, 3)).graphs
    folder = save_case(graph.case, tmp_path / "case")
    said = ctk("show", folder, "--why-not", "decompose.aten.gelu.default")
    assert said.code == 0
    assert "it stays whole: only inductor would take it apart" in said.out
    unknown = ctk("show", folder, "--why-not", "decompose.aten.gleu.default")
    assert unknown.code == 2
    assert "no operator is called 'aten.gleu.default'" in unknown.err
