"""Results of one side of a program as a file: numbers and texts as JSON, tensors as their memory.

    write_values({"calls": pack(played)}, path)      ->    unpack(read_values(path)["calls"])

It is not a pickle: reading it runs nothing. Tensors keep dtype, shape and strides, and come back on
the CPU, dense; a tensor of a class of its own comes back as its plain parts. Other values come back
as texts, by which two sides can be compared.
"""

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from ctk.compiler.fx.clone import extent
from ctk.repro_templates.graph.exceptions import Raised
from ctk.repro_templates.graph.running import Run
from ctk.repro_templates.numbers.layout import Layout
from ctk.repro_templates.numbers.plain_parts import take_apart
from ctk.repro_templates.program.program_play import Played

LONGEST_BITS = 10_000
"""Bits of an int that is written in decimal: Python refuses to read longer ones."""


def pack(calls: Sequence[Played]) -> tuple[object, ...]:
    """Return the results of calls as nested tuples of numbers, texts and tensors."""
    return tuple(pack_call(call) for call in calls)


def unpack(calls: Any) -> list[Played]:
    """Return the calls that `packed` packed, without the exceptions themselves."""
    return [unpack_call(*call) for call in calls]


def pack_call(call: Played) -> tuple[object, ...]:
    """Return the results of one call as nested tuples."""
    run, error = call.run, call.error
    said = None if error is None else (error.name, error.message, error.is_check, error.is_own)
    layout = (tuple(run.layout.shared), tuple(run.layout.differentiable))
    values = tuple(run.values.items())
    pairs = values, run.generators, run.drew_random, run.is_seeded, run.allocated
    tape = None if call.tape is None else tuple(call.tape)
    rest = (call.is_compiling, call.drew, tape, call.more, call.touches)
    return pairs, layout, call.form, said, *rest


def unpack_call(pairs: Any, layout: Any, form: str, said: Any, *rest: Any) -> Played:
    """Return the call that `packed_call` packed."""
    values, generators, drew_random, is_seeded, allocated = pairs
    lays = Layout(*map(frozenset, layout))
    run = Run(dict(values), generators, drew_random, is_seeded, lays, tuple(allocated))
    error = None if said is None else Raised(*said)
    is_compiling, drew, tape, more, touches = rest
    tape = None if tape is None else list(tape)
    return Played(run, form, error, is_compiling, drew, tape, more, tuple(touches))


def write_values(values: Mapping[str, object], path: Path) -> None:
    """Write values by name."""
    memory: list[bytes] = []
    entries = {name: entry_of(value, memory) for name, value in take_apart(values).items()}
    header = json.dumps(entries).encode()
    path.write_bytes(b"".join((str(len(header)).encode(), b"\n", header, *memory)))


def read_values(path: Path) -> dict[str, Any]:
    """Read the values that `write_values` wrote."""
    length, _, rest = path.read_bytes().partition(b"\n")
    entries: dict[str, Any] = json.loads(rest[: int(length)])
    memory = memoryview(rest)[int(length) :]  # a slice of bytes would copy the rest per tensor
    values: dict[str, Any] = {}
    for name, entry in entries.items():
        values[name], memory = value_of(entry, memory)
    return values


def entry_of(value: object, memory: list[bytes]) -> dict[str, Any]:
    """Return the JSON form of a value; the bytes of a tensor are added to `memory`."""
    if isinstance(value, torch.Tensor):
        return tensor_entry(value, memory)
    if isinstance(value, int) and abs(value).bit_length() > LONGEST_BITS:
        return {"value": f"int {value:#x}"}
    if value is None or isinstance(value, (bool, int, str)):
        return {"value": value}
    if isinstance(value, float):
        return {"float": float.__repr__(value)}  # numpy's floats have a `repr` of their own
    if isinstance(value, complex):
        return {"complex": [float.__repr__(each) for each in (value.real, value.imag)]}
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return {"items": [entry_of(item, memory) for item in items]}
    return {"value": f"{type(value).__name__} {value!r}"}


def tensor_entry(tensor: torch.Tensor, memory: list[bytes]) -> dict[str, Any]:
    """Return the JSON form of a tensor; a text for one without memory."""
    if tensor.device.type == "meta":
        return {"value": f"a meta tensor {tuple(tensor.shape)}, {tensor.dtype}"}
    plain = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
    plain = plain if plain.layout is torch.strided else plain.to_dense()
    plain = plain.cpu().resolve_conj().resolve_neg()
    if type(plain) is not torch.Tensor:
        return {"value": f"{type(plain).__name__} {plain}"}
    count = extent(plain.shape, plain.stride())
    data = ctypes.string_at(plain.data_ptr(), count * plain.itemsize) if count else b""
    memory.append(data)
    dtype = str(plain.dtype).removeprefix("torch.")
    shape, stride = list(plain.shape), list(plain.stride())
    return {"dtype": dtype, "shape": shape, "stride": stride, "nbytes": len(data)}


def value_of(entry: Mapping[str, Any], memory: memoryview) -> tuple[Any, memoryview]:
    """Return a value, and the rest of the memory of tensors."""
    if "float" in entry:
        return float(entry["float"]), memory
    if "complex" in entry:
        return complex(*map(float, entry["complex"])), memory
    if "items" in entry:
        found: list[Any] = []
        for each in entry["items"]:
            value, memory = value_of(each, memory)
            found.append(value)
        return tuple(found), memory
    if "dtype" not in entry:
        return entry["value"], memory
    dtype, data = getattr(torch, entry["dtype"]), memory[: entry["nbytes"]]
    if not data:
        return torch.empty(entry["shape"], dtype=dtype, device="cpu"), memory
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype)
    return flat.as_strided(entry["shape"], entry["stride"]), memory[entry["nbytes"] :]
