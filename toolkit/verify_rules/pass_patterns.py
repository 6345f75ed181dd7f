"""Programs for a whole pass, which has no declared pattern.

1. Each operator that the pass mentions, by itself and applied to each other; without any, `GENERAL`
   (repeated calls, views, copies, constants). 2. A `Grammar` of them for larger programs.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import torch

from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.verify_rules.draws import CallResult, DrawCall, DrawProgram
from ctk.toolkit.verify_rules.operands import Variable
from ctk.toolkit.verify_rules.schemas import ArgumentRole, arguments_of

aten = torch.ops.aten
X, Y, S, A, B = Variable("x"), Variable("y"), Variable("s"), Variable("a"), Variable("b")
NEG = DrawCall(aten.neg.default, (X,))
TRANSPOSE = DrawCall(aten.transpose.int, (X, A, B))
VIEW = DrawCall(aten.view.default, (X, S))
CLONE = DrawCall(aten.clone.default, (X,))
ADD = DrawCall(aten.add.Tensor, (X, Y))
FULL = DrawCall(aten.full_like.default, (X, Y))
COMMON: tuple[object, ...] = (
    *(aten.neg.default, aten.clone.default, aten.alias.default, aten.transpose.int),
    *(aten.add.Tensor, aten.mul.Tensor, aten.relu.default),
)
"""Operators to surround those of a pass with."""


def _program(*calls: DrawCall) -> DrawProgram:
    return DrawProgram(calls, (len(calls) - 1,))


def _both(target: object) -> DrawCall:
    return DrawCall(target, (CallResult(0), CallResult(1)))


GENERAL: tuple[DrawProgram, ...] = (
    _program(NEG),
    _program(NEG, NEG, _both(aten.add.Tensor)),
    _program(NEG, DrawCall(aten.neg.default, (CallResult(0),)), _both(aten.add.Tensor)),
    _program(ADD, ADD, _both(aten.mul.Tensor)),
    _program(TRANSPOSE, TRANSPOSE, _both(aten.add.Tensor)),
    _program(VIEW, VIEW, _both(aten.add.Tensor)),
    _program(CLONE, CLONE, _both(aten.mul.Tensor)),
    _program(FULL, FULL, _both(aten.add.Tensor)),
    _program(NEG, NEG, _both(aten.mm.default)),
    _program(TRANSPOSE, DrawCall(aten.sum.default, (CallResult(0),))),
)


def programs_around(
    targets: Sequence[object], hints: tuple[object, ...] = ()
) -> tuple[DrawProgram, ...]:
    """Return each operator on variables, with and without its optional arguments, and in pairs."""
    forms = {each: _forms(each) for each in targets if _makes_tensors(each)}
    chains = [[(target, form)] for target, each in forms.items() for form in each]
    chains += [
        [(below, forms[below][0]), (above, forms[above][0])] for above in forms for below in forms
    ]
    programs = [_build_chain(chain, hints) for chain in chains]
    return tuple(program for program in programs if program.roles)


def _forms(target: object) -> list[list[ArgumentRole]]:
    """Return lists of arguments to pass: the fewest, all by position, and each by name."""
    roles = arguments_of(target)
    fewest = [role for role in roles if role.required] or roles[:1]
    positional = [role for role in roles if not role.keyword or role.required]
    named = [[*fewest, role] for role in roles if role.keyword and _is_drawn(role, fewest)]
    return [fewest, *([positional] if len(positional) > len(fewest) else []), *named]


DRAWN = ("dtype", "memory_format", "alpha", "beta", "rounding_mode", "correction", "keepdim")


def _is_drawn(role: ArgumentRole, fewest: Sequence[ArgumentRole] = ()) -> bool:
    is_known = role.name in DRAWN or "number" in role.kind or role.kind == "float"
    return role not in fewest and (is_known or role.kind in ("str", "Optional[str]"))


def _makes_tensors(target: object) -> bool:
    if operators.declared_by(target) is None:
        return bool(arguments_of(target))
    return any("Tensor" in kind for kind in operators.results_of(target))


def _build_chain(
    steps: Sequence[tuple[object, list[ArgumentRole]]], hints: tuple[object, ...]
) -> DrawProgram:
    """Return a chain: each call reads the previous one as its first tensor."""
    builder = _ProgramBuilder(hints)
    for target, roles in steps:
        builder.call(target, roles)
    return builder.program()


@dataclass(frozen=True, slots=True)
class Grammar:
    """Programs of a few calls of some operators."""

    targets: tuple[object, ...]
    hints: tuple[object, ...] = ()

    def grow(self, random: Random) -> DrawProgram:
        """Return a random program: operands are new, or earlier operands or results."""
        known = [each for each in self.targets if _makes_tensors(each)] or [*COMMON]
        builder = _ProgramBuilder(self.hints, random)
        for _ in range(random.choice((1, 2, 2, 2, 3, 3, 4))):
            target = random.choice(known if random.random() < 0.85 else COMMON)
            builder.call(target, _some(random, target))
        return builder.program()


def _some(random: Random, target: object) -> list[ArgumentRole]:
    roles = arguments_of(target)
    positional = [role for role in roles if not role.keyword]
    required = max(1, sum(each.required for each in positional))
    count = required if random.random() < 0.6 else random.randint(required, len(positional))
    given = positional[:count]
    named = [role for role in roles if role.keyword]
    return given + [
        each for each in named if each.required or (_is_drawn(each) and random.random() < 0.3)
    ]


@dataclass(slots=True)
class _ProgramBuilder:
    """A program under construction; without `random` a chain of calls with new operands."""

    hints: tuple[object, ...]
    random: Random | None = None
    calls: list[DrawCall] = field(default_factory=list[DrawCall])
    tensors: list[Variable | CallResult] = field(default_factory=list["Variable | CallResult"])
    numbers: dict[str, list[Variable]] = field(default_factory=dict[str, "list[Variable]"])
    used: set[int] = field(default_factory=set[int])

    def program(self) -> DrawProgram:
        """Return the program; its results are the unused values."""
        refs = [tensor.number for tensor in self.tensors if isinstance(tensor, CallResult)]
        results = tuple(number for number in refs if number not in self.used)
        return DrawProgram(tuple(self.calls), results or tuple(refs[-1:]), self.hints)

    def call(self, target: object, roles: Sequence[ArgumentRole]) -> None:
        """Add a call with these arguments; of several results, the first two are used."""
        is_first = True
        args: list[object] = []
        kwargs: dict[str, object] = {}
        for role in roles:
            value = self._argument(role, is_first=is_first)
            is_first = is_first and not role.is_tensor
            if role.keyword:
                kwargs[role.name] = value
            else:
                args.append(value)
        number = len(self.calls)
        self.calls.append(DrawCall(target, tuple(args), kwargs))
        kinds = operators.results_of(target) if operators.declared_by(target) else ("Tensor",)
        if kinds == ("Tensor",):
            self.tensors.append(CallResult(number))
            return
        for index in range(2 if "List" in kinds[0] else min(len(kinds), 2)):
            self.tensors.append(CallResult(len(self.calls)))
            self.calls.append(DrawCall(operator.getitem, (CallResult(number), index)))

    def _argument(self, role: ArgumentRole, *, is_first: bool) -> object:
        if role.is_tensor and "List" in role.kind:
            count = self.random.choice((1, 2, 2, 3)) if self.random else 2
            return [self._tensor(role.item, is_first=at == 0) for at in range(count)]
        if role.is_tensor:
            return self._tensor(role, is_first=is_first)
        known = self.numbers.setdefault(f"{role.name}: {role.kind}", [])
        if self.random and known and self.random.random() < 0.4:
            return self.random.choice(known)
        known.append(self._variable(role))
        return known[-1]

    def _tensor(self, role: ArgumentRole, *, is_first: bool) -> Variable | CallResult:
        refs = [each for each in self.tensors if isinstance(each, CallResult)]
        variables = [each for each in self.tensors if isinstance(each, Variable)]
        chance = self.random.random() if self.random else 0.0 if is_first else 1.0
        if refs and is_first and chance < 0.7:
            tensor: Variable | CallResult = refs[-1]
        elif self.random and variables and chance < (0.85 if is_first else 0.4):
            tensor = self.random.choice(variables)
        elif self.random and self.tensors and chance < (0.9 if is_first else 0.55):
            tensor = self.random.choice(self.tensors)
        else:
            tensor = self._variable(role)
            self.tensors.append(tensor)
        if isinstance(tensor, CallResult):
            self.used.add(tensor.number)
        return tensor

    def _variable(self, role: ArgumentRole) -> Variable:
        return Variable(f"{role.name}_{len(self.calls)}_{len(self.tensors)}")
