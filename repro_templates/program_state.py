"""The Python state that a program reaches, as values by path, so that two runs can be compared.

    class Counter(nn.Module):               state_of({"model": Counter()}, own="demo")
        def __init__(self):                 {"model": "Counter", "model.training": True,
            super().__init__()               "model.calls": 0, "model.seen": "list of 1",
            self.calls, self.seen = 0, [1]   "model.seen[0]": 1}

Looked into: lists, tuples, dicts, sets, attributes of modules and of objects whose class the
program defines, those classes, and the closures and defaults of its functions. An object that is
met twice is named by its first path, so that identity counts. What it does not do: look into what
torch or Python define, which shows as the name of its type; parameters and buffers are left to the
caller, who names them as held tensors.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from ctk.compiler.fx.clone import clone_value

MOST_OBJECTS = 5_000
"""So many objects are looked at: a program may reach all that Python has loaded."""

PLAIN = (
    int, float, complex, str, bytes, bool, type(None), range, slice,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
)  # fmt: skip
"""Values that are compared as they are."""

NOT_STATE = frozenset(vars(torch.nn.Module())) - {"training"} | {"_is_torch_compile"}
"""What every module has for itself, and what `torch.compile` notes in one."""


def state_of(roots: Mapping[str, object], own: str) -> dict[str, object]:
    """Return what can be reached from some values, by path.

    Args:
        roots: The values to begin with, by the names that paths start with.
        own: Name of the module whose classes and functions are looked into.
    """
    found: dict[str, object] = {}
    seen: dict[int, tuple[str, object]] = {}
    todo: list[tuple[str, object]] = list(reversed(list(roots.items())))
    while todo and len(seen) < MOST_OBJECTS:
        path, value = todo.pop()
        if isinstance(value, PLAIN):
            found[path] = value
        elif id(value) in seen:
            found[path] = f"is {seen[id(value)][0]}"
        else:
            seen[id(value)] = path, value
            found[path] = said_value(value)
            todo += reversed(list(parts_of(path, value, own)))
    return found


def program_state(program: Mapping[str, Any], roots: Mapping[str, object]) -> dict[str, object]:
    """Return the state of a program: its own global values, and what `roots` reach.

    A global that holds a function or a class is looked into under its name; modules are not.
    """
    own = str(program.get("__name__"))
    names = program.get("PROGRAM_NAMES", program)  # a script holds more than its program
    globals_ = {
        name: value
        for name, value in program.items()
        if name in names
        if not name.startswith("__") and is_own(value, own) and name not in ("model", "inputs")
    }
    return state_of({**roots, **globals_}, own)


def is_own(value: object, own: str) -> bool:
    """Return whether a global is the program's: no module, and no function or class of others."""
    if isinstance(value, (FunctionType, type)):
        return value.__module__ == own
    return not isinstance(value, ModuleType) and not callable(value)


def said_value(value: object) -> object:
    """Return what is compared of a value that is not plain."""
    if isinstance(value, torch.Tensor):
        return clone_value(value)
    if isinstance(value, (list, tuple, dict, set, frozenset, deque)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, GeneratorType):
        return f"generator, {'ended' if value.gi_frame is None else 'at work'}"
    if type(value).__module__ == "numpy":
        return f"{type(value).__name__} {value}"
    return type(value).__qualname__


def parts_of(path: str, value: Any, own: str) -> Iterator[tuple[str, object]]:
    """Yield what a value holds, by path, in a fixed order."""
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, deque)):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield f"{path}{{}}", ", ".join(sorted(map(repr, value)))
    elif isinstance(value, FunctionType):
        if value.__module__ == own:
            yield from parts_of_function(path, value)
    elif isinstance(value, MethodType):
        yield f"{path}.__self__", value.__self__
    elif isinstance(value, torch.nn.Module):
        kept = {name: each for name, each in vars(value).items() if name not in NOT_STATE}
        kept |= dict(value.named_children())
        yield from ((f"{path}.{name}", each) for name, each in kept.items())
    elif type(value).__module__ == own or (isinstance(value, type) and value.__module__ == own):
        yield from parts_of_object(path, value)


def parts_of_function(path: str, function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function keeps: the cells that it closes over, its defaults and attributes."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:
            yield f"{path}.{name}", "not bound"
    yield from ((f"{path}.{name}", each) for name, each in own_attributes(function))
    for index, each in enumerate(function.__defaults__ or ()):
        yield f"{path}.__defaults__[{index}]", each


def parts_of_object(path: str, value: Any) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object or class of the program; of a class no functions."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from ((f"{path}.{n}", getattr(value, n)) for n in slots if hasattr(value, n))
    for name, each in own_attributes(value):
        if not isinstance(each, (FunctionType, classmethod, staticmethod, property)):
            yield f"{path}.{name}", each


def own_attributes(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes that a program has set, not those of Python or Dynamo."""
    for name, each in list(getattr(value, "__dict__", {}).items()):
        if not name.startswith(("__", "_torchdynamo", "_dynamo", "_abc_")):
            yield name, each
