"""Arguments of calls: filled in by the schemas of operators; their names, types and defaults.

In torch: `torch._C._jit_get_schemas_for_operator`, `FunctionSchema`, `Argument`,
whose `real_type` distinguishes `SymInt`, types of elements, layouts and memory formats from `int`.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from ctk.compiler.torch_compat.fx.operator_types import OpOverload, OpOverloadPacket


def full_arguments(
    target: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[object, ...] | None:
    """Return all arguments of a call in the order of the schema, with defaults.

    Without a schema, positional arguments are followed by pairs of the named ones. None if the
    schema does not take these arguments.
    """
    if not isinstance(target, OpOverload):
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
    if not isinstance(target, OpOverload):
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
    """
    if not isinstance(target, OpOverload):
        return ()
    return tuple(_kind(argument) for argument in target._schema.arguments)


def _kind(argument: Any) -> ArgumentKind:
    element = argument.real_type
    while hasattr(element, "getElementType"):
        element = element.getElementType()
    if element.kind() == "SymIntType":
        return "size"
    return "dim" if argument.name.rstrip("s01") == "dim" else "other"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a call.

    Attributes:
        type: As schemas write it (`number`, `List[int]`); empty if unknown.
        default: None if it has none.
        length: Length of the list that one number for a list of numbers stands for.
    """

    name: str
    type: str
    has_default: bool
    default: Any
    is_positional: bool
    length: int | None = None


def parameters_of(op: str, target: Any) -> tuple[tuple[Parameter, ...], ...]:
    """Return the parameters of a call, for each overload; empty if unknown."""
    if op == "call_method":
        return tuple(_of_schema(schema) for schema in _schemas(str(target)))
    if isinstance(target, OpOverload):
        return (declared_parameters(target),)
    if isinstance(target, OpOverloadPacket):
        return tuple(declared_parameters(getattr(target, name)) for name in target.overloads())
    if inspect.isbuiltin(target) and str(target.__module__ or "torch").startswith("torch"):
        return tuple(_of_schema(schema) for schema in _schemas(target.__name__))
    return (tuple(_of_function(target)),) if inspect.isfunction(target) else ()


def declared_parameters(target: Any) -> tuple[Parameter, ...]:
    """Return the parameters of an overload."""
    return _of_schema(target._schema)


def dispatched_parameters(target: Any) -> tuple[Parameter, ...]:
    """Return the same with the types that the dispatcher has: `Optional[ScalarType]`."""
    return _of_schema(target._schema, type_of="real_type")


def names_and_types(target: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of each argument of an overload, or of all overloads of a packet."""
    overloads = parameters_of("call_function", target)
    return tuple((each.name, each.type) for overload in overloads for each in overload)


def _schemas(name: str) -> list[Any]:
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return [schema for schema in schemas if "out" not in {arg.name for arg in schema.arguments}]


def _of_schema(schema: Any, type_of: str = "type") -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            name=str(argument.name),
            type=str(getattr(argument, type_of)),
            has_default=bool(argument.has_default_value()),
            default=argument.default_value,
            is_positional=not argument.kwarg_only,
            length=argument.N,
        )
        for argument in schema.arguments
    )


def _of_function(function: Any) -> Iterator[Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return
        is_given = parameter.default is not parameter.empty
        default = parameter.default if is_given else None
        yield Parameter(
            parameter.name, "", is_given, default, parameter.kind is not parameter.KEYWORD_ONLY
        )
