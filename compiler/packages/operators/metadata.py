"""Arguments of a call of an operator as JSON: the key of its package.

One object for each argument, in the order of the operator's schema, with its position
`arg_order` and, if it was passed by keyword, its `arg_name`:

    tensor          is_dynamic device_type device_index dtype sizes strides requires_grad
                    dispatch_key_set
    list of tensors tensor_list: one such object each
    int float bool  scalar_value, and is_dynamic device_type device_index dtype
    str             string_value
    torch.dtype     dtype_value "torch.float32"
    torch.device    device_type_value device_index_value
    torch.layout    layout_value "torch.strided"
    memory format   memory_format_value "torch.channels_last"
    None            optional_value null
    complex         complex_value: the two parts as texts
    [2, 3]          scalar_list_value
    other lists     list_value: one such object each (optional tensors)

A tuple has `"sequence": "tuple"`. Two calls with the same text may use the same package.

Source: the fields of `torch/_inductor/aoti_eager.py`, so that its readers can read them. It
has no lists but of tensors, no None, no memory formats, no complex numbers and no keywords.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ctk.compiler.errors import InputError, count_of
from ctk.compiler.records import Json
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

_SCALARS: Mapping[type, torch.dtype] = {
    int: torch.int32,
    float: torch.float32,
    bool: torch.bool,
}
"""The type of a number in torch's files."""


def in_order(
    ns: str, operator: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[list[str], dict[str, object]]:
    """Return the names of positional arguments, and keywords in the schema's order.

    Raises:
        InputError: There are more arguments than the operator has, or one is given twice.
    """
    known = operators.argument_names(ns, operator)
    if not known:
        return [f"arg{n}" for n in range(len(args))], dict(sorted(kwargs.items()))
    if len(args) > len(known):
        most = count_of(len(known), "argument")
        raise InputError(f"{ns}::{operator} takes {most}, and got {len(args)}")
    positional = known[: len(args)]
    for name in kwargs:
        if name in positional:
            raise InputError(f"{ns}::{operator} got its argument {name} twice")
        if name not in known:
            raise InputError(f"{ns}::{operator} has no argument {name}; it has {', '.join(known)}")
    return positional, {name: kwargs[name] for name in known if name in kwargs}


def describe_arguments(
    ns: str,
    operator: str,
    device_type: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> list[Json]:
    """Return the objects of a call's arguments.

    Raises:
        InputError: An argument is of a type that packages do not take, or on another device.
    """
    names, keywords = in_order(ns, operator, args, kwargs)
    known = operators.argument_names(ns, operator)
    pairs = enumerate(zip(names, args, strict=True))
    arguments = [{**_one(value, name, device_type), "arg_order": n} for n, (name, value) in pairs]
    for number, (name, value) in enumerate(keywords.items(), start=len(args)):
        place = known.index(name) if known else number
        arguments.append({**_one(value, name, device_type), "arg_order": place, "arg_name": name})
    return arguments


def text_of(described_: Json) -> str:
    """Return the canonical text of objects, which distinguishes 1, 1.0, true and -0.0."""
    return json.dumps(described_, sort_keys=True)


def _one(value: object, name: str, device_type: str) -> dict[str, Json]:
    if isinstance(value, Tensor):
        return _tensor(value, name, device_type)
    if type(value) in _SCALARS:
        return {
            "is_dynamic": False,
            "device_type": device_type,
            "device_index": -1 if device_type == "cpu" else 0,
            "dtype": str(_SCALARS[type(value)]),
            "scalar_value": _number(value),
        }
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return _sequence(cast("Sequence[object]", value), name, device_type)
    match value:
        case None:
            return {"optional_value": None}
        case str() if type(value) is str:
            return {"string_value": value}
        case complex():
            return {"complex_value": [repr(value.real), repr(value.imag)]}
        case torch.dtype():
            return {"dtype_value": str(value)}
        case torch.device():
            return {"device_type_value": value.type, "device_index_value": value.index}
        case torch.layout():
            return {"layout_value": str(value)}
        case torch.memory_format():
            return {"memory_format_value": str(value)}
        case _:
            raise InputError(
                f"{name} is a {type(value).__name__}: a package of an operator takes tensors, "
                "numbers, texts, None, types, devices, layouts, memory formats, and lists of these"
                + (", of fixed sizes" if isinstance(value, torch.SymInt) else "")
            )


def _tensor(value: Tensor, name: str, device_type: str) -> dict[str, Json]:
    if fake.is_fake(value) or any(isinstance(size, torch.SymInt) for size in value.shape):
        raise InputError(
            f"{name} is a tensor of a trace, whose sizes may vary: packages of operators are for "
            "fixed sizes; for others use ctk.aot_compile(..., dynamic_shapes=...)"
        )
    if type(value) not in (Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        kind = f"a {type(value).__name__} of layout {value.layout}"
        raise InputError(f"{name} is {kind}: packages of operators take plain strided tensors")
    is_number = value.dim() == 0 and value.device.type == "cpu"
    if value.device.type != device_type and not is_number:
        raise InputError(f"{name} is on {value.device}, and the package is for {device_type}")
    return {
        "is_dynamic": False,
        "device_type": value.device.type,
        "device_index": -1 if value.device.type == "cpu" else value.device.index,
        "dtype": str(value.dtype),
        "sizes": list(value.shape),
        "strides": list(value.stride()),
        "requires_grad": value.requires_grad,
        "dispatch_key_set": operators.dispatch_key_set(value),
    }


def _sequence(values: Sequence[object], name: str, device_type: str) -> dict[str, Json]:
    kind = {"sequence": "tuple"} if isinstance(values, tuple) else {}
    if values and all(type(value) in _SCALARS for value in values):
        return {"scalar_list_value": [_number(value) for value in values], **kind}
    parts = [_one(each, f"{name}[{n}]", device_type) for n, each in enumerate(values)]
    are_tensors = bool(values) and all(isinstance(value, Tensor) for value in values)
    return {"tensor_list" if are_tensors else "list_value": parts, **kind}


def _number(value: Any) -> Json:
    """Return a number as JSON, which has no NaN and no infinity."""
    return value if not isinstance(value, float) or math.isfinite(value) else {"float": repr(value)}
