"""A kernel of Triton as data: machine code, and the sizes and addresses that each is for.

A layout that is made for some sizes is right for all smaller ones. So a kernel whose sizes vary has
a plan for the expected sizes, some for each sixteen times as large, and one for the largest. All
sizes grow together: a call with one size far above the expected one gets a plan for large sizes,
which is right, but slower than necessary.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ctk.compiler.codegen.triton.c_launcher_library import launcher_library
from ctk.compiler.codegen.triton.layout import Layout
from ctk.compiler.codegen.triton.variants import Variants
from ctk.compiler.lowering.ir import Buffer
from ctk.compiler.runtime.stored_kernels import StoredKernel
from ctk.compiler.runtime.values import size_json

_STEPS = 4
_FACTOR = 16
_UNKNOWN = 2**31


def bounds_of(
    symbols: Sequence[str], expected: Mapping[str, int], largest: Mapping[str, int | None]
) -> list[tuple[int | None, ...]]:
    """Return up to which sizes each plan goes, in order; None: any size."""
    if not symbols:
        return [()]
    found: list[tuple[int | None, ...]] = []
    for step in range(_STEPS):
        bounds = tuple(
            min(_power(expected.get(name, 1024)) * _FACTOR**step, largest.get(name) or _UNKNOWN)
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
) -> StoredKernel:
    """Return a kernel as data for a capability (90 for 9.0); compiles missing variants."""
    symbols = [symbol.name for symbol in variants.arguments.symbols]
    blobs: dict[str, bytes | memoryview] = {}
    plans: list[Any] = []
    before: list[tuple[Variants, Layout]] | None = None
    for bound in bounds:
        parts, between = [variants], dict[str, Buffer]()
        if None not in bound:  # a part walks a chunk to its end, and that would be endless
            parts, between = variants.parts_for(tuple(n for n in bound if n is not None))
        chosen = [(part, _layout(part, variants, bound)) for part in parts]
        if chosen == before:
            plans[-1]["bounds"] = list(bound)  # the same, and it goes further
            continue
        before = chosen
        places = [*variants.arguments.buffers, *symbols, *between]
        launches = [_launch(part, layout, places, capability, blobs) for part, layout in chosen]
        memory = [
            [size_json(buffer.shape[0]), str(buffer.dtype).removeprefix("torch.")]
            for buffer in between.values()
        ]
        plans.append({"bounds": list(bound), "memory": memory, "launches": launches})
    launcher = launcher_library()
    if launcher is not None:
        blobs[f"{launcher.digest}.so"] = launcher.binary
    data = {
        "launcher": None if launcher is None else f"{launcher.digest}.so",
        "kernel": variants.kernel.name,
        "device": variants.kernel.device.index or 0,
        "pointers": len(variants.arguments.buffers),
        "symbols": symbols,
        "plans": plans,
    }
    return StoredKernel(data, blobs)


def _layout(part: Variants, whole: Variants, bounds: Sequence[int | None]) -> Layout:
    names = [symbol.name for symbol in whole.arguments.symbols]
    sizes = {n: _UNKNOWN if m is None else m for n, m in zip(names, bounds, strict=True)}
    return part.layout_for(tuple(sizes[symbol.name] for symbol in part.arguments.symbols))


def _launch(
    part: Variants,
    layout: Layout,
    places: Sequence[str],
    capability: int,
    blobs: dict[str, bytes | memoryview],
) -> dict[str, Any]:
    """Return the launch of a part; its arguments are numbers of the whole kernel's places.

    Its code is for addresses that are multiples of 16: the launcher copies other tensors.
    """
    own = [symbol.name for symbol in part.arguments.symbols]
    names = [*part.arguments.buffers, *own]
    pointers = len(part.arguments.buffers)
    aligned = (True,) * pointers + (False,) * len(own)
    code = part.compiled(layout, aligned, capability)
    cubin = f"{hashlib.sha256(code.cubin).hexdigest()}.cubin"
    blobs[cubin] = code.cubin
    return {
        "grid": [[size_json(axis.numel), axis.block] for axis in layout.grid],
        "arguments": [places.index(name) for name in names],
        "pointers": pointers,
        "written": len(part.arguments.written),
        "types": list(part.argument_types(layout)),
        "code": {
            "cubin": cubin,
            "name": code.name,
            "shared": code.shared,
            "threads": code.threads,
            "hidden": code.hidden,
        },
    }
