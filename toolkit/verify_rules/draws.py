"""A draw: calls over operands, other nodes beside them and the results, as data that can shrink.

    program = DrawProgram((DrawCall(aten.mul.Tensor, (Variable("x"), Variable("s"))),
                           DrawCall(aten.add.Tensor, (CallResult(0), Variable("y")), {"alpha": 2})),
                          results=(1,))
    Draw(program, {"x": TensorDraw(float32, (2, 3), "sliced", (1, "nan")), ...})

A program comes from the pattern of a rule (`rule_patterns.py`), from an example (`examples.py`), or
from the operators that a pass mentions (`pass_patterns.py`). `drawing.py` chooses operands for it,
and `graphs.py` builds the graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ctk.compiler.torch_compat.fx.graphs import tree_leaves
from ctk.toolkit.verify_rules.operands import Operand, TensorDraw, Variable
from ctk.toolkit.verify_rules.schemas import ArgumentRole, roles_of_call


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of an earlier call."""

    number: int


@dataclass(frozen=True, slots=True)
class DrawCall:
    """A call of `target`, a function or the name of a method."""

    target: object
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, eq=False)
class DrawProgram:
    """Calls in order.

    Attributes:
        calls: Each uses earlier ones only.
        results: The numbers of the calls whose values leave the program.
        roles: The role of each variable, in the order of first use.
    """

    calls: tuple[DrawCall, ...]
    results: tuple[int, ...]
    hints: tuple[object, ...] = ()
    roles: Mapping[str, ArgumentRole] = field(init=False)

    def __post_init__(self) -> None:
        roles = _roles(self.calls)
        hinted = {name: replace(role, hints=self.hints) for name, role in roles.items()}
        object.__setattr__(self, "roles", hinted)


def _roles(calls: tuple[DrawCall, ...]) -> dict[str, ArgumentRole]:
    roles: dict[str, ArgumentRole] = {}
    for call in calls:
        for role, argument in roles_of_call(call.target, call.args, call.kwargs):
            for leaf in tree_leaves(argument):
                if isinstance(leaf, Variable):
                    roles.setdefault(leaf.name, role if leaf is argument else role.item)
    return roles


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A node beside the program.

    Attributes:
        kind: `use`: reads a value of the program, and is returned; `return`: the value itself is
            returned; `drop`: reads it, and is unused; `write`: writes to it.
        of: A variable (`x`; of a view, its base), or the number of a call.
        at: The number of the call that it precedes; past the last number, it follows all calls.
    """

    kind: Literal["use", "return", "drop", "write"]
    of: str | int
    at: int


@dataclass(frozen=True, slots=True)
class Draw:
    """One question: does the rule preserve the results of this graph with these inputs?

    Attributes:
        bound: The operand of each variable, in the order of the graph's inputs.
        returned: Whether the results are returned themselves; else copies, made at the end.
        grown: By how much the sizes above 1 grow when a graph with symbols is run.
    """

    program: DrawProgram
    bound: Mapping[str, Operand]
    neighbours: tuple[Neighbour, ...] = ()
    returned: bool = True
    dynamic: bool = False
    grown: int = 0

    def tensors(self) -> dict[str, TensorDraw]:
        """Return the operands that are one tensor, by name."""
        return {name: each for name, each in self.bound.items() if isinstance(each, TensorDraw)}

    def bind(self, changed: Mapping[str, Operand]) -> "Draw":
        """Return the draw with other operands for some variables."""
        return replace(self, bound={**self.bound, **changed})

    def with_tensors(self, **changes: Any) -> "Draw":
        """Return the draw with these fields of each operand that is one tensor."""
        return self.bind({name: replace(each, **changes) for name, each in self.tensors().items()})
