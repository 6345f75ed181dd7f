"""What is said when a rule is registered with arguments that do not fit it."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import VerifyError
from ctk.compiler.options.config import Config
from ctk.compiler.patterns import (
    ANY,
    ListOf,
    Op,
    Var,
    gen_register_replacement,
    generated,
    register_handler,
    register_rule,
)
from ctk.compiler.patterns.insert import fwd_only
from ctk.compiler.patterns.matcher import RuleTable, holds
from ctk.compiler.patterns.replacement import register_replacement
from ctk.compiler.pipeline import compile_fx
from tests.helpers.passes import torch_graph

X, Y = torch.randn(4, 6), torch.randn(4, 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exclusive_arg_names": ("zz",)}, "exclusive_arg_names of the rule rule names 'zz'"),
        ({"scalar_workaround": {"zz": 2.5}}, "scalar_workaround of the rule rule names 'zz'"),
        ({"scalar_workaround": {"s": 2.5, "y": 2.5}}, "two scalars of the rule rule have one"),
        ({"scalar_workaround": {"s": 2.5, "y": 3.5}}, "has 2 example inputs for the tensor"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(options, said):
    with pytest.raises(ValueError, match=said):
        register_replacement(
            lambda x, s, y: x * s + y,
            torch.add,
            [X, Y],
            fwd_only,
            RuleTable(),
            name="rule",
            **options,
        )


x, SIN = Var("x"), Op(torch.sin, (Var("x"),))


def odd(rewriter, match):
    return match.root


def one(rewriter):
    return rewriter


def rule(pattern, guard=holds, function=odd, table=None):
    return lambda: register_rule(RuleTable() if table is None else table, pattern, guard=guard)(
        function
    )


@pytest.mark.parametrize(
    ("register", "fault"),
    [
        (
            lambda: Op("relu", "x"),
            "the arguments of an Op are a tuple: write ('x',) for 'x'",
        ),
        (
            lambda: Op(3, (x,)),
            "3 is not the target of an Op: give an operator, a function, the name of a method or "
            "a class of modules",
        ),
        (
            lambda: Op(torch.cat, (ListOf(x),), {"axes": 1}),
            "an Op of cat could never match: cat has no argument 'axes'",
        ),
        (
            lambda: Op(torch.relu, (x, 1, 2)),
            "an Op of relu could never match: relu takes at most 1 by place, not 3",
        ),
        (
            lambda: Op(torch.split, (x,)),
            "an Op of split could never match: split takes other arguments, missing a required "
            "argument: 'split_size_or_sections'",
        ),
        (rule(x), "rule odd: its pattern is Var(name='x'); write a call, Op(target, (part, ...))"),
        (rule(()), "rule odd: its pattern is (); write a call"),
        (rule(ListOf(x)), "rule odd: its pattern is ListOf(part=Var(name='x'), "),
        (
            rule(Op(torch.cat, ([ListOf(x), ListOf(Var("y"))], 0))),
            "rule odd: a ListOf stands for a whole list: write ListOf(part), not [ListOf(part)]",
        ),
        (
            rule(Op(torch.cat, (ListOf(SIN, same=("zz",)), 0))),
            "rule odd: same of a ListOf names 'zz'; name a Var or an Op of its items",
        ),
        (
            rule(Op(torch.cat, (ListOf(SIN, same=(Op(torch.cos, (x,)),)), 0))),
            "rule odd: same of a ListOf names <built-in method cos of type",
        ),
        (
            rule(Op(torch.cat, (ListOf(SIN, same=x), 0))),
            "rule odd: same of a ListOf is Var(name='x'); write a tuple: (Var(name='x'),)",
        ),
        (rule(SIN, guard=3), "rule odd: its guard is 3; give a function of (match)"),
        (
            rule(SIN, guard=odd),
            "rule odd: its guard odd takes (rewriter, match); give a function of (match)",
        ),
        (
            rule(SIN, function=one),
            "rule one: its function one takes (rewriter); give a function of (rewriter, match)",
        ),
        (rule(SIN, table=3), "rule odd: 3 is not a RuleTable; make one: RuleTable()"),
    ],
)
def test_a_rule_that_could_never_fire_is_refused(register, fault):
    with pytest.raises(TypeError, match=re.escape(fault)):
        register()


def test_rules_that_only_look_unusual_are_taken():
    nested = Op(torch.cat, (ListOf(Op(torch.cat, (ListOf(x), 0))), 0))
    calls = [
        nested,
        Op("permute", (x, 0, 2, 1)),
        Op(torch.sum, (x,), {"axis": 0}),
        Op(torch.add, (x, x), {"out": ANY}),
        Op(torch.nn.functional.max_pool2d, (x, 2)),
    ]
    table = RuleTable()
    for pattern in calls:
        register_rule(table, pattern, guard=lambda match, strict=True: None)(lambda *both: both[1])
    assert len(table.rules) == len(calls)


ADVICE = "return a node for each result: match.node(...), or the node of rewriter.insert(...)"
LACKS = "it asks for the variable 'q', which its pattern lacks"
NAMES = "name one of the pattern: 'x', 'y'"


@pytest.mark.parametrize(
    ("function", "guard", "fault", "advice"),
    [
        (lambda *_: None, holds, "it returned None, and its pattern has 1 result", ADVICE),
        (lambda *_: 3, holds, "it returned 3, and its pattern has 1 result", ADVICE),
        (lambda _, match: [match.root] * 2, holds, "it returned [sin, sin], and", ADVICE),
        (lambda _, match: match.node("q"), holds, LACKS, NAMES),
        (odd, lambda match: match.bound["q"], LACKS, NAMES),
        (
            lambda _, match: match.node("y"),
            holds,
            "it asks for the node of the variable 'y', which is 2",
            "let a guard refuse it, or read match.bound['y']",
        ),
        (
            odd,
            lambda match: True,
            "it has a guard that returns True",
            "return None if the rule may fire, else the reason as text",
        ),
    ],
)
def test_a_function_that_misreads_its_match_is_named(function, guard, fault, advice):
    table = RuleTable()
    pattern = Op(torch.sin, (Op(torch.mul, (x, Var("y"))),))
    register_rule(table, pattern, name="my rule", guard=guard)(function)
    gm = torch_graph(lambda x: torch.sin(torch.mul(x, 2)), X)
    with pytest.raises(VerifyError) as caught:
        compile_fx(gm, [X], Config(custom_passes={"pre_grad": (table,)}))
    text = str(caught.value)
    assert text.startswith(f"pass pre_grad/RuleTable cannot apply the rule my rule at sin: {fault}")
    assert "> %sin" in text
    assert text.endswith(f"Pass author: {advice}.")


def test_a_handler_that_misreads_its_match_is_named():
    table = RuleTable()
    register_handler(table, SIN, name="mine")(lambda rewriter, match: match.node("q"))
    gm = torch_graph(lambda x: torch.sin(x), X)
    with pytest.raises(VerifyError, match="cannot apply the rule mine at sin: it asks for the var"):
        compile_fx(gm, [X], Config(custom_passes={"pre_grad": (table,)}))


RULES_OF_A_USER = """
import torch
from ctk.compiler.patterns import RuleTable, fwd_only, gen_register_replacement

