"""Restore the state that a graph's own Python code changes: counters, caches, tensors, generators.

A custom operator, or a function that `allow_in_graph` leaves in the graph, may keep state outside
of the graph. The state that such code names is copied and restored after a run, so that each run
starts from the same state, and the program sees no trace of it:

    CALLS = {"n": 0}                                before the run:  CALLS is {"n": 2}
    @custom_op("my::count", mutates_args=())        its code names CALLS: a copy is kept
    def count(x):                                   after the run:   CALLS was {"n": 3}
        CALLS["n"] += 1                                              and is {"n": 2} again
        return x * CALLS["n"]

Searched: global names, closures, defaults and `self` of those functions and of the functions that
they name; in these lists, dicts, sets, attributes of objects and of their classes. Restored: which
objects they hold, the values of tensors and arrays, and generators of random numbers. It does not
see state in files, in C++, in other containers, or in objects of torch or Python.
"""

import random
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.clone import clone_value, put_back
from ctk.compiler.torch_compat.aot.autograd import remember_versions
from ctk.compiler.torch_compat.fx.operators import python_code_of
from ctk.repro_templates.graph.code_owner import is_foreign
from ctk.repro_templates.program.program_state import STATEFUL, names_of, wrapped

_MOST = 20_000
"""Limit of searched objects: the code of a program may name all of its objects."""

_Undo = Callable[[], object]


def keep_python_state(gm: GraphModule) -> AbstractContextManager[None]:
    """Return a context after which the state of the Python functions in a graph is restored."""
    code = (each for target in _targets(gm) for each in (target, *python_code_of(target)))
    functions = [each for each in code if _is_own_function(each)]
    return keep_state(functions) if functions else nullcontext()


@contextmanager
def keep_state(roots: Iterable[object]) -> Generator[None]:
    """Run the body, then restore all state reachable from some objects, and random generators."""
    with ExitStack() as stack:
        for undo in (*_find_undos(list(roots)), *_random_state()):
            stack.callback(undo)
        yield


def _targets(gm: GraphModule) -> set[Any]:
    graphs = [module.graph for module in gm.modules() if isinstance(module, GraphModule)]
    return {n.target for graph in graphs for n in graph.nodes if n.op == "call_function"}


def _is_own_function(value: object) -> bool:
    return isinstance(value, (FunctionType, MethodType)) and not is_foreign(value.__module__)


def _find_undos(roots: list[object]) -> list[_Undo]:
    """Return the undo functions of all state reachable from `roots`; each object once."""
    seen: dict[int, object] = {}
    undo: list[_Undo] = []
    todo = list(roots)
    while todo and len(seen) < _MOST:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        more, own = _search(value)
        todo += more
        undo += own
    return undo


def _search(value: object) -> tuple[list[object], list[_Undo]]:
    """Return the values that `value` holds, and the functions that restore which they are."""
    if isinstance(value, torch.Tensor):
        has_memory = value.layout is torch.strided and value.device.type != "meta"
        is_own = type(value) in (torch.Tensor, torch.nn.Parameter) and has_memory
        return [], [_keep_tensor(value)] if is_own else []
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__], []
    if isinstance(value, FunctionType):
        if (inner := wrapped(value)) is not None:
            return [inner], []
        return ([], []) if is_foreign(value.__module__) else _search_function(value)
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return [*table.values()], [_keep_table(table)]
    if isinstance(value, (list, set)):
        return [*cast("list[object]", value)], [_keep_items(cast("list[object]", value))]
    if isinstance(value, tuple):
        return [*cast("tuple[object, ...]", value)], []
    return _search_object(value)


