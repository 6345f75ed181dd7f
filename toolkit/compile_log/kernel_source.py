"""The lines of a generated kernel that compute one value: its store and the operands of it.

Inductor writes one statement per operation, `tmp3 = tmp1 + tmp2`, in C++ and in Triton, so a walk
upwards from the store over the names that a statement uses finds the computation:

    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (x0), xmask)      <- of another value: left out, shown as ...
    tmp2 = tl_math.abs(tmp0)
    tl.store(out_ptr0 + (x0), tmp2, xmask)     <- the store of the requested value

It does not parse the language: a statement that spans lines shows its first line only.
"""

import re
from collections.abc import Iterator, Sequence

from ctk.compiler.observe import KernelRecord

MAX_LINES = 24
_TEMPORARY = re.compile(r"\btmp\w*")


def excerpt(record: KernelRecord, node: str) -> str:
    """Return the lines of a kernel that compute a node, under the kernel's name, numbered.

    The whole body, up to `MAX_LINES`, if the name of the node's store is unknown.
    """
    lines = _lines_of(record)
    wanted = find_lines(record, node)
    wanted = wanted or [i for i, line in enumerate(lines) if _TEMPORARY.search(line)]
    if not wanted:
        return ""
    return "\n".join([str(record.id), *_number_lines(lines, wanted[-MAX_LINES:])])


def find_lines(record: KernelRecord, node: str) -> list[int]:
    """Return the lines of a kernel that compute a node, from 0; none if its store is unknown."""
    lines = _lines_of(record)
    pointer = record.stores.get(node)
    stores = [i for i, line in enumerate(lines) if pointer and _is_store(line, pointer)]
    return sorted({i for store in stores[:2] for i in _slice(lines, store)})


def _lines_of(record: KernelRecord) -> list[str]:
    return (record.source or "").split("\n")


def _is_store(line: str, pointer: str) -> bool:
    """Return whether a line writes through a pointer.

    Cases: `tl.store(out_ptr0 + ...`, `tmp1.store(out_ptr0 + ...`, `out_ptr0[...] = tmp1;`,
    `atomic_add(&out_ptr0[...], tmp1)`, `tl.atomic_add(out_ptr0 + ...`.
    """
    name = re.escape(pointer)
    is_call = re.search(rf"(store\w*|atomic_\w+)\(.*\b{name}\b", line)
    return bool(is_call or re.search(rf"\b{name}\[.*\]\s*[-+*|&]?=[^=]", line))


def _slice(lines: Sequence[str], store: int) -> Iterator[int]:
    """Yield the lines that a store depends on, from the bottom up."""
    needed = set(_TEMPORARY.findall(lines[store]))
    yield store
    for index in range(store - 1, -1, -1):
        made = re.match(r"[\s\w:<>,*&]*?\b(tmp\w*)\s*(?:[-+*|&]?=[^=]|;)", lines[index])
        if made is None or made[1] not in needed:
            continue
        needed |= set(_TEMPORARY.findall(lines[index]))
        yield index


def _number_lines(lines: Sequence[str], wanted: Sequence[int]) -> Iterator[str]:
    indent = min(len(lines[i]) - len(lines[i].lstrip()) for i in wanted)
    before = wanted[0] - 1
    for index in wanted:
        if index != before + 1:
            yield "      ..."
        yield f"{index + 1:5} {lines[index][indent:].rstrip()}"
        before = index
