"""The identity of code: a digest that is equal where code does the same, in every process.

Three questions need it. They walk over code in the same way, and differ in their policy:

    identity_of          cache keys: code whose state cannot be known is refused
    digest_of            resumable oracles: state that a function changes itself counts by its type
    implementation_text  operator packages: functions that a function calls count by their names

A function is its byte code with the functions in it, its defaults, the values that its closure
holds, and the global names that its code uses. Functions and classes of the user count in the same
way, installed ones by their names.

    def make(word):                        make("relu") and make("cos") have one name and one code,
        def fails(case):                   and other values of `word`: their digests differ
            asked.append(case)             `asked` changes with each call: only its type counts
            return word in names(case)     for an oracle, and a cache key holds its value
        return fails

Cache keys hold the text of each file as well, so that an edit counts before the file is imported
again, and `code_effects.py` finds code that opens files or looks names up by text.
"""

import contextlib
import functools
import hashlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal, cast

from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.literals import NoText, text_of
from ctk.compiler.torch_compat.fx import functions, operators
from ctk.compiler.torch_compat.fx.operator_types import Operator
from ctk.compiler.usercode.code_effects import (
    Loads,
    environment_text,
    loads_of,
    modules_of_import,
    names_changed,
    require_known,
    require_known_function,
)
from ctk.compiler.usercode.code_origin import (
    Known,
    file_digest,
    import_digest,
    is_named_code,
    is_of_library,
    values_reached,
)

Leaf = Callable[[object], str | None]
"""Returns the text of a value that a caller knows by itself, such as a tensor; else None."""

_MOST = 20_000
"""Values in an object, before it counts as too large to compare."""

_OF_EVERY_CLASS = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl",
    "__slots__", "__annotations__", "__annotate_func__", "__annotations_cache__",
    "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__parameters__",
    "__orig_bases__", "__static_attributes__", "__firstlineno__",
})  # fmt: skip
"""Not written by the user, or without effect on values; newer Pythons add some of them."""

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...), PurePath)
_OPERATIONS = (Operator, BuiltinFunctionType, MethodDescriptorType)


class NotComparable(Exception):
    """A part of a function has no form that another process could compare; the message names it."""


def identity_of(value: object, subject: str) -> str:
    """Return the digest of a function, class or object of the user, with all that it uses.

    Raises:
        Uncacheable: It uses a value that cannot be known.
    """
    return _Walk(subject, "refuse").digest(value)


def digest_of(function: Callable[..., object], leaf: Leaf, *, by_file: bool = False) -> str:
    """Return the digest of a function, a method or a callable object.

    Args:
        leaf: Returns the text of tensors and graphs.
        by_file: Leave out the global names, which the text of its file determines.

    Raises:
        NotComparable: It holds a value that cannot be compared, such as a lock or an open file.
    """
    try:
        return _Walk("it", "by type", leaf, by_file).digest(function)
    except NotComparable:
        raise
    except Exception as error:  # reading the user's own objects runs their code
        raised = f"{type(error).__name__} when it is read"
        raise NotComparable(f"it holds an object that raises {raised}") from error


def implementation_text(function: Callable[..., Any]) -> str:
    """Return the identity of the implementation of an operator.

    1. An operator of torch or a builtin function: its name.
    2. A Python function: its code, defaults, closure, and the plain global values that it names.
    3. Any other object: `identity_of`.

    Raises:
        Uncacheable: It is an object whose state cannot be known.
    """
    if isinstance(function, _OPERATIONS):
        return f"{type(function).__name__} {function}".partition(" at 0x")[0]
    return _sha(_implementation(function))


def _implementation(value: Any) -> str:
    return text_of(value, _implementation_part)


def _implementation_part(value: Any) -> str:
    if isinstance(value, _OPERATIONS):
        return implementation_text(value)
    if isinstance(value, functools.partial):
        return f"partial({_implementation((value.func, value.args, value.keywords))})"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if not isinstance(value, FunctionType):
        return identity_of(value, "the implementation of the operator")
    held = {n: "itself" if each is value else each for n, each in _closure_values(value).items()}
    names, texts = loads_of(value.__code__).names, dict[str, str]()
    for name in sorted(names & value.__globals__.keys()):
        with contextlib.suppress(NoText):  # not a plain value: its name is in the code
            texts[name] = text_of(value.__globals__[name])
    own = (value.__defaults__, value.__kwdefaults__, held)
    return f"{_code_text(value.__code__)} {_implementation(own)} {texts}"