def _search_function(function: FunctionType) -> tuple[list[object], list[_Undo]]:
    names, found, undo = names_of(function.__code__), list[object](), list[_Undo]()
    modules = [v for n in names if isinstance(v := function.__globals__.get(n), ModuleType)]
    own = [vars(module) for module in modules if not is_foreign(module.__name__)]
    for table in (function.__globals__, *own):
        found += [table[name] for name in names if name in table]
        undo.append(_keep_table(table, names))
    for cell in function.__closure__ or ():
        if _is_full(cell):
            found.append(cell.cell_contents)
            undo.append(partial(setattr, cell, "cell_contents", cell.cell_contents))
    more = function.__kwdefaults__ or {}
    return [*found, *(function.__defaults__ or ()), *more.values(), vars(function)], undo


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is not bound yet
        return False


def _search_class(kind: type) -> tuple[list[object], list[_Undo]]:
    """Return the values that a class and its methods hold; its undo function restores its names."""
    own = {k: v for k, v in vars(kind).items() if not k.startswith("__") or k == "__call__"}
    found = [each.fget if isinstance(each, property) else each for each in own.values()]
    inner = [
        each.__func__ if isinstance(each, staticmethod | classmethod) else each for each in found
    ]

    def undo() -> None:
        for name, value in own.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)

    return [*inner, *kind.__bases__], [undo]


def _search_object(value: Any) -> tuple[list[object], list[_Undo]]:
    kind = type(value)
    if isinstance(value, type):
        return ([], []) if is_foreign(value.__module__) else _search_class(value)
    if isinstance(value, ModuleType):
        return [], []
    if isinstance(value, STATEFUL) or not is_foreign(kind.__module__):
        return [kind, *([vars(value)] if hasattr(value, "__dict__") else [])], []
    for get, put in (("getstate", "setstate"), ("get_state", "set_state")):
        if hasattr(kind, put):  # a generator of random numbers
            return [], [partial(getattr(value, put), getattr(value, get)())]
    if hasattr(kind, "bit_generator"):  # one of numpy's
        source, state = value.bit_generator, value.bit_generator.state
        return [], [lambda: setattr(source, "state", state)]
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and value.flags.writeable:
        saved = value.copy()
        return [], [lambda: value.__setitem__(..., saved)]
    return [], []


def _keep_tensor(tensor: torch.Tensor) -> _Undo:
    saved, versions = clone_value(tensor), remember_versions([tensor])
    grads = [_keep_gradient(tensor)] if tensor.is_leaf and not tensor.is_inference() else []

    def undo() -> None:
        put_back([tensor], [saved])
        versions()
        for grad in grads:
            grad()

    return undo


def _keep_gradient(tensor: torch.Tensor) -> _Undo:
    """Return the function that restores the gradient of a leaf, its values, and `requires_grad`."""
    grad, is_wanted = tensor.grad, tensor.requires_grad
    saved = None if grad is None else clone_value(grad)

    def undo() -> None:
        if tensor.is_leaf and tensor.requires_grad is not is_wanted:
            tensor.requires_grad_(is_wanted)
        if grad is not None:
            put_back([grad], [saved])
        if tensor.grad is not grad:
            tensor.grad = grad

    return undo


_ABSENT = object()


def _keep_table(table: dict[Any, Any], names: frozenset[str] | None = None) -> _Undo:
    """Return the function that restores which values a dict has: of `names`, or all."""
    before = dict(table) if names is None else {n: table.get(n, _ABSENT) for n in names}

    def undo() -> None:
        for name in [n for n in table if n not in before] if names is None else ():
            del table[name]
        for name, value in before.items():
            if value is not _ABSENT and table.get(name, _ABSENT) is not value:
                table[name] = value
            elif value is _ABSENT:
                table.pop(name, None)

    return undo


def _keep_items(items: list[object] | set[object]) -> _Undo:
    before = list(items)

    def undo() -> None:
        if list(map(id, items)) != list(map(id, before)):
            items.clear()
            (items.extend if isinstance(items, list) else items.update)(before)

    return undo


def _random_state() -> list[_Undo]:
    """Return the functions that restore the generators of Python and numpy."""
    state = random.getstate()
    undo: list[_Undo] = [lambda: random.setstate(state)]
    if numpy := sys.modules.get("numpy.random"):
        saved = numpy.get_state()
        undo.append(lambda: numpy.set_state(saved))
    return undo
