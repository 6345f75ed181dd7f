"""Compile an operator for the arguments of one call, or find the package that was made for them.

    path = aoti_compile_with_persistent_cache(
        "aten", "add.Tensor", "cpu", False, torch.ops.aten.add.Tensor, (x, y), {"alpha": 2}
    )
    ctk.load(path)(x, y, alpha=2)

Tensors are inputs of the package; everything else is fixed in it, and its input guard checks it. A
package fits a call with the same arguments (`metadata.py`), the same options, versions and machine.

Source: `aoti_compile_with_persistent_cache` of `torch/_inductor/aoti_eager.py` (torch 2.11, 2.13).
It returns an empty text if anything fails; here an error is raised.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ctk.compiler.artifacts import versions
from ctk.compiler.errors import ArtifactError, CtkError, StorageError
from ctk.compiler.options.config import Config, resolve
from ctk.compiler.packages.entry_point import Traced, trace_program
from ctk.compiler.packages.input_guard import FixedInput, Input
from ctk.compiler.packages.operators.metadata import describe_arguments, in_order, text_of
from ctk.compiler.packages.operators.package_index import PackageIndex, index_of, same
from ctk.compiler.packages.package import DEFAULT
from ctk.compiler.packages.write import Options, write_package
from ctk.compiler.records import Json
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.process import trace_state
from ctk.compiler.usercode.identity import identity_of, implementation_text

log = logging.getLogger("ctk.cache")

_NOT_TRACED = ("grad mode", "inference mode", "anomaly mode", "autocast.cache")
"""Modes that a package for inference does not depend on."""


_DYNAMIC = (
    "{}: packages of operators are for fixed sizes: give dynamic=False and no dynamic_shapes, or "
    "use ctk.aot_compile(..., dynamic_shapes=...)"
)


@dataclass(frozen=True, slots=True)
class OperatorPackage:
    """A package of an operator.

    Attributes:
        meta_info: The arguments that it was compiled for: an object for each.
        path: The file: `ctk.load` opens it.
        depends_on: Versions, machine and options that it was compiled with.
    """

    meta_info: Sequence[Json]
    path: Path
    depends_on: Mapping[str, str]


def aoti_compile_with_persistent_cache(
    ns: str,
    op_func_name_with_overload: str,
    device_type: str,
    dynamic: bool,
    f: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
    options: Options = None,
    remove_runtime_assertions: bool = False,
    disable_constraint_solver: bool = False,
) -> str:
    """Return the package of an operator for the arguments of a call; compile it if there is none.

    Args:
        ns: Namespace of the operator: `aten`.
        op_func_name_with_overload: `add.Tensor`, `abs`.
        device_type: `cpu`, `cuda`: of its tensors.
        dynamic: Must be False, as `dynamic_shapes` must be None: sizes are fixed.
        f: The implementation of the operator on tensors.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of it.
        dynamic_shapes: See `dynamic`.
        options: As for `aot_compile`.
        remove_runtime_assertions: Leave out the operator's run-time assertions about numbers.
        disable_constraint_solver: Taken as torch takes it; fixed sizes have no constraints.

    Returns:
        The path of the package. `ctk.load` opens it; it is called as `f` is.

    Raises:
        InputError: An argument is of a type that packages of operators do not take.
        ArtifactError: Sizes may vary, or the operator cannot be a package; the message has the
            reason.
        ConfigError: An option is unknown, or the persistent cache is off.
        StorageError: The package cannot be written.
    """
    operator = op_func_name_with_overload
    del disable_constraint_solver
    if dynamic or dynamic_shapes is not None:
        raise ArtifactError(_DYNAMIC.format(f"{ns}::{operator}"))
    index = index_of(ns, operator, device_type)
    meta = describe_arguments(ns, operator, device_type, args, kwargs)
    config = resolve(options)
    parts = _parts(config, device_type, remove_runtime_assertions=remove_runtime_assertions)
    parts["function"] = implementation_text(f)
    name = f"{operator}-{hashlib.sha256(text_of([meta, parts]).encode()).hexdigest()[:32]}"
    if (found := _find(index, meta, parts)) is not None:
        return str(found)
    with index.lock(name):
        if (found := _find(index, meta, parts)) is not None:
            return str(found)
        traced = _trace(ns, operator, f, args, kwargs)
        if remove_runtime_assertions:
            _without_assertions(traced)
        path = write_package(index.package(name), {DEFAULT: traced}, config, private=True)
        _note(index, name, meta, parts)
    return str(path)


def _note(index: PackageIndex, name: str, meta: list[Json], parts: Mapping[str, str]) -> None:
    """Add a package to the list; if that fails, the package can be used all the same."""
    try:
        index.add(name, meta, parts)
    except StorageError as error:
        log.warning("a package of %s is not noted: %s", index.operator, error)


def find_operator_package(
    ns: str,
    op_func_name_with_overload: str,
    device_type: str,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    options: Options = None,
) -> Path | None:
    """Return the package that fits a call, checked; None if there is none. Compiles nothing.

    Raises:
        InputError: An argument is of a type that packages of operators do not take.
        ConfigError: An option is unknown, or the persistent cache is off.
    """
    operator = op_func_name_with_overload
    index = index_of(ns, operator, device_type)
    meta = describe_arguments(ns, operator, device_type, args, kwargs or {})
    not_asked = ("function", "remove_runtime_assertions")
    return _find(index, meta, _parts(resolve(options), device_type), without=not_asked)


def load_operator_packages(
    ns: str, op_func_name_with_overload: str, device_type: str
) -> list[OperatorPackage]:
    """Return the packages of an operator that run here, each checked, oldest first.

    Raises:
        InputError: A name is malformed.
        ConfigError: The persistent cache is off.
    """
    index = index_of(ns, op_func_name_with_overload, device_type)
    checked = [(record, index.checked(record)) for record in index.records()]
    return [
        OperatorPackage(record.meta_info, path, record.depends_on)
        for record, path in checked
        if path is not None
    ]


def _find(
    index: PackageIndex, meta: list[Json], parts: Mapping[str, str], without: Sequence[str] = ()
) -> Path | None:
    text = text_of(meta)
    for record in reversed(index.records()):
        if text_of(record.meta_info) == text and same(record.depends_on, parts, without):
            path = index.checked(record)
            if path is not None:
                return path
    return None


def _parts(
    config: Config, device_type: str, *, remove_runtime_assertions: bool = False
) -> dict[str, str]:
    """Return everything that a package depends on besides its arguments."""
    state = {k: v for k, v in trace_state.ambient_state().items() if k not in _NOT_TRACED}
    options = config.differences()
    devices = [] if device_type == "cpu" else [torch.device(device_type, 0)]
    return {
        **versions.version_parts(),
        **versions.machine_parts(devices),
        "options": identity_of(options, "an option"),
        "ambient": identity_of(state, "a mode of torch"),
        "remove_runtime_assertions": str(remove_runtime_assertions),
    }


class _OfTensors(torch.nn.Module):
    """A call as a module of its tensors; its other arguments are fixed."""

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any], spec: Any) -> None:
        super().__init__()
        self.function = function
        self.fixed = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
        self.spec = spec

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        pairs = zip(self.is_tensor, self.fixed, strict=True)
        leaves = [next(given) if is_tensor else fixed for is_tensor, fixed in pairs]
        args, kwargs = graphs.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def _trace(
    ns: str,
    operator: str,
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Traced:
    """Return a call as an entry point with the arguments of the operator."""
    names, keywords = in_order(ns, operator, args, kwargs)
    leaves, spec = graphs.tree_flatten((tuple(args), keywords))
    named = (*zip(names, args, strict=True), *keywords.items())
    places = [place for each in named for place in _places(*each)]
    tensors = tuple(each for each in leaves if isinstance(each, Tensor))
    try:
        program = exported.export(_OfTensors(function, leaves, spec), tensors, {}, None)
    except CtkError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ArtifactError(
            f"{ns}::{operator} cannot be traced with these arguments: {type(error).__name__}: "
            f"{first}\nnext: call it in eager with them; trace it: TORCH_LOGS=export"
        ) from error
    traced = trace_program(program)
    own = iter(traced.guard.inputs)
    inputs: list[Input] = [
        replace(next(own), name=name) if isinstance(leaf, Tensor) else FixedInput(name, leaf)
        for name, leaf in zip(places, leaves, strict=True)
    ]
    return replace(traced, guard=replace(traced.guard, inputs=tuple(inputs)), in_spec=spec)


def _places(name: str, value: object) -> Iterator[str]:
    """Yield the names of the leaves of an argument: `tensors[0]`."""
    if isinstance(value, list | tuple):
        for number, each in enumerate(cast("Sequence[object]", value)):
            yield from _places(f"{name}[{number}]", each)
    else:
        yield name


def _without_assertions(traced: Traced) -> None:
    graph = traced.graph.graph
    for node in reversed(list(graph.nodes)):
        if not node.users and "_assert" in str(node.target) and node.op == "call_function":
            graph.erase_node(node)
    graph.eliminate_dead_code()
    traced.graph.recompile()
