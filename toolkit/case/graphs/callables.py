"""Convert the functions of a graph to names and back, by an allow-list.

So an untrusted `graph.json` cannot reach `os.system`, `torch.load` or a file. Cases:

1. `torch.ops.<namespace>.<op>[.<overload>]`: an op that the dispatcher knows. TorchScript's
   builtins (`aten::save` writes a pickle) and ops with an argument that names a file are refused.
2. `torch.ops.higher_order.<name>`: the operators in `PLACES`, which take graphs, values and
   Triton kernels, not delegates.
3. functions of `torch`, `torch.nn.functional`, `torch.linalg`, `torch.fft`, `torch.special` that
   `torch.overrides` lists as overridable, and native factories.
4. functions of `operator`, `math` and builtins that compute; `getattr` for some attributes.
5. internal functions of torch that Dynamo writes into graphs.
6. `module:function`: a function of the user (`allow_in_graph`) or a Triton kernel, only from a
   module that the case lists in `imports` and the user allowed.

No module is imported for a name except in case 6 (`load_imports`), and modules of torch for an
operator of torch that is not registered yet (`late_operators`).
"""

import contextlib
import importlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError, NotHeld, nearest
from ctk.compiler.torch_compat.fx import arguments, operators
from ctk.compiler.torch_compat.fx.late_operators import modules_that_register, register_late
from ctk.compiler.torch_compat.fx.libraries import register_once
from ctk.compiler.torch_compat.gpu.triton_kernels import is_kernel
from ctk.compiler.usercode.python_files import (
    find_loaded,
    is_importable,
    is_of_folder,
    load_file,
    load_module,
    module_name,
    plain_name,
)
from ctk.compiler.usercode.references import search_last
from ctk.repro_templates.graph.code_owner import is_users
from ctk.toolkit.case.formats.plain_text import one_line, quote_value
from ctk.toolkit.case.formats.strict_json import look_up
from ctk.toolkit.case.graphs.allow_list import Function, function_name, functions_by_name
from ctk.toolkit.case.graphs.callable_places import PLACES
from ctk.toolkit.case.graphs.triton_kernels import kernel_of, kernel_place
from ctk.toolkit.case.trust.demands import is_torch_name
from ctk.toolkit.case.usercode.references import script_file

_FILE_WORDS = ("file", "path")


def target_to_name(target: object) -> str:
    """Return the name from which `target_from_name` restores a function or op.

    Raises:
        CaseError: The target is not on the allow-list, or is a function that cannot be imported
            again.
    """
    kind = operators.kind_of(target)
    if kind == "higher_order":
        return f"torch.ops.higher_order.{_check_higher_order(str(target))}"
    if kind:
        _check_op(target)
        return "torch.ops." + operators.qualified_name_of(target).replace("::", ".")
    return function_name(target) or _user_function_name(target)


def target_from_name(name: str, *, allow_imports: Collection[str] = ()) -> Function:
    """Return the function or op of a name.

    Args:
        allow_imports: Modules whose functions may be used; `load_imports` has imported them.

    Raises:
        CaseError: The name is not on the allow-list, or this torch does not have it.
    """
    if name.startswith("torch.ops."):
        return _op_from_name(name.removeprefix("torch.ops.").split("."))
    if ":" in name:
        return _user_function(name, allow_imports)
    problem = f"function {quote_value(name)} is not allowed in a graph"
    absent = f"{problem}, or torch {torch.__version__} does not have it"
    return look_up(functions_by_name(), name, absent)


def _op_from_name(parts: list[str]) -> Any:
    if len(parts) == 2 and parts[0] == "higher_order":
        return _higher_order_from_name(parts[1])
    shown = "torch.ops." + ".".join(parts)
    if len(parts) not in (2, 3) or not all(
        part.isidentifier() and part.isascii() and part[:2] != "__" for part in parts
    ):
        raise CaseError(
            f"{quote_value(shown)} is not the name of an op (torch.ops.<namespace>.<op>.<overload>)"
        )
    qualified = f"{parts[0]}::{parts[1]}"
    is_known = operators.is_registered(qualified) or register_late(qualified)
    found: Any = getattr(torch.ops, parts[0]) if is_known else None
    for part in parts[1:]:
        found = getattr(found, part, None)
    if operators.kind_of(found) not in ("overload", "packet"):
        raise CaseError(
            f"op {one_line(shown, 200)} is not registered in this process; if a module of yours "
            "registers it, allow that module: --allow-import MODULE (in Python: "
            "load_case(folder, allow_imports=('MODULE',)), or import it first)"
        )
    _check_op(found)
    return found


def _check_op(op: Any) -> None:
    if str(op) != "prim.device.default" and not operators.is_dispatcher_op(op):
        raise CaseError(
            f"op {op} is a TorchScript builtin, not an op of the dispatcher: a case may not call it"
        )
    for name, kind in arguments.names_and_types(op):
        if "str" in kind and any(word in name for word in _FILE_WORDS):
            raise CaseError(f"op {op} takes {name!r}, the name of a file: a case may not call it")


