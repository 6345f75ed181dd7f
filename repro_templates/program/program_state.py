"""Read the Python state of a program: attributes, closures, global names, held tensors.

    class Net(nn.Module):                      held.weight     a parameter, as a tensor
        def forward(self, x):                  state.calls     2, an attribute
            self.calls += 1                    state.SEEN[0]   "forward", a global list
            SEEN.append("forward")

Read are the model and its arguments; the attributes of modules and of objects of the user's own
classes; the objects that functions among them (and the methods of those classes) name. Two calls,
in eager and compiled, begin from the same state and must leave the same. Objects of torch and
Python (`os.environ` too, where compilers write), files, and state that only C++ knows are not read,
nor the functions and classes of installed packages.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor
from torch.nn import Module

from ctk.compiler.fx.clone import clone_value, is_freed
from ctk.repro_templates.graph.code_owner import is_foreign, is_of_package, is_users
from ctk.repro_templates.numbers.layout import has_memory
from ctk.repro_templates.numbers.plain_parts import take_apart
from ctk.repro_templates.program.program_nested import Leaf, as_value, items_of, leaves_of

STATEFUL = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
"""Classes of torch whose objects keep a program's state in attributes."""

_OWN_TABLES = ("_parameters", "_buffers", "_modules")
_TORCHS = frozenset(vars(Module())) - {"training", "_forward_hooks", "_forward_pre_hooks"}
"""Attributes of every module that serve torch; its tables are read under other names."""


def state_of(*roots: object) -> dict[str, object]:
    """Return copies of the leaves of a program's state: `held.NAME` for tensors, `state.NAME`.

    Gradients of tensors are `grad.NAME`.
    """
    found: dict[str, object] = {}
    for leaf in _state_leaves(roots):
        name, value = leaf.path, as_value(leaf.value)
        if not isinstance(value, Tensor):
            found[f"state.{name}"] = value
            continue
        if is_freed(value):  # as FSDP leaves tensors that it has moved elsewhere
            found[f"state.{name}"] = f"a tensor {tuple(value.shape)} without its memory"
            continue
        parts = take_apart({f"held.{name}": value})
        found |= {place: clone_value(part) for place, part in parts.items()}
        if type(value) is not Tensor:
            found[f"state.{name}.type"] = type(value).__qualname__
        grad = value.grad if value.is_leaf else None
        if grad is not None:
            parts = take_apart({f"grad.{name}": grad})
            found |= {place: clone_value(part) for place, part in parts.items()}
    return found


class _Roots:
    """The parts of a program, as the first object to read."""

    def __init__(self, values: tuple[object, ...]) -> None:
        self.values = values


def tensors_of(*roots: object) -> dict[str, Tensor]:
    """Return the tensors themselves that a program keeps, each once, by the names of `state_of`."""
    return {
        leaf.path: leaf.value for leaf in _state_leaves(roots) if isinstance(leaf.value, Tensor)
    }


def _state_leaves(roots: tuple[object, ...]) -> Iterator[Leaf]:
    """Yield the leaves with unique names: a global and an attribute may have one name."""
    names = Counter[str]()
    for leaf in leaves_of(_Roots(roots), items=_state_items):
        name = leaf.path.lstrip(".") or "model"
        names[name] += 1
        yield Leaf(name if names[name] == 1 else f"{name}~{names[name]}", leaf.value)


def _state_items(value: Any) -> list[tuple[str, object]] | None:
    if isinstance(value, _Roots):
        return [("", each) for each in value.values]
    if isinstance(value, Module):
        return _module_items(value)
    if isinstance(value, STATEFUL):
        return [(f".{k}", each) for k, each in sorted(vars(value).items()) if k[0] != "_"]
    if isinstance(value, MethodType):
        return [("", value.__self__), ("", value.__func__)]
    if isinstance(value, FunctionType):
        if (inner := wrapped(value)) is not None:
            return [("", inner)]
        return None if is_of_package(value.__module__) else list(_function_items(value))
    if isinstance(value, type):
        return None if is_of_package(value.__module__) else list(_class_items(value))
    if isinstance(value, torch.Generator):
        return [(".generator", value.get_state())]
    if isinstance(value, (ModuleType, type(os.environ))):
        return None
    items = items_of(value)
    if items is not None and isinstance(value, Mapping):
        return [*items, (" in order", " ".join(name for name, _ in items))]
    if items is not None and not is_foreign(type(value).__module__):
        return [*sorted(items, key=itemgetter(0)), *_own_type(value)]
    return items


def _own_type(value: object) -> list[tuple[str, object]]:
    return [(" type", type(value).__qualname__), ("", type(value))]


def _module_items(module: Module) -> list[tuple[str, object]]:
    tables = [cast("Mapping[str, object]", vars(module).get(name, {})) for name in _OWN_TABLES]
    own = {k: v for k, v in vars(module).items() if not (k in _TORCHS or _is_compilers(k))}
    tables.append({name: own[name] for name in sorted(own)})  # in any order of assignment
    found = [(f".{name}", value) for table in tables for name, value in table.items()]
    return found if is_foreign(type(module).__module__) else [*found, *_own_type(module)]


def _is_compilers(name: str) -> bool:
    """Return whether `torch.compile` puts an attribute of this name on objects."""
    return "dynamo" in name or "torch_compile" in name


def _function_items(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the state of a function: its closure, its defaults, the global names that it uses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # a name that is not bound yet
            yield f".{name}", "unbound"
    used = names_of(function.__code__)
    for name in sorted(used & function.__globals__.keys()):
        value = function.__globals__[name]
        yield f".{name}", _global(value)
        if isinstance(value, ModuleType) and is_users(value):
            theirs = vars(value)
            yield from ((f".{name}.{n}", _global(theirs[n])) for n in sorted(used & theirs.keys()))
    yield ".defaults", function.__defaults__ or ()
    own = {name: value for name, value in vars(function).items() if not _is_compilers(name)}
    yield from ((f".{name}", value) for name, value in own.items())


def _global(value: object) -> object:
    """Return the value of a global name; for a module its name."""
    return f"module {value.__name__}" if isinstance(value, ModuleType) else value


def _class_items(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the state of the user's classes: their attributes, and the names in their methods."""
    for each in kind.__mro__:
        if is_of_package(each.__module__):
            continue
        for name, value in vars(each).items():
            inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            inner = value.fget if isinstance(value, property) else inner
            if isinstance(inner, FunctionType):
                yield "", inner
            elif not name.startswith("__") and not name.startswith("_abc"):
                yield f".{each.__qualname__}.{name}", inner


def names_of(code: CodeType) -> frozenset[str]:
    """Return the names that code reads or writes besides its own variables, nested code as well."""
    inner = [names_of(const) for const in code.co_consts if isinstance(const, CodeType)]
    return frozenset(code.co_names).union(*inner)


def wrapped(function: FunctionType) -> object | None:
    """Return the user's function inside a wrapper of a library with the same names.

    `torch.compile`, `torch.no_grad()` and `functools.wraps` make such wrappers: the objects that
    they name are the library's. None for other functions.
    """
    is_librarys = is_foreign(function.__globals__.get("__name__"))
    inner = getattr(function, "__wrapped__", None)
    return inner if is_librarys and not is_foreign(function.__module__) else None


def ambient_state() -> dict[str, object]:
    """Return the modes of torch that a call may leave changed, by name."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def is_in_memory(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor in plain memory; CUDA graphs write over theirs."""
    return isinstance(value, Tensor) and value.device.type == "cpu" and has_memory(value)
