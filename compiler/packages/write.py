"""Write packages: `aot_compile`, `compile_fx_aot`, and several entry points in one file."""

from __future__ import annotations

import contextlib
import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.artifacts.container import place_problem, write
from ctk.compiler.artifacts.machine import requirements
from ctk.compiler.artifacts.versions import version_of
from ctk.compiler.errors import (
    ArtifactError,
    ConfigError,
    InputError,
    StorageError,
    not_taken,
)
from ctk.compiler.options.config import Config, resolve
from ctk.compiler.packages.c_library import CLibrary
from ctk.compiler.packages.entry_point import Traced, compile_traced, trace_program
from ctk.compiler.packages.input_guard import InputGuard, TensorInput, guard_json
from ctk.compiler.packages.package import DEFAULT, FORMAT, MANIFEST
from ctk.compiler.pipeline import InnerCompile, UserFunctions
from ctk.compiler.records import Json
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.tensors import store_tensors
from ctk.compiler.runtime.values import size_json, value_json
from ctk.compiler.sizes.size_guards import NotLowered, size_of
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs

Weights = Literal["keep", "leave_out"]
Options = Config | Mapping[str, object] | None
Blobs = dict[str, bytes | memoryview]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def aot_compile(
    model: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    options: Options = None,
    *,
    dynamic_shapes: Any = None,
    path: str | Path | None = None,
    weights: Weights = "keep",
    as_tuple: bool = False,
) -> str:
    """Compile a model ahead of time, for inference, and write a package.

    Args:
        model: A module, an FX graph, a function of tensors, or a program of torch.export.
        args: Positional arguments of one call; none for an exported program.
        kwargs: Keyword arguments of it. Values that are not tensors are fixed.
        options: Options of the compile: a whole `Config`, or a mapping that patches the ambient
            options.
        dynamic_shapes: Sizes that may vary, as `torch.export.export` takes them.
        path: The file to write; the default is `NAME.ctk`, after the class of the model, here.
        weights: `keep` them in the package, or `leave_out`: then they are bound after loading.
        as_tuple: The result is a flat tuple, however the model nests it.

    Returns:
        The path of the package: `ctk.load` opens it.

    Raises:
        ArtifactError: The program cannot be a package; the message has the reason.
        InputError: The arguments are neither a tuple nor a list.
        ConfigError: An option is unknown, or makes no sense here.
        StorageError: The file cannot be written.
        Exception: Any error of tracing or of the pipeline.
    """
    if not isinstance(args, (tuple, list)):
        raise InputError(
            f"args is {_kind(args)}, and must be a tuple or list: (x,) for one argument"
        )
    if not _is_a(kwargs or {}, Mapping):
        raise InputError(f"kwargs is {_kind(kwargs)}, and must be a mapping of names")
    target = _target(path if path is not None else f"{_name_of(model)}.ctk")
    program = program_of(model, args, kwargs or {}, dynamic_shapes)
    write_package(target, {DEFAULT: program}, options, weights=weights, as_tuple=as_tuple)
    return str(target)


def compile_fx_aot(
    gm: GraphModule,
    example_inputs: Sequence[object],
    config: Options = None,
    *,
    path: str | Path | None = None,
    inner_compile: InnerCompile | None = None,
    config_patches: Mapping[str, object] | None = None,
    extern_node_serializer: None = None,
) -> str:
    """Compile the arguments of `compile_fx`, a captured graph, ahead of time, and write a package.

    Args:
        gm: FX graph, as for `compile_fx`. Not changed.
        example_inputs: One real value per placeholder.
        config: As for `compile_fx`.
        path: As for `aot_compile`.
        inner_compile: As for `compile_fx`; its result is that of `compile_fx_inner`.
        config_patches: As for `compile_fx`; `aot_inductor.output_path` is the path.
        extern_node_serializer: None: a package holds its calls of operators itself.

    Returns:
        The path of the package. It takes the graph's inputs as positional arguments, and returns a
        flat tuple.

    Raises:
        ArtifactError: An input is fake or symbolic: export the model with `dynamic_shapes`.
        ConfigError: There is a serializer.
        Exception: As `aot_compile`.
    """
    patches = dict(config_patches or {})
    serializer = patches.pop("extern_node_serializer", extern_node_serializer)
    if serializer is not None:
        raise ConfigError(
            "extern_node_serializer is not for packages of ctk: a package holds its calls of "
            "operators itself, so leave it out"
        )
    path = cast("str | None", patches.pop("aot_inductor.output_path", None)) or path
    for value in example_inputs:
        if fake.is_fake(value) or isinstance(value, torch.SymInt):
            raise ArtifactError(
                "an example input is fake or symbolic: give real ones, or for sizes that vary "
                "aot_compile(torch.export.export(..., dynamic_shapes=...))"
            )
    target = _target(path if path is not None else f"{_name_of(gm)}.ctk")
    program = program_of(gm, tuple(example_inputs), {}, None)
    options = resolve(config).patch(patches)
    user = UserFunctions(inner_compile)
    write_package(target, {DEFAULT: program}, options, as_tuple=True, user=user)
    return str(target)


