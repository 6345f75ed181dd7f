"""Arguments of a schedule as JSON, and back.

Plain: None, bool, int, str, finite float, list. Everything else is an object with one key that
names its type: `{"value": "mm"}`, `{"size": "s0*8"}`, `{"tuple": [...]}`, `{"dtype": "float32"}`.

What comes from a file is checked: a package is sealed, but whoever made it may have made it wrong.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.runtime.steps import Argument, Ref
from ctk.compiler.sizes.index import Index, as_index, larger, smaller, symbol
from ctk.compiler.sizes.size_guards import python_text

JSON = Any


def value_json(value: Argument) -> JSON:
    """Return an argument as JSON.

    Raises:
        ArtifactError: It is of a type that cannot be stored.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, list):
        return [value_json(part) for part in cast("Sequence[Argument]", value)]
    if isinstance(value, Ref):
        return {"value": value.name}
    if isinstance(value, Index):
        return size_json(value)
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple):
        return {"tuple": [value_json(part) for part in cast("Sequence[Argument]", value)]}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Argument]", value).items()
        return {"dict": [[_text(key), value_json(part)] for key, part in pairs]}
    if isinstance(value, slice):
        return {"slice": [value_json(each) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    for kind, (type_, write, _) in _NAMED.items():
        if isinstance(value, type_):
            return {kind: write(value)}
    raise ArtifactError(f"{value!r}, a {type(value).__name__}, cannot be stored")


def value_of(data: JSON) -> Argument:
    """Return the argument of `value_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    if data is None or type(data) in (bool, int, str, float):
        return data
    if isinstance(data, list):
        return [value_of(part) for part in cast("Sequence[JSON]", data)]
    if isinstance(data, dict) and len(cast("dict[str, JSON]", data)) == 1:
        ((kind, content),) = cast("dict[str, JSON]", data).items()
        read = _TAGGED.get(kind)
        if read is not None:
            try:
                return read(content)
            except (RuntimeError, *MALFORMED) as error:
                raise ArtifactError(f"{str(content)[:80]} is no {kind}: {error}") from error
    raise ArtifactError(f"a stored value is malformed: {str(data)[:80]}")


def size_json(size: Index) -> JSON:
    """Return a size as JSON: a number, or an expression of symbols."""
    return size.number if size.number is not None else {"size": python_text(size)}


def size_of(data: JSON) -> Index:
    """Return the size of `size_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    found = as_index(data) if type(data) is int else value_of(data)
    if not isinstance(found, Index):
        raise ArtifactError(f"a stored size is malformed: {str(data)[:80]}")
    return found


def name_of(text: Any) -> str:
    """Return a name of a value, or of a size symbol, if it is one: `add`, `add.1`, `s77`.

    Raises:
        ArtifactError: It is something else.
    """
    if not (isinstance(text, str) and text.replace(".", "_").isidentifier()):
        raise ArtifactError(f"a stored value is called {str(text)[:80]!r}, which is no name")
    return text


def parsed_size(text: str) -> Index:
    """Return the expression of a text of `python_text`.

    Raises:
        ValueError: It is something else.
    """
    return _parsed(ast.parse(text, mode="eval").body)


_BINARY: Mapping[type, Callable[[Any, Any], Index]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _parsed(node: ast.expr) -> Index:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return as_index(node.value)
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _parsed(node.operand) * -1
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _parsed(node.left), _parsed(node.right)
        if right.number == 0 and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            raise ValueError("it divides by zero")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        extreme = {"max": larger, "min": smaller}.get(node.func.id)
        if extreme is not None:
            return extreme(*map(_parsed, node.args))
    raise ValueError("it is no sum of products of sizes")


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise ArtifactError(f"a dict has the key {key!r}: only strings can be stored")
    return key


def _torch_word(value: object) -> str:
    return str(value).removeprefix("torch.")


def _of_torch(type_: type) -> Callable[[str], Any]:
    def read(name: str) -> Any:
        found = getattr(torch, name)
        if not isinstance(found, type_):
            raise TypeError("torch has something else of that name")
        return found

    return read


def _complex(real: str, imaginary: str) -> complex:
    return complex(float(real), float(imaginary))


_NAMED: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "dtype": (torch.dtype, _torch_word, _of_torch(torch.dtype)),
    "device": (torch.device, str, torch.device),
    "layout": (torch.layout, _torch_word, _of_torch(torch.layout)),
    "memory_format": (torch.memory_format, _torch_word, _of_torch(torch.memory_format)),
}

_TAGGED: Mapping[str, Callable[[JSON], Argument]] = {
    "value": lambda name: Ref(name_of(name)),
    "size": parsed_size,
    "float": float,
    "tuple": lambda parts: tuple(map(value_of, parts)),
    "dict": lambda pairs: {str(key): value_of(part) for key, part in pairs},
    "slice": lambda parts: slice(*map(value_of, parts)),
    "complex": lambda parts: _complex(*parts),
    **{kind: read for kind, (_, _, read) in _NAMED.items()},
}
