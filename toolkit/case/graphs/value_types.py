"""The type of a node's value as JSON: shape (also symbolic), dtype, strides.

Read from the fake value that Dynamo (`example_value`) or AOTAutograd (`val`) left on a node. A
loaded node has no fake value; it keeps the JSON in `node.meta["ctk"]`, so that saving it again
writes the same. Symbols are read by their hints, without guards.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.types import tensor_text, value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.formats.scalars import (
    dtype_from_name,
    dtype_name,
    float_from_json,
    float_to_json,
)
from ctk.toolkit.case.formats.strict_json import Json, expect, items, member

META_KEY = "ctk"
"""Key of the JSON in `meta` of a loaded node."""


def node_value_json(node: Node) -> object | None:
    """Return the type of a node's value as JSON; None if unknown.

    Tensors: shape, stride, dtype, device, requires_grad, a symbolic storage offset. Symbols:
    expression and hint. Tuples and lists of these.
    """
    value = value_of(node)
    if value is None:
        return node.meta.get(META_KEY)
    return _describe(value)


def _describe(value: Any) -> object | None:
    if isinstance(value, torch.Tensor):
        return tensor_value_json(value)
    if fake.is_symbolic(value):
        return _describe_symbol(value)
    if isinstance(value, tuple | list):
        return [_describe(item) for item in cast("tuple[object, ...]", value)]
    return None


def tensor_value_json(tensor: torch.Tensor, before: object = None) -> Json:
    """Return the JSON of `node_value_json` for a tensor.

    Args:
        before: That of the input which the tensor replaces: symbols of its layout are kept.
    """
    data: Json = {
        "shape": [_describe_size(size) for size in tensor.shape],
        "dtype": dtype_name(tensor.dtype),
        "device": str(tensor.device),
        "requires_grad": tensor.requires_grad,
    }
    if tensor.layout == torch.strided:
        data["stride"] = [_describe_size(step) for step in tensor.stride()]
        offset = _describe_size(tensor.storage_offset())
        if not isinstance(offset, int):
            data["offset"] = offset
    return _with_layout(data, tensor, before) if isinstance(before, dict) else data


def _with_layout(data: Json, tensor: torch.Tensor, before: object) -> Json:
    """Return the JSON of an input with the symbols that its strides and offset had before."""
    stride = _member(before, "stride")
    if isinstance(stride, list) and len(cast("list[object]", stride)) == tensor.dim():
        pairs = zip(cast("list[object]", stride), tensor.stride(), strict=True)
        data["stride"] = [old if _member(old, "hint") == new else new for old, new in pairs]
    offset = _member(before, "offset")
    if _member(offset, "hint") == tensor.storage_offset():
        data["offset"] = offset
    return data


def _describe_size(size: object) -> object:
    return size if isinstance(size, int) else _describe_symbol(size)


def _describe_symbol(value: object) -> Json:
    symbol, hint = fake.symbol_and_hint(value)
    return {"symbol": symbol, "hint": float_to_json(hint) if isinstance(hint, float) else hint}


def describe_dynamic(gm: GraphModule) -> dict[str, tuple[str | None, ...]]:
    """Return `Case.dynamic` of a captured graph.

    Returns:
        For each placeholder that is a tensor with symbolic sizes: its name, and per dimension the
        expression (`s77`, `2*s77`), or None for a fixed size.
    """
    found: dict[str, tuple[str | None, ...]] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        symbols = tuple(map(_symbol, _shape(node_value_json(node))))
        if any(symbols):
            found[node.name] = symbols
    return found


def symbol_of(node: Node) -> str | None:
    """Return the expression of a placeholder that is a symbolic size, else None."""
    return _symbol(node_value_json(node))


def layout_symbols(
    gm: GraphModule,
    inputs: Sequence[object],
    dynamic: Mapping[str, Sequence[str | None]],
) -> dict[str, tuple[str | None, ...]]:
    """Return the symbols of each tensor's strides, then of its storage offset; None for a number.

    A symbol counts only if an input has it as a size or is it, with that number: Dynamo passes the
    offset of a part of a tensor as an input of its own.

        x float32[s77, 8] that begins at s58, and the input s58  ->  {"x": (None, None, "s58")}

    Args:
        dynamic: `Case.dynamic`; without symbolic sizes the result is empty.
    """
    if not dynamic:
        return {}
    pairs = list(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True))
    known: dict[str | None, object] = {}
    for node, value in pairs:
        if isinstance(value, torch.Tensor):
            known |= dict(zip(dynamic.get(node.name, ()), value.shape, strict=False))
        else:
            known[symbol_of(node)] = value
    return {
        node.name: tuple(
            name if (name := _symbol(each)) is not None and known.get(name) == number else None
            for each, number in _layout_pairs(node_value_json(node), value)
        )
        for node, value in pairs
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    }


def _layout_pairs(data: object, tensor: torch.Tensor) -> list[tuple[object, object]]:
    stride = _member(data, "stride")
    steps = cast("list[object]", stride) if isinstance(stride, list) else []
    steps = steps if len(steps) == tensor.dim() else [None] * tensor.dim()
    numbers = (*tensor.stride(), tensor.storage_offset())
    return list(zip((*steps, _member(data, "offset")), numbers, strict=True))


def symbol_hints(gm: GraphModule) -> dict[str, object]:
    """Return the hint of each symbol that the placeholders of a graph name (`{"s77": 4}`)."""
    found: dict[str, object] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        known = node_value_json(node)
        for part in [known, *_shape(known)]:
            symbol = _symbol(part)
            if symbol is not None:
                found.setdefault(symbol, _member(part, "hint"))
    return found


def value_comment(node: Node) -> str:
    """Return a node's type for people: `float32[s77, 8]`, or an empty string."""
    return value_text(node_value_json(node))