def _check_higher_order(name: str) -> str:
    if name in PLACES:
        return name
    raise NotHeld(
        f"higher-order op {quote_value(name)} cannot be kept in a case: only operators on graphs "
        f"and values can{nearest(name, PLACES)}"
    )


def _higher_order_from_name(name: str) -> Any:
    found = operators.higher_order_op(_check_higher_order(name))
    if found is None:
        raise CaseError(
            f"torch {torch.__version__} has no higher-order op {name!r}; "
            "use the torch that wrote the case"
        )
    return found


def _user_function_name(target: object) -> str:
    if is_kernel(target) and (place := kernel_place(target)) is not None:
        return ":".join(place)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    loaded = sys.modules.get(module) if isinstance(module, str) else None
    is_found = isinstance(name, str) and getattr(loaded, name, None) is target
    if is_found and module != "__main__" and str(module).split(".")[0] != "torch":
        return f"{plain_name(str(module))}:{name}"
    raise NotHeld(
        f"{target!r} cannot be kept in a case: it is neither on ctk's list nor a function at the "
        "top level of a module that can be imported; move it into a module, or register it as a "
        "torch.library.custom_op"
    )


def _user_function(name: str, allow_imports: Collection[str]) -> Function:
    module, _, function = name.partition(":")
    if module not in allow_imports:
        raise CaseError(
            f"the case calls {quote_value(name)}; that runs code of module {module!r}. If you "
            f"trust it, allow it: load_case(folder, allow_imports=({quote_value(module)},))"
        )
    found = getattr(_find_loaded(module), function, None) if function.isidentifier() else None
    is_own = callable(found) and plain_name(getattr(found, "__module__", None) or "") == module
    if found is not None and (is_own or is_kernel(found)):
        return found
    raise CaseError(f"module {module!r} has no function {quote_value(function)} of its own")


def module_of_target(name: str) -> str | None:
    """Return the module to import before `target_from_name(name)`, if known.

    The user's module of `module:function`, or the module that registers an operator; for a file
    that cannot be imported by name (a program's own), its path.
    """
    if ":" in name:
        return _file_of_kernel(name) or name.partition(":")[0]
    parts = name.removeprefix("torch.ops.").split(".")
    if not name.startswith("torch.ops.") or len(parts) < 2:
        return None
    qualified = "::".join(parts[:2])
    file = operators.registering_file(qualified)
    module = operators.custom_op_module(qualified) or _module_of(file)
    if module is not None and module.split(".")[0] == "torch":
        return None
    if module is not None and (is_of_folder(module) and "." in plain_name(module)):
        return plain_name(module)
    if module is not None and module != "__main__" and not is_of_folder(module):
        return module
    return file if file is not None and is_file(file) else None


def _find_loaded(module: str) -> ModuleType | None:
    """Return the loaded module of a plain name; the running script has that of its file."""
    script = script_file()
    is_script = script is not None and module_name(script) == module
    return find_loaded(module) or (sys.modules["__main__"] if is_script else None)


def _file_of_kernel(name: str) -> str | None:
    """Return the file of a kernel that no import finds: of a script, or loaded by its path."""
    module, _, function = name.partition(":")
    loaded = _find_loaded(module)
    if loaded is None or not is_kernel(getattr(loaded, function, None)):
        return None
    is_found_by_path = "." not in module and loaded.__name__ != module
    return getattr(loaded, "__file__", None) if is_found_by_path else None


def _module_of(file: str | None) -> str | None:
    """Return the name of the loaded module that a file is."""
    modules = list(sys.modules.items()) if file else []
    return next((name for name, each in modules if getattr(each, "__file__", None) == file), None)


def is_file(module: str) -> bool:
    """Return whether a result of `module_of_target` is the path of a file."""
    return module.endswith(".py")


def own_files(gm: GraphModule) -> dict[str, tuple[Path, set[str]]]:
    """Return the user's own modules that define or register the functions of a graph.

    Returns:
        For each module, by its plain name: its file, and the names of its functions in the graph.
    """
    found: dict[str, tuple[Path, set[str]]] = {}
    for name, module in _modules_by_call(gm):
        loaded = find_loaded(module)
        if loaded is not None and loaded.__file__ and is_users(loaded):
            _, names = found.setdefault(module, (Path(loaded.__file__).resolve(), set()))
            names.update([name.partition(":")[2]] if ":" in name else [])
    return found


def foreign_operators(gm: GraphModule) -> list[str]:
    """Return the operators of a graph that no module registers, as far as known: C++ does."""
    found: list[str] = []
    for target in _targets_of_calls(gm):
        with contextlib.suppress(CaseError):
            name = target_to_name(target) if _is_operator(target) else ""
            if name and not is_torch_name(name) and module_of_target(name) is None:
                found.append("::".join(name.split(".")[2:4]))
    return list(dict.fromkeys(found))