def write_package(
    path: str | Path,
    entries: Mapping[str, torch.export.ExportedProgram | Traced],
    options: Options = None,
    *,
    weights: Weights = "keep",
    as_tuple: bool = False,
    private: bool = False,
    user: UserFunctions | None = None,
) -> Path:
    """Compile exported programs, and write them as the entry points of one package.

    Args:
        path: The file; it appears in one step.
        entries: By name. Weights of the same name must be equal: they are stored once.
        options: As for `aot_compile`.
        weights: As for `aot_compile`.
        as_tuple: As for `aot_compile`.
        private: Only the owner may read the file (0600); else the umask decides.
        user: Functions of the user in place of those of ctk.

    Raises:
        Exception: As `aot_compile`.
    """
    config, target = resolve(options), _target(path)
    if weights not in ("keep", "leave_out"):
        raise not_taken("weights", weights, "'keep' or 'leave_out'")
    if not entries:
        raise ArtifactError("a package needs an entry point")
    for name, program in entries.items():
        if not _is_a(program, torch.export.ExportedProgram, Traced):
            raise ArtifactError(
                f"the entry point {name} is {_kind(program)}, and must be an exported program: "
                "torch.export.export(model, args)"
            )
    package = _Package(config, weights, as_tuple=as_tuple, user=user or UserFunctions())
    for name, program in entries.items():
        package.add(name, program if isinstance(program, Traced) else trace_program(program))
    manifest, blobs = package.finish()
    members = {MANIFEST: json.dumps(manifest, indent=1).encode(), **blobs}
    write(target, members, private=private)
    return target


def _target(path: str | Path) -> Path:
    """Return the file to write, links resolved; checked before anything is compiled."""
    target = Path(path).expanduser()
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # place_problem reports it
        target = target.resolve() if target.is_symlink() else target
    if (problem := place_problem(target)) is not None:
        raise StorageError(f"cannot write {target}: {problem}")
    return target


