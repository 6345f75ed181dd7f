"""Compile a program as torch.export captures it, and call the result in the program's place.

    model(x: [3, 4], n=7)   exported, compiled and called
    model(x: [3, 4], n=7)   called again
    model(x: [5, 4], n=7)   exported and compiled again, unless that size is dynamic
    model(x: [3, 4], n=8)   exported and compiled again

An exported program has no guards: a call that it was not made for gets another one, as its user has
to make it. It has no Python code and no gradients. A package of AOTInductor has its own copy of all
parameters and buffers; tensors that the program writes to are shared with the model, so that
their values compare.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.nn import Module, Parameter

from ctk.compiler.errors import ExportRefused
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.aot.exported import (
    export,
    functional,
    guards_of,
    own_warnings_ignored,
    ranges,
    sizes_that_vary,
    spec_kinds_of,
)
from ctk.compiler.torch_compat.fx.graphs import tree_flatten, tree_leaves, tree_unflatten
from ctk.compiler.torch_compat.inductor.inductor_api import (
    load_aot_package,
    outside_tracing,
    share_constants,
    wrap_error,
    write_aot_package,
)

Given = tuple[Sequence[object], Mapping[str, object]]


@dataclass(frozen=True, slots=True, eq=False)
class ExportedCall:
    """A compiled program, and the calls that it was made for.

    Attributes:
        form: The nesting of its arguments.
    """

    program: ExportedProgram
    form: object
    call: Callable[..., object]

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.call(*args, **kwargs)

    def takes(self, arguments: Given) -> bool:
        """Return whether sizes, strides, dtypes and plain values of a call are those exported."""
        leaves, form = _flatten(arguments)
        values = [*_input_values(self.program)]
        if form != self.form or len(leaves) != len(values):
            return False
        sizes: dict[str, int] = {}
        if not all(_is_as_exported(*pair, sizes) for pair in zip(values, leaves, strict=True)):
            return False
        limits = ((sizes.get(name), *each) for name, each in ranges(self.program).items())
        if not all(n is None or low <= n <= (high or n) for n, low, high in limits):
            return False
        guards = guards_of(self.program)
        try:
            return guards is None or guards(*leaves) is None
        except AssertionError:
            return False


def aot_inductor_backend(target: str, folder: Path) -> Callable[..., ExportedCall]:
    """Return AOTInductor: it exports a program, writes a package, and loads it."""
    return compile_package


def export_backend(target: str, folder: Path) -> Callable[..., ExportedCall]:
    """Return torch.export alone: the exported program runs in eager."""
    return run_exported


def export_model(
    model: Any,
    *,
    backend: Callable[..., ExportedCall],
    options: Mapping[str, object] | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = True,
) -> Callable[..., object]:
    """Return a function that calls a model exported: `torch.compile` for an exporting backend.

    Args:
        dynamic: Whether each size may vary that the model does not fix.
        fullgraph: Ignored: an exported program is one graph.

    Raises:
        ExportRefused: From a call that cannot be exported.
    """
    made: list[ExportedCall] = []

    def call(*args: object, **kwargs: object) -> object:
        found = next((each for each in made if each.takes((args, kwargs))), None)
        if found is None:
            how: Any = {"kwargs": kwargs, "dynamic": dynamic is True, "options": options}
            try:
                found = backend(model, args, **how)
            except ExportRefused:
                raise
            except Exception as error:
                raise wrap_error(error) from error
            made.append(found)
        return found(*args, **kwargs)

    return call


def compile_package(
    model: Callable[..., object],
    args: Sequence[object],
    *,
    kwargs: Mapping[str, object] | None = None,
    dynamic: bool = False,
    options: Mapping[str, object] | None = None,
) -> ExportedCall:
    """Export a program for one call, compile it into a package of AOTInductor, and load that.

    Raises:
        ExportRefused: torch.export or AOTInductor does not take the program.
        Exception: An exception of AOTInductor.
    """
    module, arguments = _module_of(model), (args, kwargs or {})
    program = export_program(module, arguments, dynamic=dynamic)
    package = _load_compiled(program, options)
    share_constants(package, dict(_written_tensors(program, module)))
    parameters = dict(_returned_parameters(program, module))

    def call(*args: object, **kwargs: object) -> object:
        with own_warnings_ignored(), torch.no_grad():
            leaves, form = tree_flatten(package(*args, **kwargs))
        return tree_unflatten(_as_parameters(leaves, parameters), form)

    return ExportedCall(program, _flatten(arguments)[1], call)


def _load_compiled(
    program: ExportedProgram, options: Mapping[str, object] | None
) -> Callable[..., object]:
    """Return the package of an exported program; its file is removed, its library is loaded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        outside_tracing(),
        own_warnings_ignored(),
        torch.no_grad(),
    ):
        path = str(Path(folder) / "model.pt2")
        try:
            write_aot_package(program, path, options)
        except NotImplementedError as error:
            raise ExportRefused(f"AOTInductor refuses the program: {first_line(error)}") from error
        return load_aot_package(path)


