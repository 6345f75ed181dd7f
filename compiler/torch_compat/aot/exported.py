"""Programs of torch.export: functional graphs, their weights, their inputs and outputs."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputSpec, OutputSpec

from ctk.compiler.torch_compat.fx.graphs import tree_leaves


def export(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """Trace a model for one call, without gradients."""
    with torch.no_grad(), own_warnings_ignored():
        return torch.export.export(model, args, dict(kwargs), dynamic_shapes=dynamic_shapes)


@contextlib.contextmanager
def own_warnings_ignored() -> Generator[None]:
    """Ignore torch's warnings about its own code (2.13: copies of `LeafSpec`)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*treespec, LeafSpec", FutureWarning)
        yield


def functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program with a functional graph, which returns its mutations as results."""
    with torch.no_grad(), own_warnings_ignored():
        return program.run_decompositions({})


def spec_kinds_of(
    specs: Sequence[InputSpec | OutputSpec],
) -> list[tuple[str, str, str | None, object]]:
    """Return for each input or output: kind, name, target, and its value if it is fixed.

    Kinds are those of `InputKind` and `OutputKind` in lower case, and `fixed` for a value that the
    graph lacks.
    """
    return [
        ("fixed", spec.arg.name, spec.target, spec.arg.value)
        if isinstance(spec.arg, ConstantArgument)
        else (spec.kind.name.lower(), spec.arg.name, spec.target, None)
        for spec in specs
    ]


def value_of(program: torch.export.ExportedProgram, name: str) -> object:
    """Return a parameter, a buffer or a constant of a program."""
    return program.state_dict[name] if name in program.state_dict else program.constants[name]


def ranges(program: torch.export.ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Return the least and the largest value of each size symbol; None: there is no largest."""
    return {str(symbol): _bounds(each) for symbol, each in program.range_constraints.items()}


def guards_of(program: torch.export.ExportedProgram) -> Callable[..., object] | None:
    """Return the function that raises for calls that a program was not made for, if it has one.

    It takes the flat arguments of a call (torch 2.13).
    """
    return getattr(program.module(), "_guards_fn", None)


def _bounds(each: Any) -> tuple[int, int | None]:
    high = each.upper
    is_finite = bool(getattr(high, "is_Integer", False)) and int(high) < 2**62
    low = int(each.lower) if getattr(each.lower, "is_Integer", False) else 0
    return max(low, 0), int(high) if is_finite else None


def symbol_ranges(mode: Any) -> dict[str, tuple[int, int | None]]:
    """Return the same of all symbols of a fake mode."""
    env = mode.shape_env
    return {} if env is None else {str(s): _bounds(each) for s, each in env.var_to_range.items()}


def guard_expressions(mode: Any, known: int = 0) -> list[Any]:
    """Return assumptions on sizes besides ranges (sympy), after the first `known`."""
    env = mode.shape_env
    return [] if env is None else [guard.expr for guard in env.guards[known:]]


@contextlib.contextmanager
def wrappers_noted(mode: Any) -> Generator[Callable[[], Iterator[str]]]:
    """Trace inside; yields a function of AOTAutograd's work around the graph.

    The work is empty if a call of the program is just a call of the graph.
    """
    context = torch._guards.TracingContext(mode)

    def told() -> Iterator[str]:
        metadata = context.fw_metadata
        if metadata is None:
            return
        if metadata.mutated_inp_runtime_indices:
            yield "it changes the shape, strides or memory of an input"
        if metadata.num_intermediate_bases:
            yield "two results share memory that is not an input"
        if metadata.tokens:
            yield "it has side effects that are ordered by tokens"
        kinds = {type(each).__name__ for each in metadata.subclass_inp_meta or ()}
        if "SubclassCreationMeta" in kinds:
            yield "an input is a tensor subclass"

    with torch._guards.tracing(context):
        yield told


def sizes_that_vary(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], *, all_: bool
) -> object:
    """Return the dynamic shapes of a call: sizes of `mark_dynamic`, or every size of a tensor.

    The model may fix a size, except a marked one.

    In torch: `ShapesCollection`, `Dim.DYNAMIC`, and Dynamo's attributes of tensors
    (`_dynamo_dynamic_indices`, `_dynamo_weak_dynamic_indices`, `_dynamo_dynamic_range`).
    """
    from torch.export import Dim
    from torch.export.dynamic_shapes import ShapesCollection

    found = ShapesCollection()
    for leaf in tree_leaves((args, dict(kwargs))):
        if not isinstance(leaf, torch.Tensor):
            continue
        limits = {each.dim: each for each in getattr(leaf, "_dynamo_dynamic_range", ())}
        marked = dict.fromkeys(getattr(leaf, "_dynamo_weak_dynamic_indices", ()), Dim.AUTO)
        marked |= {n: Dim.AUTO for n in range(leaf.dim()) if all_}
        for number in getattr(leaf, "_dynamo_dynamic_indices", ()):
            limit = limits.get(number)
            hint: Any = Dim.DYNAMIC
            marked[number] = hint(min=limit.min, max=limit.max) if limit is not None else hint
        if marked:
            found[leaf] = marked
    return found.dynamic_shapes(model, args, dict(kwargs)) if len(found) else None
