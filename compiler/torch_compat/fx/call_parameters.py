"""The parameters of calls in graphs: names, types and defaults, of operators and functions."""

# pyright: reportPrivateUsage=false

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ctk.compiler.torch_compat.fx.operators import kind_of


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument; `type` is as schemas write it (`number`, `List[int]`), empty if unknown."""

    name: str
    type: str
    has_default: bool
    default: object
    is_positional: bool


def parameters_of(op: str, target: Any) -> tuple[tuple[Parameter, ...], ...]:
    """Return the parameters of a call, for each overload; empty if unknown.

    Seen in torch 2.11 and 2.13: `torch._C._jit_get_schemas_for_operator`, `FunctionSchema`.
    """
    if op == "call_method":
        return tuple(_of_schema(schema) for schema in _schemas(str(target)))
    if kind_of(target) == "overload":
        return (_of_schema(target._schema),)
    if kind_of(target) == "packet":
        return tuple(_of_schema(getattr(target, name)._schema) for name in target.overloads())
    if inspect.isbuiltin(target) and str(target.__module__ or "torch").startswith("torch"):
        return tuple(_of_schema(schema) for schema in _schemas(target.__name__))
    return (tuple(_of_function(target)),) if inspect.isfunction(target) else ()


def _schemas(name: str) -> list[Any]:
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return [each for each in schemas if "out" not in {arg.name for arg in each.arguments}]


def _of_schema(schema: Any) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            name=str(each.name),
            type=str(each.type),
            has_default=bool(each.has_default_value()),
            default=each.default_value,
            is_positional=not each.kwarg_only,
        )
        for each in schema.arguments
    )


def _of_function(function: Any) -> Iterator[Parameter]:
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            return
        is_given = each.default is not each.empty
        default = each.default if is_given else None
        yield Parameter(each.name, "", is_given, default, each.kind is not each.KEYWORD_ONLY)
