"""Arguments of a schedule as JSON, and back.

Plain: None, bool, int, str, finite float, list. Everything else is an object with one key that
names its type: `{"value": "mm"}`, `{"size": "s0*8"}`, `{"tuple": [...]}`, `{"dtype": "float32"}`.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.records import Codec, Form, Forms, Json, Malformed, shown, torch_value, torch_word
from ctk.compiler.runtime.steps import Argument, Ref
from ctk.compiler.sizes.index import Index, as_index, larger, smaller, symbol
from ctk.compiler.sizes.size_guards import python_text


def value_json(value: Argument) -> Json:
    """Return an argument as JSON.

    Raises:
        ArtifactError: It is of a type that cannot be stored.
    """
    return _FORMS.write(value)


def value_of(data: Json) -> Argument:
    """Return the argument of `value_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    try:
        return _FORMS.read(data)
    except Malformed as error:
        raise ArtifactError(str(error)) from error


def size_json(size: Index) -> Json:
    """Return a size as JSON: a number, or an expression of symbols."""
    return size.number if size.number is not None else {"size": python_text(size)}


def size_of(data: Json) -> Index:
    """Return the size of `size_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    found = as_index(data) if type(data) is int else value_of(data)
    if not isinstance(found, Index):
        raise ArtifactError(f"a stored size is malformed: {shown(data)}")
    return found


def name_of(text: Any) -> str:
    """Return the name of a value or of a size symbol, once it is checked: `add`, `add.1`, `s77`.

    Raises:
        ArtifactError: It is not a name.
    """
    if not (isinstance(text, str) and text.replace(".", "_").isidentifier()):
        raise ArtifactError(f"a stored value is called {shown(text)!r}, which is not a name")
    return text


def parse_size(text: str) -> Index:
    """Return the size that `python_text` wrote.

    Raises:
        ValueError: It is not an expression of sizes.
    """
    return _size_of_tree(ast.parse(text, mode="eval").body)


_BINARY: Mapping[type, Callable[[Any, Any], Index]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _size_of_tree(node: ast.expr) -> Index:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return as_index(node.value)
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _size_of_tree(node.operand) * -1
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _size_of_tree(node.left), _size_of_tree(node.right)
        if right.number == 0 and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            raise ValueError("it divides by zero")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        extreme = {"max": larger, "min": smaller}.get(node.func.id)
        if extreme is not None:
            return extreme(*map(_size_of_tree, node.args))
    raise ValueError("it is not a sum of products of sizes")


def _pairs(value: Mapping[Any, Argument]) -> Json:
    for key in value:
        if not isinstance(key, str):
            raise ArtifactError(f"a dict has the key {key!r}: only strings can be stored")
    return [[key, value_json(part)] for key, part in value.items()]


def _refuse(value: object) -> Json:
    raise ArtifactError(f"{value!r}, a {type(value).__name__}, cannot be stored")


def _complex(real: str, imaginary: str) -> complex:
    return complex(float(real), float(imaginary))


def _torch_form(tag: str, kind: type) -> Form:
    return Form(tag, (kind,), torch_word, lambda word: torch_value(word, kind))


_FORMS = Forms(
    "value",
    (bool, int, str, float),
    (
        Form("value", (Ref,), lambda value: value.name, lambda name: Ref(name_of(name))),
        Form("", (Index,), size_json),
        Form("size", read=parse_size),
        Form("float", (float,), repr, float),
        Form(
            "tuple",
            (tuple,),
            lambda parts: _FORMS.write_all(parts),
            lambda parts: tuple(map(value_of, parts)),
        ),
        Form(
            "dict",
            (Mapping,),
            _pairs,
            lambda pairs: {str(key): value_of(part) for key, part in pairs},
        ),
        Form(
            "slice",
            (slice,),
            lambda value: _FORMS.write_all((value.start, value.stop, value.step)),
            lambda parts: slice(*map(value_of, parts)),
        ),
        Form(
            "complex",
            (complex,),
            lambda value: [repr(value.real), repr(value.imag)],
            lambda parts: _complex(*parts),
        ),
        Form("device", (torch.device,), str, torch.device),
        _torch_form("dtype", torch.dtype),
        _torch_form("layout", torch.layout),
        _torch_form("memory_format", torch.memory_format),
        Form("", (object,), _refuse),
    ),
    (RuntimeError, *MALFORMED),
)

VALUE = Codec(value_json, value_of)
SIZE = Codec(size_json, size_of)
NAME = Codec(str, name_of)
DTYPE = Codec(torch_word, lambda word: value_of({"dtype": word}))
DEVICE = Codec(str, lambda word: value_of({"device": word}))