def namespaces_of(gm: GraphModule) -> set[str]:
    """Return the namespaces of the operators of a graph that are not torch's own."""
    names: set[str] = set()
    for target in _targets_of_calls(gm):
        with contextlib.suppress(CaseError):
            names.add(target_to_name(target))
    return {name.split(".")[2] for name in names if ":" not in name and not is_torch_name(name)}


def modules_of_torch(gm: GraphModule) -> tuple[str, ...]:
    """Return the modules of torch that register the operators which it registers in Python."""
    found = (operators.qualified_name_of(t) for t in _targets_of_calls(gm) if _is_operator(t))
    names = dict.fromkeys(name.partition(".")[0] for name in found)
    late = (name for name in names if operators.registering_file(name) is not None)
    return tuple(dict.fromkeys(module for name in late for module in modules_that_register(name)))


def _is_operator(target: object) -> bool:
    return operators.kind_of(target) in ("overload", "packet")


def names_of_calls(gm: GraphModule) -> tuple[str, ...]:
    """Return the names of the functions and operators that a graph and its sub-graphs call.

    Raises:
        CaseError: A function has no name, so the graph cannot be saved.
    """
    return tuple(dict.fromkeys(map(target_to_name, _targets_of_calls(gm))))


def modules_of_calls(gm: GraphModule) -> tuple[str, ...]:
    """Return the user's modules whose functions and operators a graph calls, as far as known."""
    return tuple(dict.fromkeys(module for _, module in _modules_by_call(gm)))


def registering_files(gm: GraphModule) -> dict[Path, set[str]]:
    """Return the files that register operators of a graph and cannot be imported by name.

    Returns:
        For each file the namespaces of those operators.
    """
    found: dict[Path, set[str]] = {}
    for name, module in _modules_by_call(gm):
        if is_file(module):
            spaces = found.setdefault(Path(module).resolve(), set())
            spaces.update([] if ":" in name else [name.split(".")[2]])
    return found


def kernels_of_files(gm: GraphModule) -> dict[Path, set[str]]:
    """Return the names of the Triton kernels of a graph, by file, that no import finds."""
    found: dict[Path, set[str]] = {}
    for name, module in _modules_by_call(gm):
        if is_file(module) and ":" in name:
            found.setdefault(Path(module).resolve(), set()).add(name.partition(":")[2])
    return found


def _modules_by_call(gm: GraphModule) -> Iterator[tuple[str, str]]:
    """Yield the functions that a graph calls with their modules, as far as known."""
    for target in _targets_of_calls(gm):
        with contextlib.suppress(CaseError):  # a function without a name
            name = target_to_name(target)
            if (module := module_of_target(name)) is not None:
                yield name, module


def _targets_of_calls(gm: GraphModule) -> Iterator[object]:
    graphs = (part for part in gm.modules() if isinstance(part, GraphModule))
    nodes = [node for part in graphs for node in part.graph.nodes if node.op == "call_function"]
    kernels = (kernel for node in nodes if (kernel := kernel_of(node)) is not None)
    return iter(dict.fromkeys([*(node.target for node in nodes), *kernels]))


def load_imports(
    listed: Collection[str],
    allow_imports: Collection[str],
    folder: Path,
    calls: Iterable[str],
    copies: Mapping[str, Path],
) -> set[str]:
    """Import the modules that a case lists and the user allowed; return their names.

    A file can register its operators once per process, so it is skipped if all are registered.

    Args:
        listed: Modules, and files below the folder.
        copies: The folder from which a module is imported, if Python itself does not find it.

    Raises:
        CaseError: An allowed module cannot be imported.
    """
    is_complete, names = all(map(_is_there, calls)), set[str]()
    called = {call.partition(":")[0] for call in calls if ":" in call}
    for name in filter(allow_imports.__contains__, listed):
        try:
            if not is_file(name):
                names.add(name)
                _import(name, copies.get(name), is_called=name in called)
                continue
            names.add(module_name(Path(name)))
            if not is_complete:
                load_file(folder / name)
        except Exception as error:  # the user's module may raise anything
            raise CaseError(
                f"module {name!r}, which the case needs, cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    return names


def _import(name: str, copy: Path | None, *, is_called: bool) -> None:
    """Import a module; one whose functions are called comes from the case, not from another one."""
    with search_last(Path.cwd()):
        if copy is None or is_importable(name):
            importlib.import_module(name)
            return
    if is_called or find_loaded(name) is None:
        with register_once():
            found = load_module(name, copy).__name__
        sys.modules[found] = sys.modules.pop(found)  # the last one counts


def _is_there(name: str) -> bool:
    if ":" in name:
        return hasattr(_find_loaded(name.partition(":")[0]), name.partition(":")[2])
    parts = name.split(".")
    is_operator = name.startswith("torch.ops.") and parts[2] != "higher_order" and len(parts) > 3
    return not is_operator or operators.is_registered("::".join(parts[2:4]))
