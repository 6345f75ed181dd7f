"""What implements an operator, as text: the same in every process where it does the same.

1. An operator of torch or a builtin function is known by its name.
2. A Python function by its own byte code, its defaults, what its closure holds, and the global
   numbers, texts and types that it names. So the same lambda in two programs is one.
3. A `functools.partial` by its function and arguments.
4. Anything else as the compiler's cache knows a user's code (`code_identity`).

Functions that a function calls are known by their names only: the operator's name says what it is.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from ctk.compiler.cache import code_identity
from ctk.compiler.fx.literals import NoText, text_of
from ctk.compiler.torch_compat.fx import operator_facts

_BY_NAME = (*operator_facts.OPERATORS, BuiltinFunctionType, MethodDescriptorType)


def implementation_text(function: Callable[..., Any]) -> str:
    """Return what an implementation is known by.

    Raises:
        Uncacheable: It is an object whose state cannot be known.
    """
    if isinstance(function, _BY_NAME):
        return f"{type(function).__name__} {function}".partition(" at 0x")[0]
    return hashlib.sha256(_text(function).encode()).hexdigest()


def _text(value: Any) -> str:
    return text_of(value, _other)


def _other(value: Any) -> str:
    """Return the text of what is no plain value."""
    if isinstance(value, _BY_NAME):
        return implementation_text(value)
    if isinstance(value, functools.partial):
        return f"partial({_text(value.func)}, {_text(value.args)}, {_text(value.keywords)})"
    if isinstance(value, FunctionType):
        return "\n".join(_function(value))
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    return code_identity.identity_of(value, "the implementation of the operator")


def _function(function: FunctionType) -> Iterator[str]:
    yield from _code(function.__code__)
    yield _text(function.__defaults__)
    yield _text(function.__kwdefaults__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        held = cell.cell_contents
        yield f"{name} {'itself' if held is function else _text(held)}"
    yield from _globals(function.__code__, function.__globals__)


def _globals(code: CodeType, names: Mapping[str, Any]) -> Iterator[str]:
    """Yield the plain values that code names; what is no plain value is known by its name."""
    for name in code.co_names:
        try:
            yield f"{name} {text_of(names[name])}"
        except (KeyError, NoText):
            yield name
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _globals(each, names)


def _code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _code(each)
        elif isinstance(each, frozenset):
            yield f"frozenset {sorted(map(repr, each))}"
        else:
            yield f"{type(each).__name__} {each!r}"