def _is_a(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


@dataclass(slots=True)
class _Entry:
    name: str
    traced: Traced
    graph: CompiledGraph
    guard: InputGuard


@dataclass(slots=True)
class _Package:
    config: Config
    keep: Weights
    as_tuple: bool = field(kw_only=True)
    user: UserFunctions = field(kw_only=True)
    entries: list[_Entry] = field(default_factory=list["_Entry"], init=False)
    weights: dict[str, Tensor] = field(default_factory=dict[str, Tensor], init=False)

    def add(self, name: str, traced: Traced) -> None:
        if not _NAME.fullmatch(name):
            raise ArtifactError(f"{name!r} is not an entry point's name: letters, digits, _ . -")
        for weight, value in traced.weights.items():
            known = self.weights.setdefault(weight, value)
            if known is not value and not _equal(known, value):
                raise ArtifactError(
                    f"two entry points have a weight {weight} of other values: rename one of them"
                )
        graph, guard = compile_traced(traced, self.config, self.user)
        self.entries.append(_Entry(name, traced, graph, guard))

    def finish(self) -> tuple[Json, Blobs]:
        table, blobs = store_tensors(self.weights, "weights/")
        kept, left_out = table, {}
        if self.keep == "leave_out":
            kept, left_out, blobs = {}, table, {}
        library = CLibrary(self.config, kept, left_out)
        described: dict[str, Json] = {}
        for entry in self.entries:
            data, more = entry.graph.stored(f"constants/{entry.name}/")
            blobs.update(more)
            described[entry.name] = self._describe_entry(entry, data)
            library.add(entry.name, entry.graph, entry.guard, entry.traced, data)
        blobs.update(library.finish())
        manifest = {
            "kind": "package",
            "format": FORMAT,
            "made_by": {"ctk": version_of("ctk"), "python": platform.python_version()},
            "machine": requirements(library.features, self._capabilities()),
            "c_api": library.refusals,
            "weights": kept,
            "weights_left_out": left_out,
            "entries": described,
        }
        return manifest, blobs

    def _capabilities(self) -> set[str]:
        devices = {
            each.device
            for entry in self.entries
            for each in entry.guard.inputs
            if isinstance(each, TensorInput) and each.device.type == "cuda"
        }
        return {".".join(map(str, torch.cuda.get_device_capability(device))) for device in devices}

    def _describe_entry(self, entry: _Entry, graph: Json) -> Json:
        traced = entry.traced
        computed = [_describe_result(n, value) for n, value in enumerate(traced.computed())]
        results = [
            computed[result] if isinstance(result, int) else {"fixed": value_json(result[0])}
            for result in traced.results
        ]
        out_spec = traced.out_spec
        if self.as_tuple:
            out_spec = graphs.tree_flatten(tuple(range(len(results))))[1]
        return {
            "door": guard_json(entry.guard),
            "weights": list(traced.weights),
            "results": results,
            "in_spec": _spec(traced.in_spec, "arguments"),
            "out_spec": _spec(out_spec, "results"),
            "graph": graph,
        }


def _describe_result(number: int, value: object) -> Json:
    """Return the description of a computed result: a number, or a tensor of these sizes."""
    if not isinstance(value, Tensor):
        return {"computed": number, "size": _size(value)}
    dtype, shape = str(value.dtype).removeprefix("torch."), [_size(each) for each in value.shape]
    return {"computed": number, "dtype": dtype, "shape": shape, "device": str(value.device)}


def _size(value: Any) -> Json:
    """Return a size as JSON; None if it depends on numbers, or is not a sum of products."""
    if not isinstance(value, int | torch.SymInt):
        return None
    try:
        return size_json(size_of(value))
    except NotLowered:
        return None


def program_of(
    model: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """Return a model as a program of torch.export.

    Raises:
        ArtifactError: Arguments do not go with an exported program, or the model is not callable.
        Exception: Any error of `torch.export.export`.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise ArtifactError("an exported program has its arguments: give none")
        return model
    if not callable(model):
        raise ArtifactError(f"a {type(model).__name__} is not a model: pass a module or a function")
    return exported.export(module_of(model), tuple(args), kwargs, dynamic_shapes)


def module_of(model: torch.nn.Module | Callable[..., Any]) -> torch.nn.Module:
    """Return a model as a module."""
    return model if isinstance(model, torch.nn.Module) else _Function(model)


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _name_of(model: object) -> str:
    if isinstance(model, torch.export.ExportedProgram | GraphModule):
        return "model"
    name = getattr(model, "__name__", None) or type(model).__name__
    return re.sub(r"\W+", "_", name).strip("_").lower() or "model"


def _equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two weights can be stored as one: the same bits, in the same order."""
    kinds = [(each.dtype, each.shape, each.stride(), each.device) for each in (a, b)]
    return kinds[0] == kinds[1] and torch.equal(*(_bits(each) for each in (a, b)))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)


def _spec(spec: Any, what: str) -> str:
    try:
        return graphs.spec_text(spec)
    except NotImplementedError as error:
        raise ArtifactError(
            f"the {what} hold a class that has no name: {error}\nnext: register it with "
            "torch.utils._pytree.register_pytree_node(..., serialized_type_name=...)"
        ) from error
