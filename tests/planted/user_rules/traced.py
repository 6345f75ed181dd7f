"""Rules of two functions: some wrong in one corner, some right."""

import torch
from torch.nn import functional

from ctk.compiler.patterns.insert import fwd_only
from ctk.compiler.patterns.matcher import RuleTable
from ctk.compiler.patterns.replacement import register_replacement

X = torch.rand(2, 3)
RULES = RuleTable()


def softmax(x, y):
    return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True) + y


def register(name, search, replace, count=1, **options):
    register_replacement(search, replace, [X] * count, fwd_only, RULES, name=name, **options)


register("right: silu", lambda x: x * torch.sigmoid(x), functional.silu, numerics="reassociates")
register("right: relu twice", lambda x: torch.relu(torch.relu(x)), torch.relu)
register("alpha", lambda x, y: torch.add(x, y, alpha=2), lambda x, y: x + y, 2)
register("inf - inf", lambda x: x - x, torch.zeros_like)
register("-0.0", lambda x: x * -1, lambda x: 0 - x)
register("NaN", lambda x, y: torch.where(x > y, x, y), torch.maximum, 2)
