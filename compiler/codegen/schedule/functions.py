"""The Python function around the kernels of a unit: it makes memory, launches, and returns.

    def softmax(x, s0):
        softmax = _ctk_empty((s0, 8), (8, 1), _ctk_float32)
        _ctk_launch_0(softmax.data_ptr(), x.data_ptr(), s0)
        return softmax

It is generated as text, because a call of a graph is a few of these and each instruction counts.
What it calls begins with `_ctk_`: nodes may be called `empty`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator
from ctk.compiler.codegen.schedule.units import Unit
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.index import Index
from ctk.compiler.lowering.ir import Buffer, Program
from ctk.compiler.lowering.sizes import python_text, symbols_of
from ctk.compiler.torch_compat import allocate

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """What the function of a unit takes and returns.

    Attributes:
        inputs: Buffers that exist: those that it reads, those of others that it writes, and those
            whose memory it uses.
        symbols: Names of sizes, behind the buffers.
        results: The name of each result's node, and its buffer.
    """

    inputs: tuple[str, ...]
    symbols: tuple[str, ...]
    results: tuple[tuple[str, str], ...]


def signature_of(unit: Unit, program: Program) -> Signature:
    """Return what the function of a unit takes and returns."""
    buffers = program.buffers
    existing = [name for name in unit.stores if buffers[name].role != "kernel"]
    made = [buffers[n] for n in (*unit.stores, *unit.temporary) if buffers[n].role == "kernel"]
    reused = [each.memory for each in made if each.memory]
    inputs = tuple(dict.fromkeys((*existing, *unit.reads, *reused)))
    own = {each.name for each in made}
    sizes = [size for each in made for size in (*each.shape, *each.strides)]
    symbols = {s.name for s in symbols_of(sizes)}
    symbols |= {s.name for kernel in unit.kernels for s in arguments_of(kernel).symbols}
    origins = {store.buffer: store.origin for kernel in unit.kernels for store in kernel.stores}
    results = tuple((n if n in own else origins[n], n) for n in unit.stores)
    return Signature(tuple(n for n in inputs if n not in own), tuple(sorted(symbols)), results)


def function_of(
    unit: Unit,
    program: Program,
    signature: Signature,
    generator: Generator,
) -> FunctionType:
    """Return the function that runs a unit, without its kernels: `bind` gives it those.

    It returns the unit's value, or a tuple of several.
    """
    names: dict[str, Any] = {"_ctk_view": allocate.in_memory_of}
    lines = [f"def {_identifier(unit.name)}({', '.join(_arguments(signature))}):"]
    for name in (*unit.stores, *unit.temporary):
        buffer = program.buffers[name]
        if buffer.role == "kernel":
            lines.append(f"    {_identifier(name)} = {_allocation(buffer, names)}")
    for number, kernel in enumerate(unit.kernels):
        arguments = arguments_of(kernel)
        passed = [_passed(buffer, generator) for buffer in arguments.buffers]
        passed += [symbol.name for symbol in arguments.symbols]
        lines.append(f"    _ctk_launch_{number}({', '.join(passed)})")
    lines.append(f"    return {', '.join(_identifier(buffer) for _, buffer in signature.results)}")
    return make_function("\n".join(lines), _identifier(unit.name), names)


def bind(run: FunctionType, compiled: Sequence[CompiledKernel]) -> None:
    """Give the function of a unit its kernels."""
    run.__globals__.update({f"_ctk_launch_{n}": each.launch for n, each in enumerate(compiled)})


def make_function(text: str, name: str, names: Mapping[str, Any]) -> FunctionType:
    """Return the function that a generated text defines."""
    scope = dict(names)
    exec(compile(text, f"<ctk {name}>", "exec"), scope)  # text of our own
    function = scope[name]
    function.__module__ = "ctk_kernels"
    return function


def _arguments(signature: Signature) -> list[str]:
    return [*map(_identifier, signature.inputs), *signature.symbols]


def _allocation(buffer: Buffer, names: dict[str, Any]) -> str:
    shape, strides = _tuple(buffer.shape), _tuple(buffer.strides)
    dtype = f"_ctk_{str(buffer.dtype)[6:]}"
    names[dtype] = buffer.dtype
    if buffer.memory:
        return f"_ctk_view({_identifier(buffer.memory)}, {shape}, {strides}, {dtype})"
    device = buffer.device
    if device.type == "cpu":
        names["_ctk_empty"] = allocate.empty_on_cpu()
        return f"_ctk_empty({shape}, {strides}, {dtype})"
    place = f"_ctk_{device.type}_{device.index}"
    names["_ctk_empty_on"], names[place] = allocate.empty, device
    return f"_ctk_empty_on({shape}, {strides}, {dtype}, {place})"


def _passed(buffer: str, generator: Generator) -> str:
    name = _identifier(buffer)
    return f"{name}.data_ptr()" if generator.takes == "address" else name


def _identifier(name: str) -> str:
    return name.replace(".", "__")


def _tuple(sizes: Sequence[Index]) -> str:
    return f"({''.join(python_text(size) + ', ' for size in sizes)})"
