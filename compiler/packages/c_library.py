"""The shared library of a package: its kernels in C, and the functions that C programs call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from ctk.compiler.artifacts.versions import version_of
from ctk.compiler.codegen.c.c_codegen import COptions, PrintedKernel, flags_of
from ctk.compiler.codegen.c.toolchain import command_with, features_of
from ctk.compiler.codegen.schedule.generator import with_config
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.options.config import Config
from ctk.compiler.packages.c_api import LIBRARY_MEMBER
from ctk.compiler.packages.c_wrapper.description_tables import run_function
from ctk.compiler.packages.c_wrapper.entries import (
    CEntry,
    CValue,
    NotInC,
    Weight,
    dtype_code,
)
from ctk.compiler.packages.c_wrapper.library import build, sources
from ctk.compiler.packages.entry_point import Traced
from ctk.compiler.packages.input_guard import FixedInput, InputGuard, NumberInput, TensorInput
from ctk.compiler.records import Json
from ctk.compiler.runtime.c_kernels import CKernel
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.values import DTYPE
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of


@dataclass(slots=True)
class CLibrary:
    """The library while it is built.

    Attributes:
        refusals: Why C programs cannot call an entry point, by name; empty if they can.
    """

    config: Config
    kept: Json
    left_out: Json
    refusals: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _entries: list[CEntry] = field(default_factory=list[CEntry], init=False)
    _weights: dict[str, Weight] = field(default_factory=dict[str, Weight], init=False)
    _data: list[Json] = field(default_factory=list[Json], init=False)
    _kernels: list[list[PrintedKernel]] = field(
        default_factory=list[list[PrintedKernel]], init=False
    )

    @property
    def flags(self) -> list[str]:
        return flags_of(with_config(COptions(), self.config))

    @property
    def features(self) -> frozenset[str]:
        """The features that the processor must have."""
        return features_of(command_with(self.flags)) if any(self._kernels) else frozenset()

    def add(
        self, name: str, graph: CompiledGraph, guard: InputGuard, traced: Traced, data: Json
    ) -> None:
        """Add an entry point; name its kernels and their library in `data`."""
        kernels = [code for code in graph.codes if isinstance(code, PrintedKernel)]
        try:
            entry = self._entry(name, graph, guard, traced, data["constants"])
        except (NotInC, NotLowered) as error:
            entry = CEntry(name, graph.schedule, [], (), (), {}, refusal=str(error))
        codes = [kernel.code for kernel in kernels]
        self._entries.append(replace(entry, kernels=codes))
        self._kernels.append(kernels)
        self._data.append(data)

    def finish(self) -> dict[str, bytes | memoryview]:
        """Compile the library, name it in the descriptions of its kernels, and return it as a blob.

        Raises:
            CodegenUnsupported: There is no C compiler, and there are kernels.
        """
        try:
            binary = self._binary()
        except CodegenUnsupported as error:
            if any(self._kernels):
                raise
            self.refusals = {entry.name: str(error) for entry in self._entries}
            return {}
        if binary is None:
            return {}
        for number, (data, kernels) in enumerate(zip(self._data, self._kernels, strict=True)):
            if kernels:
                prefix = f"{run_function(number)}_"
                named = [_in_library(kernel, prefix) for kernel in kernels]
                data["kernels"] = [each.stored(LIBRARY_MEMBER, binary).data for each in named]
        return {LIBRARY_MEMBER: binary}

    def _binary(self) -> bytes | None:
        """Return the library; None if no caller would use any of it."""
        needed = features_of(command_with(self.flags)) if self._entries else frozenset[str]()
        files, self.refusals = sources(
            self._entries,
            [*self._weights.values()],
            name=f"ctk {version_of('ctk')}, torch {torch.__version__}",
            features=sorted(needed),
        )
        if not any(self._kernels) and len(self.refusals) == len(self._entries):
            return None
        return build(files, self.flags)

    def _entry(
        self, name: str, graph: CompiledGraph, guard: InputGuard, traced: Traced, constants: Json
    ) -> CEntry:
        """Return an entry point as C programs see it; raise `NotInC` if they cannot call it."""
        if graph.generator == "triton":
            raise NotInC("it runs on a GPU")
        inputs = tuple(_input(each) for each in guard.inputs if not isinstance(each, FixedInput))
        sources: list[int | str] = [*traced.weights, *range(len(inputs))]
        given = dict(zip(graph.schedule.inputs, sources, strict=True))
        weights: dict[str, Weight] = {}
        for weight in traced.weights:
            row = self.kept.get(weight) or self.left_out[weight]
            weights[weight] = _weight(weight, row, is_kept=weight in self.kept)
        for own, target in graph.schedule.constants.items():
            if target not in constants:
                raise NotInC(f"an operator calls the graph {target}")
            weight = f"{name}:{target}"
            weights[weight] = _weight(weight, constants[target], is_kept=True)
            given[own] = weight
        self._weights.update(weights)
        symbols = {symbol: (each.low, each.high) for symbol, each in guard.dimensions.items()}
        outputs = tuple(_output(number, value) for number, value in enumerate(traced.computed()))
        return CEntry(
            name, graph.schedule, [], inputs, outputs, given,
            symbols=symbols, conditions=guard.conditions,
        )  # fmt: skip


def _in_library(printed: PrintedKernel, prefix: str) -> CKernel:
    """Return a kernel with the names of its functions in the library."""
    own = printed.kernel
    function, fault_reader = f"{prefix}{own.function}", f"{prefix}{own.fault_reader}"
    return replace(own, function=function, fault_reader=fault_reader)


def _input(each: TensorInput | NumberInput) -> CValue:
    if isinstance(each, NumberInput):
        return CValue(each.name, torch.int64, (), "int", each.size)
    dtype_code(each.dtype)
    return CValue(each.name, each.dtype, each.shape, is_written=each.is_written)


def _output(number: int, value: object) -> CValue:
    """Return an output for C programs: a computed tensor or number."""
    name = f"output_{number}"
    if isinstance(value, torch.Tensor):
        dtype_code(value.dtype)
        return CValue(name, value.dtype, sizes_of(value.shape))
    if isinstance(value, (int, torch.SymInt)):
        return CValue(name, torch.int64, (), "int")
    raise NotInC(f"its result {number} is a {type(value).__name__}")


def _weight(name: str, row: Json, *, is_kept: bool) -> Weight:
    dtype = DTYPE.read(row["dtype"])
    dtype_code(dtype)
    member = row["blob"] if is_kept else None
    shape, strides = tuple(row["shape"]), tuple(row["strides"])
    return Weight(name, dtype, shape, strides, member, row["offset"] * dtype.itemsize)
