"""What graphs are drawn from: calls over operands, as data.

    Program((Call(aten.mul.Tensor, (Var("x"), Var("s"))),
             Call(aten.add.Tensor, (Ref(0), Var("y")), {"alpha": 2})), results=(1,))

It comes from a rule's pattern (`patterns.py`), from an example (`examples.py`), or from the
operators that a pass mentions (`pass_patterns.py`). It says nothing of the operands: `draws.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ctk.toolkit.verify_rules.schemas import Role, roles_of_call


@dataclass(frozen=True, slots=True)
class Var:
    """An operand; the same name is the same operand everywhere."""

    name: str


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an earlier call."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `target`, a function or the name of a method.

    Arguments are `Var`s, `Ref`s, constants, and lists of these.
    """

    target: object
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def arguments(self) -> tuple[object, ...]:
        return (*self.args, *self.kwargs.values())


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Calls in order, and which of them are results.

    Attributes:
        calls: Each uses earlier ones only.
        results: The numbers of those whose values leave the program.
        hints: Numbers, types and words that the code of a rule mentions.
        roles: What each variable stands for, in the order in which they are read.
    """

    calls: tuple[Call, ...]
    results: tuple[int, ...]
    hints: tuple[object, ...] = ()
    roles: Mapping[str, Role] = field(init=False)

    def __post_init__(self) -> None:
        roles = _roles(self.calls)
        hinted = {name: replace(role, hints=self.hints) for name, role in roles.items()}
        object.__setattr__(self, "roles", hinted)


def _roles(calls: tuple[Call, ...]) -> dict[str, Role]:
    found: dict[str, Role] = {}
    for call in calls:
        for role, argument in roles_of_call(call.target, call.args, call.kwargs):
            for each in leaves(argument):
                if isinstance(each, Var):
                    found.setdefault(each.name, role if each is argument else role.item)
    return found


def leaves(argument: object) -> Iterator[object]:
    """Yield an argument, or what its lists hold."""
    if isinstance(argument, (list, tuple)):
        for each in cast("list[object]", argument):
            yield from leaves(each)
    else:
        yield argument


def mapped(argument: object, change: Callable[[object], object]) -> object:
    """Return an argument with each part that is no list changed."""
    if isinstance(argument, (list, tuple)):
        return [mapped(each, change) for each in cast("list[object]", argument)]
    return change(argument)