def value_text(known: object) -> str:
    """Return JSON of `node_value_json` for people; an empty string if unknown."""
    if isinstance(known, list):
        parts = [value_text(part) for part in cast("list[object]", known)]
        return f"({', '.join(parts)})" if all(parts) else ""
    symbol, shape = _symbol(known), _member(known, "shape")
    if symbol is not None or not isinstance(shape, list):
        return symbol or ""
    sizes = (_symbol(size) or size for size in cast("list[object]", shape))
    return tensor_text(str(_member(known, "dtype")), sizes)


def _symbol(known: object) -> str | None:
    symbol = _member(known, "symbol")
    return symbol if isinstance(symbol, str) else None


def _shape(known: object) -> list[object]:
    """Return the sizes of a tensor; none for another value."""
    shape = _member(known, "shape")
    return cast("list[object]", shape) if isinstance(shape, list) else []


def _member(known: object, key: str) -> object | None:
    return cast("Mapping[str, object]", known).get(key) if isinstance(known, dict) else None


_SYMBOL_TEXT = re.compile(r"[\w +\-*/%().,<>=!&|~^]+")
_DEVICE_TEXT = re.compile(r"\w+(:\d+)?")


def check_value_json(data: object, where: str) -> None:
    """Raise `CaseError` if untrusted JSON, to be written to comments, is malformed."""
    if data is None:
        return
    if isinstance(data, list):
        for index, part in enumerate(cast("list[object]", data)):
            check_value_json(part, f"{where}[{index}]")
        return
    known = expect(data, dict, where)
    if "symbol" in known:
        _check_symbol(known, where)
        return
    for key in ("shape", "stride"):
        for size in items(known, key, object, where) if key in known else ():
            if type(size) is not int:
                _check_symbol(expect(size, dict, f"{where}.{key}"), f"{where}.{key}")
    if "offset" in known:
        _check_symbol(expect(known["offset"], dict, f"{where}.offset"), f"{where}.offset")
    dtype_from_name(member(known, "dtype", str, where), where)
    if not _DEVICE_TEXT.fullmatch(member(known, "device", str, where)):
        raise CaseError(f"{where}: {known['device']!r} is not a device")


def _check_symbol(data: Json, where: str) -> None:
    symbol = member(data, "symbol", str, where)
    if not _SYMBOL_TEXT.fullmatch(symbol):
        raise CaseError(f"{where}: {symbol[:60]!r} is not an expression of symbolic sizes")
    hint = data.get("hint")
    if hint is not None and type(hint) not in (bool, int):
        float_from_json(hint, f"{where}.hint")
