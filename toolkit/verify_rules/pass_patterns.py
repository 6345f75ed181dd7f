"""Programs to try a whole pass on, which says nowhere what it looks for.

Cases: 1. each operator that the pass's module mentions, by itself and on top of each other; 2. for
a pass that mentions none, `GENERAL`: things twice, things unused, views, copies, constants.
"""

from collections.abc import Sequence

import torch

from ctk.toolkit.verify_rules.program import Call, Program, Ref, Var
from ctk.toolkit.verify_rules.schemas import Role, arguments_of

aten = torch.ops.aten
X, Y, S, A, B = Var("x"), Var("y"), Var("s"), Var("a"), Var("b")
NEG = Call(aten.neg.default, (X,))
TRANSPOSE = Call(aten.transpose.int, (X, A, B))
VIEW = Call(aten.view.default, (X, S))
CLONE = Call(aten.clone.default, (X,))
ADD = Call(aten.add.Tensor, (X, Y))
FULL = Call(aten.full_like.default, (X, Y))


def _program(*calls: Call) -> Program:
    return Program(calls, (len(calls) - 1,))


def _both(target: object) -> Call:
    return Call(target, (Ref(0), Ref(1)))


GENERAL: tuple[Program, ...] = (
    _program(NEG),
    _program(NEG, NEG, _both(aten.add.Tensor)),
    _program(NEG, Call(aten.neg.default, (Ref(0),)), _both(aten.add.Tensor)),
    _program(ADD, ADD, _both(aten.mul.Tensor)),
    _program(TRANSPOSE, TRANSPOSE, _both(aten.add.Tensor)),
    _program(VIEW, VIEW, _both(aten.add.Tensor)),
    _program(CLONE, CLONE, _both(aten.mul.Tensor)),
    _program(FULL, FULL, _both(aten.add.Tensor)),
    _program(NEG, NEG, _both(aten.mm.default)),
    _program(TRANSPOSE, Call(aten.sum.default, (Ref(0),))),
)


def around(targets: Sequence[object]) -> tuple[Program, ...]:
    """Return each operator on variables, with and without its optional arguments, and in pairs."""
    single = [call for target in targets for call in _calls(target, "")]
    inner = [call for target in targets for call in _calls(target, "in_")]
    pairs = [
        _program(below, Call(above.target, (Ref(0), *above.args[1:]), above.kwargs))
        for above in single
        if above.args
        for below in inner
    ]
    return (*map(_program, single), *pairs)


def _calls(target: object, prefix: str) -> list[Call]:
    """Return the calls of an operator: the shortest, the longest, and with each keyword."""
    roles = arguments_of(target)
    positional = [Var(f"{prefix}{each.name}") for each in roles if not each.keyword]
    required = max(1, sum(each.required and not each.keyword for each in roles))
    counts = dict.fromkeys((required, len(positional)))
    keywords = [each for each in roles if each.keyword and _is_drawn(each)]
    plain = [Call(target, tuple(positional[:count])) for count in counts]
    named = [
        Call(target, tuple(positional[:required]), {each.name: Var(f"{prefix}{each.name}")})
        for each in keywords
    ]
    return [*plain, *named] if positional else []


DRAWN = ("dtype", "memory_format", "alpha", "beta", "rounding_mode", "correction", "keepdim")


def _is_drawn(role: Role) -> bool:
    """Return whether an argument that is given by name is drawn; `device` is not."""
    return role.name in DRAWN or role.required or "number" in role.kind or "bool" in role.kind