@dataclass(slots=True)
class _Walk:
    """Writes code and the values that it uses as text, each object once: `#3` is the fourth.

    Attributes:
        state: Refuse objects with state that is not plain; or take their pickled state, and only
            the type of the values that a function changes itself.
        kept: The objects, so that no other one gets the address.
    """

    subject: str
    state: Literal["refuse", "by type"]
    leaf: Leaf = lambda value: None
    by_file: bool = False
    texts: dict[int, str] = field(default_factory=dict[int, str])
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    kept: list[object] = field(default_factory=list[object])

    def digest(self, value: object) -> str:
        text = self.text(value, self.subject)
        return _sha("\n".join([text, *self.texts.values()]))

    def text(self, value: object, where: str, changed: frozenset[str] = frozenset()) -> str:
        """Return the text of a value.

        Args:
            changed: Attributes that a method of the object changes itself.
        """
        if self.state == "refuse":
            try:
                return text_of(value, lambda each: self._code(each, where, changed))
            except NoText as error:
                raise Uncacheable(f"{self.subject} uses {error}, which cannot be known") from error
        if isinstance(value, Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, _ATOMS):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, FunctionType | type | ModuleType):
            return self._definition(value)
        return self._once(value, lambda: self._by_type(value, where, changed), where)

    def _once(self, value: object, write: Callable[[], str], where: str = "") -> str:
        """Return the number of an object, and write it at its first occurrence."""
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)
            if self.state == "by type" and number > _MOST:
                raise NotComparable(f"{where} holds more than {_MOST} values")
            self.texts[number] = write()
        return f"#{number}"

    def _code(self, value: object, where: str, changed: frozenset[str]) -> str | None:
        """Return the text of code; of any other object by the policy, None to refuse it."""
        refuses = self.state == "refuse"
        name = functions.name_of(value) if refuses else None
        if name is not None:
            return name
        if isinstance(value, functools.partial) and (refuses or type(value) is functools.partial):
            return f"partial({self.text((value.func, value.args, value.keywords), where)})"
        if isinstance(value, MethodType):
            own = frozenset[str]() if refuses else names_changed(value.__func__, "self.")
            owner = self.text(value.__self__, where, own)
            return f"method({owner} {self.text(value.__func__, where)})"
        if type(value).__module__ == "torch._ops":
            is_torchs = not isinstance(value, Operator)
            if is_torchs or not refuses or functions.is_torchs_operator(value):
                return f"operator {value}"
            return self._once(value, lambda: self._operator(value))
        if isinstance(value, BuiltinFunctionType):
            owner = value.__self__
            is_method = owner is not None and not isinstance(owner, ModuleType)
            return f"{self._name(value)} {self.text(owner, where) if is_method else ''}"
        if isinstance(value, logging.Logger):
            return f"logger {value.name}"
        if isinstance(value, FunctionType | type | ModuleType):
            return self._definition(value)
        return self._attributes(value) if refuses else self._state(value, where, changed)

    def _definition(self, value: Known) -> str:
        """Return the name of code of a library; code of the user in full."""
        refuses = self.state == "refuse"
        is_named = is_of_library(value) if refuses else is_named_code(value)
        if isinstance(value, ModuleType):
            file = "" if is_named else (file_digest if refuses else import_digest)(value)
            name = value.__name__ if refuses or is_named else value.__name__.rpartition(".")[2]
            return f"module {name} {file}"
        if is_named:
            return self._name(value)
        write = self._class if isinstance(value, type) else self._function
        return self._once(value, lambda: write(cast("Any", value)))

    def _name(self, code: FunctionType | type | BuiltinFunctionType) -> str:
        if self.state == "refuse":
            require_known_function(code, self.subject)
        return f"{code.__module__}.{code.__qualname__}"

    def _operator(self, operator: Any) -> str:
        """Return the schema of an operator of the program, and all its code that a trace runs."""
        traced = operators.code_of_trace(operator)
        if isinstance(traced, str):
            raise Uncacheable(f"the operator {operator} is the program's own, and {traced}")
        return f"{traced.schema} {self.text(traced.code, self.subject)}"

    # --- functions and classes ------------------------------------------------------------------

    def _function(self, function: FunctionType) -> str:
        loads, held = loads_of(function.__code__), _closure_values(function)
        default = f"a default of {function.__qualname__}"
        defaults = function.__defaults__, function.__kwdefaults__
        parts = [_code_text(function.__code__), *(self.text(each, default) for each in defaults)]
        if self.state == "refuse":
            used, reached = self._uses(function, loads, held)
            parts += [self.text(each, default) for each in (held, vars(function), used, reached)]
            return " ".join([*parts, environment_text(loads), file_digest(function)])
        if not self.by_file:
            known = function.__globals__
            held |= {name: known[name] for name in loads.names if name in known}
        changed = names_changed(function)
        for name, value in sorted(held.items()):
            kind = f"changed {type(value).__name__}"
            parts.append(f"{name} = {kind if name in changed else self.text(value, f'`{name}`')}")
        return f"def {function.__qualname__}({'; '.join(parts)})"

    def _uses(
        self, function: FunctionType, loads: Loads, held: Mapping[str, object]
    ) -> tuple[dict[str, object], list[object]]:
        """Return the global values that a function uses, and the values it takes out of modules."""
        known, names = function.__globals__, sorted(loads.names | loads.attributes)
        used: dict[str, object] = {name: known[name] for name in names if name in known}
        used |= modules_of_import(loads, str(known.get("__package__") or ""), self.subject)
        reached, modules = values_reached([*used.values(), *held.values()], names)
        require_known(loads, used, modules, self.subject)
        return used, reached

    def _class(self, kind: type) -> str:
        refuses = self.state == "refuse"
        is_member = _is_written if refuses else _is_code_or_plain
        members = {
            name: _unwrap(value)
            for name, value in vars(kind).items()
            if name not in _OF_EVERY_CLASS and is_member(value)
        }
        where = f"class {kind.__qualname__}"
        above = self.text((type(kind), kind.__bases__) if refuses else kind.__bases__, where)
        texts = (f"{name} = {self.text(value, where)}" for name, value in members.items())
        return f"{where}{above} {'; '.join(texts)} {file_digest(kind) if refuses else ''}"

    # --- objects --------------------------------------------------------------------------------

    def _attributes(self, value: object) -> str | None:
        """Return an object by its class and attributes; None if it has other state."""
        kind = type(value)
        if kind.__module__ == "typing":
            return repr(value)
        if kind.__reduce_ex__ is not object.__reduce_ex__ or is_of_library(kind):
            return None
        parts = kind, _attributes_of(value)
        return self._once(value, lambda: " ".join(self.text(part, self.subject) for part in parts))

    def _by_type(self, value: Any, where: str, changed: frozenset[str]) -> str:
        """Return a leaf, a container, a method or an object by its state."""
        leaf = self.leaf(value)
        if leaf is not None:
            return leaf
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            texts = [self.text(each, where) for each in value]
            texts = texts if kind in (list, tuple) else sorted(texts)
            return f"{kind.__name__}({', '.join(texts)})"
        if kind is dict:
            pairs = cast("dict[object, object]", value).items()
            return f"dict({', '.join(self._pair(k, v, where, changed) for k, v in pairs)})"
        if isinstance(value, re.Pattern):
            return f"pattern {value!r} {value.flags}"
        if isinstance(value, CodeType):
            return _code_text(value)
        return str(self._code(value, where, changed))

    def _pair(self, key: object, value: object, where: str, changed: frozenset[str]) -> str:
        if isinstance(key, str) and key in changed:
            return f"{self.text(key, where)}: changed {type(value).__name__}"
        return f"{self.text(key, where)}: {self.text(value, f'{where}.{key}')}"

    def _state(self, value: object, where: str, changed: frozenset[str]) -> str:
        """Return an object by its class and the state that `copy.copy` would give the copy."""
        kind = type(value)
        try:
            reduced: Any = value.__reduce_ex__(4)
        except Exception as error:
            raise NotComparable(f"{where} is a {kind.__module__}.{kind.__qualname__}") from error
        if isinstance(reduced, str):
            return f"{kind.__qualname__} {reduced}"
        made, arguments, state, *items = (*reduced, None, None, None)[:5]
        listed = [list(cast("Iterator[object]", item)) if item else [] for item in items]
        changed = changed | names_changed(getattr(kind, "__call__", None), "self.")  # noqa: B004  # its code
        parts = [self.text(each, where, changed) for each in (made, arguments, state, *listed)]
        return f"{kind.__qualname__}({'; '.join(parts)})"


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _code_text(code: CodeType) -> str:
    """Return a digest of byte code, without its place in the file and in other functions."""
    constants = [
        _code_text(const) if isinstance(const, CodeType) else text_of(const)
        for const in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    flags = code.co_flags & ~inspect.CO_NESTED
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, flags)
    return _sha(text_of((code.co_code, constants, names, counts, code.co_exceptiontable)))


def _closure_values(function: FunctionType) -> dict[str, object]:
    """Return the values that a closure holds, by name; a name may have none yet."""
    held: dict[str, object] = {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):
            held[name] = cell.cell_contents
    return held


def _is_written(member: object) -> bool:
    """Return whether a class itself holds a member; Python and `dataclass` generate others."""
    if isinstance(member, MemberDescriptorType | GetSetDescriptorType):
        return False
    code = getattr(member, "__code__", None)
    file = Path(code.co_filename).name if isinstance(code, CodeType) else ""
    return file not in ("<string>", "dataclasses.py")


def _is_code_or_plain(member: object) -> bool:
    kinds = (FunctionType, staticmethod, classmethod, property, *_ATOMS)
    return isinstance(member, kinds) and not isinstance(member, PurePath)


def _unwrap(value: object) -> object:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return (value.fget, value.fset, value.fdel) if isinstance(value, property) else value


def _attributes_of(value: object) -> Mapping[str, object]:
    slots = {
        name: getattr(value, name)
        for kind in type(value).__mro__
        for name in getattr(kind, "__slots__", ())
        if hasattr(value, name)
    }
    return {**slots, **getattr(value, "__dict__", {})}
