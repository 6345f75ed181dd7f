"""`ctk show --why-not`."""

from pathlib import Path

import torch

from ctk import repro, save_case
from tests.helpers.cli import ctk, write


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


USERS = """
import torch
from ctk.compiler.patterns import RuleTable, apply_rules, fwd_only, register_replacement

RULES = RuleTable()
register_replacement(
    lambda x: x.sin().cos(), lambda x: x.tan(), [torch.ones(2)], fwd_only, RULES, name="sin cos"
)

def tidy(rewriter):
    apply_rules(rewriter, RULES)

def plain(graph): pass

def model(): return lambda x: x.sin().exp()
def inputs(): return torch.ones(2)
def config(): return {"custom_passes": {"joint": [f"{__file__}:tidy", f"{__file__}:plain"]}}
"""


def test_the_rules_and_passes_of_the_user_are_known(tmp_path: Path) -> None:
    program = write(tmp_path, "net.py", USERS)
    by_rule = ctk("show", program, "--why-not", "sin cos")
    assert (by_rule.code, by_rule.first) == (0, "sin cos: fired 0 times"), by_rule.err
    assert "joint/tidy: sin cos: no node calls aten.cos" in by_rule.out
    by_pass = ctk("show", program, "--why-not", "tidy")
    assert "joint/tidy: sin cos: " in by_pass.out
    assert "joint/plain: it rewrote nothing" in ctk("show", program, "--why-not", "plain").out
    assert "did you mean 'sin cos'" in ctk("show", program, "--why-not", "sin coss").err


def test_configured_passes_without_rewrites_are_listed(tmp_path: Path) -> None:
    program = write(tmp_path, "net.py", USERS)
    said = ctk("check", program, "--json")
    assert said.code == 0, said.err
    assert said.data["graphs"][0]["idle"] == ["joint/tidy", "joint/plain"]
    command = f"ctk show {program} --why-not tidy"
    line = f"idle       joint/tidy rewrote nothing in graph0; why: {command}"
    assert line in ctk("check", program).out
    assert "idle" not in ctk("check", program, "--config", "custom_passes={}").out
