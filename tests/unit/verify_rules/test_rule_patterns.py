"""Programs of patterns: lists get a length, and each target its turn."""

import operator

import torch
from torch import nn

from ctk.compiler.patterns import ANY, ListOf, Op, Repeated, Var
from ctk.toolkit.verify_rules.rule_patterns import programs_of

aten = torch.ops.aten
split = Op(aten.split.Tensor, (Var("x"), ANY, ANY))
item = Op(operator.getitem, (split, Var("i")))


def targets_of(program):
    return [call.target for call in program.calls]


def test_a_list_has_two_items_of_one_call_and_each_target_a_program():
    targets = (aten.cat.default, aten.stack.default)
    programs = programs_of(Op(targets, (ListOf(item, same=(split,)), ANY)))
    assert [targets_of(each)[-1] for each in programs] == [*targets]
    for each in programs:
        assert targets_of(each)[:-1] == [split.target, operator.getitem, operator.getitem]


def test_without_a_common_call_each_item_has_its_own():
    (program,) = programs_of(Op(aten.cat.default, (ListOf(item), ANY)))
    assert targets_of(program).count(split.target) == 2


def test_a_repeated_part_has_two_results():
    part = Op(aten.squeeze.dim, (item, ANY))
    (program,) = programs_of(Repeated(part, of=split))
    assert targets_of(program).count(split.target) == 1
    assert len(program.results) == 2


def test_methods_and_modules_are_not_drawn():
    assert programs_of(Op(("relu", nn.ReLU), (Var("x"),))) == ()
    (program,) = programs_of(Op(("relu", torch.relu), (Var("x"),)))
    assert targets_of(program) == [torch.relu]
