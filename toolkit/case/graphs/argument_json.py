"""Python values in a graph's arguments, as JSON and back, exactly.

Plain JSON: None, bool, int, str, finite float, list. Everything else is an object with one key
that names its type: `{"tuple": [...]}`, `{"dict": [[key, value], ...]}`,
`{"slice": [start, stop, step]}`, `{"float": "nan"}`, `{"complex": [re, im]}`,
`{"dtype": "float32"}`, `{"device": "cpu"}`, `{"node": "add_1"}`, `{"target": "torch.add"}`,
`{"triton_type": "float32"}` ...

Classes of the user, enums and named tuples are refused (`CaseError`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.errors import CaseError, NotHeld, count_of
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu.triton_kernels import is_kernel, types_by_name
from ctk.compiler.usercode.python_files import plain_name
from ctk.toolkit.case.formats.limits import INT64, SEQUENCE
from ctk.toolkit.case.formats.plain_text import quote_value, words
from ctk.toolkit.case.formats.scalars import (
    device_from_name,
    dtype_from_name,
    dtype_name,
    float_from_json,
    float_to_json,
)
from ctk.toolkit.case.formats.strict_json import expect, items, look_up, prefix_errors, short
from ctk.toolkit.case.graphs.callables import target_to_name

_NAMES = {
    "memory_format": words("contiguous_format preserve_format channels_last channels_last_3d"),
    "layout": words("strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc"),
}
_TABLES = {kind: {name: getattr(torch, name) for name in names} for kind, names in _NAMES.items()}
_SEQUENCES: Mapping[type, str] = {tuple: "tuple", torch.Size: "size"}


def encode_value(value: object, where: str) -> object:
    """Return a value of a graph as JSON.

    Args:
        value: An argument of a node, possibly nested. Nodes become their names.

    Raises:
        CaseError: Its type cannot be kept; the message names it and `where`.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return float_to_json(value)
    if type(value) in _SEQUENCES or isinstance(value, list):
        parts = enumerate(cast("Sequence[object]", value))
        encoded = [encode_value(part, f"{where}[{index}]") for index, part in parts]
        key = _SEQUENCES.get(type(value))
        return {key: encoded} if key else encoded
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {"dict": [_encode_pair(key, item, where) for key, item in pairs]}
    return _encode_leaf(value, where)


def _encode_pair(key: object, value: object, where: str) -> list[object]:
    return [encode_value(key, f"{where} key {key!r}"), encode_value(value, f"{where}[{key!r}]")]


def _encode_leaf(value: Any, where: str) -> object:
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return {"slice": [encode_value(bound, where) for bound in bounds]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, complex):
        return {"complex": [float_to_json(value.real), float_to_json(value.imag)]}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.memory_format | torch.layout):
        key = "memory_format" if isinstance(value, torch.memory_format) else "layout"
        return {key: str(value).removeprefix("torch.")}
    if value is Ellipsis:
        return {"ellipsis": True}
    if (name := _triton_type(value)) is not None:
        return {"triton_type": name}
    return _encode_callable(value, where)


def _triton_type(value: object) -> str | None:
    """Return the name of a type of Triton's language (`tl.float32`), or None."""
    return next((name for name, each in types_by_name().items() if each == value), None)


def _encode_callable(value: object, where: str) -> object:
    is_function = callable(value) and not isinstance(value, type)
    if operators.kind_of(value) or is_function or is_kernel(value):
        with prefix_errors(where):
            return {"target": target_to_name(value)}
    kind = f"{plain_name(type(value).__module__)}.{type(value).__qualname__}"
    raise NotHeld(
        f"{where}: a {kind} cannot be kept in a case; only numbers, strings, None, lists, tuples, "
        "dicts, slices, dtypes, devices and functions on ctk's list can"
    )


@dataclass(frozen=True, slots=True)
class Decoder:
    """The context for reading values back.

    Attributes:
        resolve: Returns a function by its name; None: the values hold no functions.
        device: Replaces every recorded device; None keeps them.
    """

    nodes: Mapping[str, Node]
    resolve: Callable[[str], Any] | None = None
    device: str | None = None

    def decode(self, data: object, where: str) -> Any:
        """Return the value of `encode_value`'s JSON.

        Raises:
            CaseError: It is malformed, or names an unknown or later node.
        """
        if type(data) is float and not math.isfinite(data):
            raise CaseError(f"{where}: a number that no float holds")
        if data is None or type(data) in (bool, int, str, float):
            return data
        if isinstance(data, list):
            return self._items(cast("list[object]", data), where)
        keyed = expect(data, dict, where)
        if len(keyed) != 1:
            raise CaseError(f"{where}: expected an object with one key, found {short(keyed)}")
        kind, content = next(iter(keyed.items()))
        return self._decode_tagged(kind, content, where)

    def _items(self, data: list[object], where: str) -> list[Any]:
        return [self.decode(item, f"{where}[{index}]") for index, item in enumerate(data)]

    def _decode_tagged(self, kind: str, content: object, where: str) -> Any:
        if kind in ("tuple", "size", "slice", "range"):
            parts = self._items(expect(content, list, where), where)
            return _sequence(kind, parts, where)
        if kind == "dict":
            pairs = items({kind: content}, kind, list, where)
            return _dict([self._items(pair, where) for pair in pairs], where)
        if kind == "float":
            return float_from_json({kind: content}, where)
        if kind == "complex":
            real, imag = _exactly(expect(content, list, where), 2, where)
            return complex(float_from_json(real, where), float_from_json(imag, where))
        if kind == "ellipsis":
            return ...
        return self._decode_named(kind, expect(content, str, where), where)

    def _decode_named(self, kind: str, name: str, where: str) -> Any:
        if kind == "node":
            return look_up(self.nodes, name, f"{where}: no node {quote_value(name)} before it")
        if kind == "target":
            if self.resolve is None:
                raise CaseError(f"{where}: a value cannot be the function {quote_value(name)}")
            return self.resolve(name)
        if kind == "dtype":
            return dtype_from_name(name, where)
        if kind == "device":
            return device_from_name(self.device or name, where)
        table = types_by_name() if kind == "triton_type" else _TABLES.get(kind, {})
        if name not in table:
            raise CaseError(
                f"{where}: {quote_value(kind)} {quote_value(name)} is not a known value"
            )
        return table[name]


def _sequence(kind: str, parts: list[Any], where: str) -> Any:
    if kind == "tuple":
        return tuple(parts)
    if kind == "size":
        return torch.Size([_int64(part, where) for part in parts])
    start, stop, step = _exactly(parts, 3, where)
    if kind == "slice":
        return slice(start, stop, step)
    if _int64(step, where) == 0:
        raise CaseError(f"{where}: a range of step 0")
    found = range(_int64(start, where), _int64(stop, where), step)
    if found[SEQUENCE:]:
        raise CaseError(f"{where}: {found} has more than {SEQUENCE:,} elements")
    return found


def _int64(value: object, where: str) -> int:
    if expect(value, int, where) not in INT64:
        raise CaseError(f"{where}: {value} is not an integer of 64 bits")
    return cast("int", value)


def _dict(pairs: list[list[Any]], where: str) -> dict[Any, Any]:
    try:
        return dict(_exactly(pair, 2, where) for pair in pairs)
    except TypeError as error:
        raise CaseError(f"{where}: a key of the dict cannot be hashed ({error})") from error


def _exactly(parts: list[Any], count: int, where: str) -> list[Any]:
    if len(parts) != count:
        raise CaseError(f"{where}: expected {count_of(count, 'item')}, found {len(parts)}")
    return parts
