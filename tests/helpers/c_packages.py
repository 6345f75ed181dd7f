"""Packages with a C library, made from a model through the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import Node

from ctk.compiler.artifacts.container import write
from ctk.compiler.codegen.c import c_codegen as c_compile
from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.schedule.assembly import Assembly
from ctk.compiler.packages.c_api import LIBRARY_MEMBER
from ctk.compiler.packages.c_wrapper.entries import CEntry, CValue, Weight
from ctk.compiler.packages.c_wrapper.library import build, sources
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.runtime.steps import Schedule
from ctk.compiler.sizes.index import Index, as_index
from ctk.compiler.sizes.size_guards import sizes_of


@dataclass(slots=True)
class Recorded:
    """What a compile made."""

    schedules: list[Schedule] = field(default_factory=list[Schedule])
    codes: list[list[KernelCode]] = field(default_factory=list[list[KernelCode]])
    run: Any = None


@contextmanager
def recording():
    """Record the schedules and the kernels of compiles."""
    found = Recorded()
    load, result = c_compile.load, Assembly.result

    def recorded_load(codes: Sequence[KernelCode], flags: Sequence[str]) -> Any:
        found.codes.append(list(codes))
        return load(codes, flags)

    def recorded_result(self: Assembly, output: Node) -> Schedule:
        found.schedules.append(result(self, output))
        return found.schedules[-1]

    with (
        patch.object(c_compile, "load", recorded_load),
        patch.object(Assembly, "result", recorded_result),
    ):
        yield found


@dataclass(slots=True)
class Made:
    """A package for tests."""

    path: Path
    entries: list[CEntry]
    run: Any


def entry_of(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    *,
    name: str = "forward",
    dynamic_shapes: Any = None,
    config: dict[str, Any] | None = None,
) -> tuple[CEntry, dict[str, torch.Tensor], Any]:
    """Compile a model, and return it as an entry point, its weights, and the compiled callable."""
    program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes)
    with recording() as found, torch.no_grad():
        gm = program.graph_module
        fakes = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
        options = {"codegen": "c", "fallback": (), "cache": False}  # a kept one makes no schedule
        run = compile_fx(gm, fakes, options | (config or {}))
    (schedule,) = found.schedules
    codes = found.codes[0] if found.codes else []
    signature = program.graph_signature
    state = {**program.state_dict, **program.constants}
    weights: dict[str, torch.Tensor] = {}
    inputs: list[CValue] = []
    given: dict[str, int | str] = {}
    for spec, own, fake in zip(signature.input_specs, schedule.inputs, fakes, strict=True):
        if spec.target is not None:
            weights[spec.target] = state[spec.target].detach()
            given[own] = spec.target
        else:
            given[own] = len(inputs)
            inputs.append(value_of(spec.arg.name, fake))
    (output,) = gm.graph.find_nodes(op="output")
    outputs = tuple(
        value_of(f"output_{at}", getattr(node, "meta", {}).get("val", node))
        for at, node in enumerate(output.args[0])
    )
    symbols = {
        str(symbol): (int(found.lower), int(found.upper) if found.upper < 2**62 else None)
        for symbol, found in program.range_constraints.items()
    }
    mentioned = {
        each.name for value in inputs for size in value.shape for each in size.atoms
        if hasattr(each, "name")
    }  # fmt: skip
    symbols = {name: limits for name, limits in symbols.items() if name in mentioned}
    entry = CEntry(
        name, schedule, codes, tuple(inputs), outputs, given, symbols=symbols
    )  # fmt: skip
    return entry, weights, run


def value_of(name: str, value: Any) -> CValue:
    """Return an input or output as data."""
    if isinstance(value, torch.Tensor):
        return CValue(name, value.dtype, tuple(sizes_of(value.shape)))
    if isinstance(value, torch.SymInt):
        return CValue(name, torch.int64, (), "int", sizes_of([value])[0])
    assert type(value) is int
    return CValue(name, torch.int64, (), "int")


def package_of(
    path: Path,
    entries: Sequence[CEntry],
    weights: dict[str, torch.Tensor],
    *,
    keep_weights: bool = True,
    features: Sequence[str] = (),
) -> Path:
    """Write a package with a C library."""
    rows: list[Weight] = []
    members: dict[str, bytes] = {}
    for number, (name, tensor) in enumerate(weights.items()):
        member = f"weights/{number}" if keep_weights else None
        dense = tensor.contiguous()
        rows.append(Weight(name, dense.dtype, tuple(dense.shape), dense.stride(), member))
        if member:
            members[member] = dense.view(-1).view(torch.uint8).numpy().tobytes()
    files, _ = sources(entries, rows, name=f"ctk, torch {torch.__version__}", features=features)
    members[LIBRARY_MEMBER] = build(files)
    write(path, members)
    return path


def index(value: int) -> Index:
    """Return a number as a size."""
    return as_index(value)
