"""A kernel of Triton as data: which machine code runs for which sizes and addresses.

A layout that is made for some sizes is right for all smaller ones. So a kernel whose sizes vary has
a plan for the sizes that are expected, and for each four times as large, up to the largest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ctk.compiler.codegen.triton.variants import Variants
from ctk.compiler.runtime.stored import StoredKernel
from ctk.compiler.runtime.values import size_json

_STEPS = 4
_UNKNOWN = 2**31


def bounds_of(
    symbols: Sequence[str], expected: Mapping[str, int], largest: Mapping[str, int | None]
) -> list[tuple[int | None, ...]]:
    """Return up to which sizes each plan goes, in order; None: any size.

    Args:
        symbols: Names of the sizes.
        expected: The values that they had when the graph was traced, as far as known.
        largest: Their largest values; None: there is none.
    """
    if not symbols:
        return [()]
    found: list[tuple[int | None, ...]] = []
    for step in range(_STEPS):
        bounds = tuple(
            min(_power(expected.get(name, 1024)) * 4**step, largest.get(name) or _UNKNOWN)
            for name in symbols
        )
        found.append(bounds)
    last = tuple(largest.get(name) for name in symbols)
    return [*dict.fromkeys(each for each in found if each != last), last]


def _power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def stored_kernel(
    variants: Variants,
    bounds: Sequence[tuple[int | None, ...]],
    capability: int,
    *,
    every_alignment: bool,
) -> StoredKernel:
    """Return a kernel as data; what is not compiled yet is compiled.

    Args:
        variants: The kernel.
        bounds: Of `bounds_of`.
        capability: Of the device, 90 for 9.0.
        every_alignment: Code for arguments that are not aligned, too.
    """
    blobs: dict[str, bytes | memoryview] = {}
    plans: list[Any] = []
    for each in bounds:
        sizes = tuple(_UNKNOWN if bound is None else bound for bound in each)
        plan = _plan(variants, sizes, capability, blobs, every_alignment=every_alignment)
        if plans and plans[-1]["launches"] == plan["launches"]:
            plans.pop()  # the same, and it goes further
        plans.append({"bounds": list(each), **plan})
    data = {
        "kernel": variants.kernel.name,
        "device": variants.kernel.device.index or 0,
        "pointers": len(variants.arguments.buffers),
        "symbols": [symbol.name for symbol in variants.arguments.symbols],
        "plans": plans,
    }
    return StoredKernel(data, blobs)


def _plan(
    variants: Variants,
    sizes: tuple[int, ...],
    capability: int,
    blobs: dict[str, bytes | memoryview],
    *,
    every_alignment: bool,
) -> dict[str, Any]:
    symbols = [symbol.name for symbol in variants.arguments.symbols]
    values = dict(zip(symbols, sizes, strict=True))
    parts, between = variants.parts_for(sizes)
    places = [*variants.arguments.buffers, *symbols, *between]
    launches: list[Any] = []
    for part in parts:
        own = [symbol.name for symbol in part.arguments.symbols]
        layout = part.layout_for(tuple(values[name] for name in own))
        names = [*part.arguments.buffers, *own]
        pointers = len(part.arguments.buffers)
        alignments = [(True,) * pointers + (False,) * len(own)]
        if every_alignment:
            alignments.append((False,) * len(names))
        launches.append(
            {
                "grid": [[size_json(axis.numel), axis.block] for axis in layout.grid],
                "arguments": [places.index(name) for name in names],
                "pointers": pointers,
                "written": len(part.arguments.written),
                "types": list(part.argument_types(layout)),
                "variants": [
                    _variant(part, layout, aligned, capability, blobs) for aligned in alignments
                ],
            }
        )
    memory = [
        [size_json(buffer.shape[0]), str(buffer.dtype).removeprefix("torch.")]
        for buffer in between.values()
    ]
    return {"memory": memory, "launches": launches}


def _variant(
    part: Variants,
    layout: Any,
    aligned: tuple[bool, ...],
    capability: int,
    blobs: dict[str, bytes | memoryview],
) -> dict[str, Any]:
    binary = part.compiled(layout, aligned, capability)
    name = f"{hashlib.sha256(binary.code.cubin).hexdigest()}.cubin"
    blobs[name] = binary.code.cubin
    code = binary.code
    return {
        "aligned": list(aligned),
        "cubin": name,
        "name": code.name,
        "shared": code.shared,
        "threads": code.threads,
        "hidden": code.hidden,
    }
