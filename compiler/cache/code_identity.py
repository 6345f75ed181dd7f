"""What the user's own code is, as text: two functions with equal texts do the same.

A pass of the user's is part of what a compile depends on. It is known by

1. its byte code, with its constants and the functions in it;
2. its defaults and the values that its closure holds; the arguments of a `functools.partial`; the
   object of a bound method; the options of a `Pass`;
3. the global names that its code uses: functions and classes in the same way, plain values by their
   text, modules of the user's by the whole text of their files, installed ones by name, with what
   the program put into them;
4. the text of the file that it stands in, so that an edit is seen before anybody imports it anew.

What none of this covers makes the compile `Uncacheable`: a global object that the program may
change, code without a file that uses names whose values are unknown, code that reads files or looks
names up by text (`unknown_code.py`).
"""

import functools
import hashlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

from ctk.compiler.cache.unknown_code import (
    environment_text,
    imported,
    loads_of,
    require_known,
    require_known_function,
)
from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.literals import NoText, text_of
from ctk.compiler.torch_compat.fx import functions, own_operators

_BY_NAME = frozenset({*sys.stdlib_module_names, "ctk", "numpy", "sympy", "torch", "triton"})
"""Packages that are known by name: their versions are in the key, and ctk's own text."""


def identity_of(value: object, what: str) -> str:
    """Return the digest of a function, class or object of the user's, with all that it uses.

    Args:
        value: A function, a class, an object with plain attributes.
        what: What it is, for the message.

    Raises:
        Uncacheable: Something that it uses cannot be known.
    """
    writer = _Writer(what)
    text = writer.text(value)
    return hashlib.sha256("\n".join([text, *writer.known.values()]).encode()).hexdigest()


@dataclass(slots=True)
class _Writer:
    """Writes code and what it uses, each thing once.

    Attributes:
        what: What the code is, for messages.
        known: The text of each thing that was met, by its number: `#3` stands for the fourth.
    """

    what: str
    known: dict[int, str] = field(default_factory=dict[int, str])
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    kept: list[object] = field(default_factory=list[object])
    """Keeps what was met, so that no other object gets its address."""

    def text(self, value: object) -> str:
        try:
            return text_of(value, self._other)
        except NoText as error:
            raise Uncacheable(f"{self.what} uses {error}, which cannot be known") from error

    def _other(self, value: object) -> str | None:
        name = functions.name_of(value)
        if name is not None:
            return name
        if isinstance(value, functools.partial):
            bound = (value.func, value.args, value.keywords)
            return f"partial({self.text(bound)})"
        if isinstance(value, MethodType):
            return f"method({self.text((value.__self__, value.__func__))})"
        if isinstance(value, functions.Operator) and not functions.is_torchs_operator(value):
            return self._once(value, lambda: self._operator(value))
        if type(value).__module__ == "torch._ops":
            return f"{value}"
        if isinstance(value, ModuleType):
            return self._once(value, lambda: self._module(value))
        if isinstance(value, type) and not _is_by_name(value):
            return self._once(value, lambda: self._class(value))
        if isinstance(value, FunctionType) and not _is_by_name(value):
            return self._once(value, lambda: self._function(value))
        return self._object(value)

    def _once(self, value: object, write: Callable[[], str]) -> str:
        """Return the number of a thing, and write it where it is met first: code may be cyclic."""
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)
            self.known[number] = write()
        return f"#{number}"

    def _object(self, value: object) -> str | None:
        """Return an object by its class and attributes, where that is all of it; else None."""
        kind = type(value)
        if isinstance(value, FunctionType | type | BuiltinFunctionType):
            require_known_function(value, self.what)
            return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, logging.Logger) or kind.__module__ == "typing":
            return repr(value)
        if kind.__reduce_ex__ is not object.__reduce_ex__ or _is_by_name(kind):
            return None  # more than attributes, or state of a library
        return self._once(value, lambda: f"{self.text(kind)}{self.text(_attributes(value))}")

    def _function(self, function: FunctionType) -> str:
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        own = (function.__defaults__, function.__kwdefaults__, held, vars(function))
        loads, known = loads_of(function.__code__), function.__globals__
        names = sorted(loads.names | loads.attributes)
        used = {name: known[name] for name in names if name in known}
        used |= imported(loads, str(known.get("__package__") or ""), self.what)
        reached, modules = _reached([*used.values(), *held], names)
        require_known(loads, used, modules, self.what)
        text = f"{_code_text(function.__code__)} {environment_text(loads)}"
        return f"{text} {self.text(own)} {self.text(used)} {self.text(reached)} {_file(function)}"

    def _class(self, kind: type) -> str:
        own = {
            name: _unwrapped(value)
            for name, value in vars(kind).items()
            if name not in _OF_EVERY_CLASS and not _is_made(value)
        }
        above = self.text((type(kind), kind.__bases__))
        return f"class {kind.__qualname__}{above}{self.text(own)} {_file(kind)}"

    def _module(self, module: ModuleType) -> str:
        return f"module {module.__name__} {'' if _is_by_name(module) else _file(module)}"

    def _operator(self, operator: functions.Operator) -> str:
        return operator_text(operator, self.text)