RULES = RuleTable()

def search(x):
    return x * torch.sigmoid(x)

gen_register_replacement(
    "my_silu", search, torch.nn.functional.silu, [torch.rand(4)], fwd_only, RULES
)
"""


def test_a_users_pattern_is_written_beside_the_module(tmp_path, monkeypatch):
    path = tmp_path / "my_rules.py"
    path.write_text(RULES_OF_A_USER, encoding="utf-8")
    package = Path(generated.__file__).parent
    before = {each.name: each.read_bytes() for each in package.glob("*.py")}

    def load_rules():
        spec = importlib.util.spec_from_file_location("my_rules", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "my_rules", module)
        spec.loader.exec_module(module)
        return module.RULES.rules[0]

    traced = load_rules()
    assert [each.name for each in tmp_path.glob("*.py")] == ["my_rules.py"]
    monkeypatch.setenv("CTK_GEN_PATTERNS", "1")
    load_rules()
    monkeypatch.delenv("CTK_GEN_PATTERNS")
    (written,) = tmp_path.glob("*_patterns.py")
    assert written.name == "my_rules_patterns.py"
    assert {each.name: each.read_bytes() for each in package.glob("*.py")} == before
    monkeypatch.setattr(generated, "search_pattern", lambda replacement: pytest.fail("traced"))
    loaded = load_rules()
    patterns = [generated.source_of({"my_silu": each.pattern}) for each in (traced, loaded)]
    assert patterns[0] == patterns[1]
    assert (
        '"""Patterns of rules, traced and written with CTK_GEN_PATTERNS=1."""'
        in written.read_text()
    )


def test_a_pattern_without_a_module_is_not_written(monkeypatch):
    monkeypatch.setenv("CTK_GEN_PATTERNS", "1")

    def search(x):
        return x.neg().neg()

    search.__module__ = "no_file"
    with pytest.raises(ValueError, match="is of no_file, which has no file; define it in a module"):
        gen_register_replacement(
            "twice", search, torch.clone, [torch.rand(4)], fwd_only, RuleTable()
        )
