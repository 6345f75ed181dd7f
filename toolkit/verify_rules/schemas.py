"""The arguments of operators by their schema, and of Python functions by their annotations."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from ctk.compiler.torch_compat.fx import arguments, operators

aten = torch.ops.aten

RANKS: Mapping[object, int] = {
    aten.mm.default: 2,
    aten.addmm.default: 2,
    aten.t.default: 2,
    aten.bmm.default: 3,
    aten.baddbmm.default: 3,
    aten.convolution.default: 4,
}
"""How many dimensions the tensors of an operator have, where random ranks seldom match."""

CHANNELS: frozenset[object] = frozenset(
    {
        aten._native_batch_norm_legit_no_training.default,
        aten.native_batch_norm.default,
        aten.batch_norm.default,
    }
)
"""Operators whose kernels read one number per channel of four operands, unchecked."""


def is_defined(target: object, operands: Sequence[object]) -> bool:
    """Return whether a call is defined: some kernels read past the end of an operand."""
    if target not in CHANNELS or not isinstance(operands[0], torch.Tensor):
        return True
    count = operands[0].shape[1] if operands[0].dim() > 1 else None
    rows = (operand for operand in operands[1:5] if isinstance(operand, torch.Tensor))
    return all(row.dim() == 1 and row.shape[0] == count for row in rows)


@dataclass(frozen=True, slots=True)
class ArgumentRole:
    """One argument of an operator.

    Attributes:
        kind: Its type in the schema: `Tensor`, `List[int]`, `Optional[int]`, `number`.
        rank: How many dimensions it must have; None if any.
        keyword: Whether it is given by name only.
        makes: Whether the operator takes no tensor: its numbers are sizes.
    """

    name: str
    kind: str
    rank: int | None = None
    required: bool = True
    keyword: bool = False
    makes: bool = False
    hints: tuple[object, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return "Tensor" in self.kind

    @property
    def item(self) -> "ArgumentRole":
        """The role of one item of a list."""
        return replace(self, kind=self.kind.replace("List[", "").replace("]", "", 1))


OPERAND = ArgumentRole("input", "Tensor")


def roles_of_call(
    target: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[ArgumentRole, object]]:
    """Yield each argument of a call with its role."""
    rank = RANKS.get(target)
    known = arguments_of(target)
    positional = [each for each in known if not each.keyword]
    by_name = {each.name: each for each in known}
    for index, argument in enumerate(args):
        role = positional[index] if index < len(positional) else OPERAND
        yield replace(role, rank=rank), argument
    for name, argument in kwargs.items():
        yield by_name.get(name, ArgumentRole(name, "")), argument


def arguments_of(target: object) -> list[ArgumentRole]:
    """Return the arguments of a node's target; none for a method, which has no schema."""
    if isinstance(target, str):
        return []
    if operators.declared_by(target) is not None:
        declared = arguments.declared_parameters(target)
        makes = not any("Tensor" in each.type for each in declared)
        return [
            ArgumentRole(
                each.name, each.type, None, not each.has_default, not each.is_positional, makes
            )
            for each in declared
        ]
    function = cast("Callable[..., object]", target)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return _builtin_arguments(function)
    return [
        ArgumentRole(
            parameter.name,
            _annotation(parameter.annotation),
            None,
            parameter.default is parameter.empty,
            parameter.kind is parameter.KEYWORD_ONLY,
        )
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def _builtin_arguments(function: Callable[..., object]) -> list[ArgumentRole]:
    """Return the arguments of a function like `torch.dropout`: those of its operator."""
    packet = getattr(aten, getattr(function, "__name__", ""), None)
    overloads = packet.overloads() if packet is not None else ()
    names = [name for name in ("default", "Tensor") if name in overloads] or overloads
    return arguments_of(getattr(packet, names[0])) if names else []


def _annotation(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return "Tensor"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Tensor")
