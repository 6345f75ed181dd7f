"""Arguments of calls as the schemas of operators name and fill them."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import torch


def full_arguments(
    target: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[object, ...] | None:
    """Return all arguments of a call in the order of the schema, with defaults.

    Without a schema, positional arguments are followed by pairs of the named ones. None if the
    schema does not take these arguments.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return (*args, *sorted(kwargs.items()))
    schema = _schema(target)
    if len(args) == len(schema) and not kwargs:
        return tuple(args)
    rest = schema[len(args) :]
    if len(args) > len(schema) or not kwargs.keys() <= {name for name, _ in rest}:
        return None
    filled = [kwargs.get(name, default) for name, default in rest]
    return None if any(each is _MISSING for each in filled) else (*args, *filled)


def argument_of(
    target: object, args: Sequence[object], kwargs: Mapping[str, object], name: str
) -> object:
    """Return an argument of a call by its name, or its default; None if there is none."""
    if not isinstance(target, torch._ops.OpOverload):
        return kwargs.get(name)
    names = [each for each, _ in _schema(target)]
    values = full_arguments(target, args, kwargs) if name in names else None
    return None if values is None else values[names.index(name)]


def defaults_of(target: object) -> tuple[object, ...]:
    """Return the default of each argument of an overload; a marker object for none."""
    return tuple(default for _, default in _schema(target))


_MISSING = object()


@cache
def _schema(target: Any) -> tuple[tuple[str, object], ...]:
    """Return the name and the default of each argument of an operator."""
    arguments = target._schema.arguments
    return tuple(
        (a.name, a.default_value if a.has_default_value() else _MISSING) for a in arguments
    )


ArgumentKind = Literal["size", "dim", "other"]


@cache
def argument_kinds(target: object) -> tuple[ArgumentKind, ...]:
    """Return the kind of each argument of an operator, in the order of the schema.

    Sizes, strides and indices are declared `SymInt`, dimensions are plain ints called `dim`.

    Seen in torch 2.11 and 2.13: the kind of `Argument.real_type` distinguishes `SymInt` from `int`.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return ()
    return tuple(_kind(argument) for argument in target._schema.arguments)


def _kind(argument: Any) -> ArgumentKind:
    element = argument.real_type
    while hasattr(element, "getElementType"):
        element = element.getElementType()
    if element.kind() == "SymIntType":
        return "size"
    return "dim" if argument.name.rstrip("s01") == "dim" else "other"