def operator_text(operator: functions.Operator, text: Callable[[object], str]) -> str:
    """Return the schema of an operator of the program, and all of its code that a trace runs.

    Raises:
        Uncacheable: Its code is in C++, or hidden in torch's dispatcher.
    """
    found = own_operators.traced_code(operator)
    if isinstance(found, str):
        raise Uncacheable(f"the operator {operator} is the program's own, and {found}")
    return f"{found.schema} {text(found.code)}"


def _reached(
    values: Sequence[object], names: Sequence[str]
) -> tuple[list[object], list[ModuleType]]:
    """Return what code takes out of modules, and those modules that are the program's own.

    `helpers.f` is the name `f`. Of modules that are known by name it is what the program put there.
    """
    found: list[object] = []
    modules = [each for each in values if isinstance(each, ModuleType)]
    for module in modules:  # grows
        is_own = _is_own_module(module)
        for name in names:
            value = getattr(module, name, None) if is_own else vars(module).get(name)
            if isinstance(value, ModuleType):
                if not any(value is each for each in modules):
                    modules.append(value)
            elif value is not None and (is_own or _may_be_put_there(value)):
                found.append(value)
    return found, [each for each in modules if _is_own_module(each)]


def _may_be_put_there(value: object) -> bool:
    """Return whether an attribute of a library's module may be the program's: `math.factor = 2`."""
    if isinstance(value, FunctionType | type):
        return not _is_by_name(value)
    try:
        return bool(text_of(value))
    except NoText:
        return False


def _is_own_module(value: object) -> bool:
    return isinstance(value, ModuleType) and not _is_by_name(value)


_OF_EVERY_CLASS = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl",
    "__slots__", "__annotations__", "__dataclass_fields__", "__dataclass_params__",
    "__match_args__", "__parameters__", "__orig_bases__", "__static_attributes__",
    "__firstlineno__",
})  # fmt: skip


def _is_made(value: object) -> bool:
    """Return whether Python or `dataclass` made an attribute of a class: the file's text has it."""
    if isinstance(value, MemberDescriptorType | GetSetDescriptorType):
        return True
    code = getattr(value, "__code__", None)
    return isinstance(code, CodeType) and Path(code.co_filename).name in (
        "<string>",
        "dataclasses.py",
    )


def _unwrapped(value: object) -> object:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return (value.fget, value.fset) if isinstance(value, property) else value


def _attributes(value: object) -> Mapping[str, object]:
    slots = {
        name: getattr(value, name)
        for kind in type(value).__mro__
        for name in getattr(kind, "__slots__", ())
        if hasattr(value, name)
    }
    return {**slots, **getattr(value, "__dict__", {})}


def _code_text(code: CodeType) -> str:
    """Return a digest of byte code: not where it stands, and no order of a set."""
    constants = [
        _code_text(each) if isinstance(each, CodeType) else text_of(each) for each in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags)
    text = text_of((code.co_code, constants, names, counts, code.co_exceptiontable))
    return hashlib.sha256(text.encode()).hexdigest()


def _file(value: FunctionType | type | ModuleType) -> str:
    """Return a digest of the file that something stands in, as it is now."""
    if isinstance(value, FunctionType):
        name = value.__code__.co_filename
    else:
        module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
        name = getattr(module, "__file__", None) or ""
    path = Path(name)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
    except OSError as error:
        raise Uncacheable(f"{path} cannot be read: {error.strerror}") from error


def _is_by_name(value: FunctionType | type | ModuleType) -> bool:
    """Return whether a function, class or module is known by its name: it is not the user's."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _BY_NAME
    package = (value.__module__ or "").partition(".")[0]
    return package in _BY_NAME and "<locals>" not in value.__qualname__ and package != "__main__"
