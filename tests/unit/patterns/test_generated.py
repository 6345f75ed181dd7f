"""Patterns written as Python: loaded instead of traced."""

import pytest
import torch
from torch.nn import functional

from ctk.compiler.patterns import generated
from ctk.compiler.patterns.expression import Op, Var, ops_of
from ctk.compiler.patterns.insert import fwd_only, joint_fwd_bwd
from ctk.compiler.patterns.matcher import RuleTable
from ctk.compiler.patterns.replacement import Replacement, search_pattern

X = torch.rand(4, requires_grad=True)
ALL = [
    Replacement("silu_inference", lambda x: x * x.sigmoid(), functional.silu, [X], fwd_only),
    Replacement("silu_training", lambda x: x * x.sigmoid(), functional.silu, [X], joint_fwd_bwd),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Write into a folder of the test."""
    path = tmp_path / "rules_patterns.py"
    monkeypatch.setattr(generated, "path_of", lambda function: path)


def fresh(replacement):
    return generated.source_of({replacement.name: search_pattern(replacement)})


def test_a_pattern_is_traced_and_written(tmp_path, monkeypatch):
    monkeypatch.setenv("CTK_GEN_PATTERNS", "1")
    table = RuleTable()
    generated.add_generated(ALL[0], table)
    (path,) = tmp_path.iterdir()
    assert path.read_text(encoding="utf-8") == fresh(ALL[0])
    assert fresh(ALL[1]) != fresh(ALL[0])


def test_without_a_file_a_pattern_is_traced():
    table = RuleTable()
    generated.add_generated(ALL[0], table)
    assert fresh(ALL[0]) == generated.source_of({ALL[0].name: table.rules[0].pattern})


def test_written_patterns_share_calls_but_equal_calls_of_one_stay_two_nodes(tmp_path):
    aten, x = torch.ops.aten, Var("x")
    one, other = Op(aten.sin.default, (x,)), Op(aten.sin.default, (x,))
    same = {"same_twice": (Op(aten.add.Tensor, (one, one)),)}
    two = {"same_two": (Op(aten.add.Tensor, (one, other)),)}
    path = tmp_path / "same.py"
    path.write_text(generated.source_of({**same, **two}), encoding="utf-8")
    read = generated.read(path)
    assert len({*ops_of(*read["same_twice"])}) == 2
    assert len({*ops_of(*read["same_two"])}) == 3
    assert read["same_twice"][0].args[0] is read["same_two"][0].args[0]
    assert generated.source_of(read) == path.read_text(encoding="utf-8")


def test_of_patterns_that_differ_in_one_operator_the_first_is_written(tmp_path):
    aten = torch.ops.aten
    inner = Op(aten.sin.default, (Var("x"),))
    patterns = {
        f"same_{name}": (Op(target, (Op(target, (inner, Var("y"))), inner)),)
        for name, target in (("div", aten.div.Tensor), ("mul", aten.mul.Tensor))
    }
    patterns["same_other"] = (Op(aten.mul.Tensor, (inner, inner)),)
    path = tmp_path / "same.py"
    path.write_text(generated.source_of(patterns), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert "same_mul = with_target(same_div, aten.div.Tensor, aten.mul.Tensor)\n" in text
    assert text.count("with_target(") == 1
    read = generated.read(path)
    assert generated.source_of(read) == text
    for name, pattern in patterns.items():
        mine, loaded = (generated.source_of({name: each}) for each in (pattern, read[name]))
        assert mine == loaded