def _as_parameters(
    leaves: Sequence[object], parameters: Mapping[int, Parameter]
) -> Sequence[object]:
    """Return results with the values of a package, and the type of the program's parameters."""
    return [
        Parameter(leaf, parameters[number].requires_grad)
        if number in parameters and isinstance(leaf, Tensor)
        else leaf
        for number, leaf in enumerate(leaves)
    ]


def run_exported(
    model: Callable[..., object],
    args: Sequence[object],
    *,
    kwargs: Mapping[str, object] | None = None,
    dynamic: bool = False,
    options: Mapping[str, object] | None = None,
) -> ExportedCall:
    """Export a program for one call, to be run in eager.

    Raises:
        ExportRefused: torch.export does not take the program.
    """
    arguments = (args, kwargs or {})
    program = export_program(_module_of(model), arguments, dynamic=dynamic)
    return ExportedCall(program, _flatten(arguments)[1], program.module())


def export_program(module: Module, arguments: Given, *, dynamic: bool) -> ExportedProgram:
    """Export a program for one call.

    Raises:
        ExportRefused: It needs gradients, it has a symbolic size as an argument, or torch.export
            raises.
    """
    args, kwargs = arguments
    leaves = [*tree_leaves(arguments), *module.parameters()]
    if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in leaves):
        raise ExportRefused("an exported program has no gradients, and this call records them")
    if any(isinstance(each, torch.SymInt) for each in leaves):
        raise ExportRefused("an exported program takes no symbolic size as an argument")
    try:
        with outside_tracing():
            sizes = sizes_that_vary(module, tuple(args), kwargs, all_=dynamic)
            return export(module, tuple(args), kwargs, sizes)
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise ExportRefused(f"torch.export refuses the program: {what}") from error


class FunctionModule(Module):
    """A function as a module, which torch.export needs."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the function."""
        return self.function(*args, **kwargs)


def _module_of(model: Callable[..., object]) -> Module:
    return model if isinstance(model, Module) else FunctionModule(model)


def _flatten(arguments: Given) -> tuple[list[object], object]:
    args, kwargs = arguments
    return tree_flatten((tuple(args), dict(kwargs)))


def _input_values(program: ExportedProgram) -> Iterator[object]:
    """Yield the fake or plain value of each argument of an exported program."""
    specs = spec_kinds_of(program.graph_signature.input_specs)
    nodes = program.graph.find_nodes(op="placeholder")
    for (kind, _, _, fixed), node in zip(specs, nodes, strict=True):
        if kind in ("user_input", "fixed"):
            yield fixed if kind == "fixed" else node.meta.get("val")


def _is_as_exported(value: object, given: object, sizes: dict[str, int]) -> bool:
    """Return whether an argument is as exported; the sizes of symbols are added to `sizes`."""
    if not isinstance(value, Tensor) or not isinstance(given, Tensor):
        return type(value) is type(given) and value == given
    if (value.dtype, value.device, value.dim()) != (given.dtype, given.device, given.dim()):
        return False
    if value.layout is not torch.strided or given.layout is not torch.strided:
        return value.layout is given.layout
    pairs = [*zip(value.shape, given.shape, strict=True)]
    pairs += [*zip(value.stride(), given.stride(), strict=True)]
    return all(_is_size(known, size, sizes) for known, size in pairs)


def _is_size(known: object, size: int, sizes: dict[str, int]) -> bool:
    """Return whether a size is the fixed one, or that of its symbol in the other arguments."""
    if isinstance(known, int):
        return known == size
    return sizes.setdefault(str(known), size) == size


def _written_tensors(program: ExportedProgram, module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of a model that an exported program writes to, by name."""
    tensors = _tensors_of(module)
    for kind, _, target, _ in spec_kinds_of(functional(program).graph_signature.output_specs):
        if kind != "user_output" and target in tensors:
            yield target, tensors[target]


def _returned_parameters(
    program: ExportedProgram, module: Module
) -> Iterator[tuple[int, Parameter]]:
    """Yield the parameters of a model that an exported program returns, by number of the result."""
    signature, tensors = program.graph_signature, _tensors_of(module)
    held = {name: target for _, name, target, _ in spec_kinds_of(signature.input_specs)}
    kinds = ("user_output", "fixed")
    outputs = [name for kind, name, *_ in spec_kinds_of(signature.output_specs) if kind in kinds]
    for number, name in enumerate(outputs):
        tensor = tensors.get(held.get(name) or "")
        if isinstance(tensor, Parameter):
            yield number, tensor


def _tensors_of(module: Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, each by all of its names."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return {**dict(module.named_parameters(remove_duplicate=False)), **buffers}
