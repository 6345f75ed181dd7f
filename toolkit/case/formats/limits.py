"""Limits on the size of untrusted documents, with their reasons.

Each is checked before the bounded object is built, so that a hostile case fails fast. They are far
above real programs: the largest captured graphs have 20,000 nodes. Weights are limited by the
memory of the machine only.
"""

from ctk.compiler.errors import CaseError
from ctk.compiler.posix import address_limit_nbytes, memory_of_machine
from ctk.toolkit.processes.memory import free_nbytes

GRAPH_NBYTES = 64 << 20
"""`graph.json` and `inputs.json`: 20,000 nodes with long shapes take about 15 MB."""

DOCUMENT_NBYTES = 4 << 20
"""Other documents (`manifest.json`, `diagnosis.json`): real ones have a few kB."""

CERTIFICATE_NBYTES = 16 << 20
"""`certificate.json`: some hundred bytes for each of at most 10,000 edits."""

TRACE_NBYTES = 32 << 20
"""`trace.json`: that of a transformer of 12 layers with its backward has about 2 MB."""

TRACE_NODES = 5_000_000
"""Nodes of all graphs of a trace together, rebuilt."""

EVENTS_NBYTES = 64 << 20
"""`events.jsonl`: a line has about 200 bytes, a compile makes some thousands."""

TEXT_NBYTES = 16 << 20
"""A displayed text (`graph.py`, the diff of a pass), and a source file of the user."""

HEADER_NBYTES = 16 << 20
"""The header of a safetensors file: about 100 bytes per tensor."""

DEPTH = 100
"""Nesting of JSON; Python's own parser, which reads FX's code, ends at 200."""

BRACKETS = 16_000_000
"""Brackets of a JSON text; a node of a graph has about 30."""

NODES = 100_000
"""Nodes of a graph, sub-graphs included."""

TENSORS = 100_000
"""Entries of a tensor index, and of a safetensors header."""

FILES = 10_000
"""Files that a manifest lists."""

FOLDERS = 20_000
"""Folders that a listing visits; a dump of a long training run has some hundreds."""

LINE_NBYTES = 1 << 20
"""A line of `events.jsonl`; a longer one is skipped."""

EVENTS = 50_000
"""Passes, or kernels, that are read from one `events.jsonl`."""

DIGITS = 64
"""Digits of a number in JSON: the time that `int` takes grows with their square."""

NAME_LENGTH = 1_000
"""Characters of a name: node, attribute, file, operator, symbol."""

TEXT_LENGTH = 100_000
"""Characters of a string in a manifest: a target, an option, the message of an exception."""

DIMENSIONS = 64
"""Dimensions of a tensor; torch's own iterators end there."""

INT64 = range(-(1 << 63), 1 << 63)
"""Range of a size, a stride, an offset or an element in torch."""

INT_BITS = 1 << 20
"""Bits of a number that a graph may compute with Python's integers (torch has 64)."""

SEQUENCE = 1_000_000
"""Elements of a list, tuple or range that a graph may make."""


def memory_nbytes() -> int:
    """Return the bytes that this process can use: the free memory, or its own limit if smaller.

    If the system does not report free memory, all memory counts as free.
    """
    free = free_nbytes()
    free = memory_of_machine() if free is None else free
    limit = address_limit_nbytes()
    return free if limit is None else min(free, limit)


def check_at_most(size: int, limit: int, subject: str) -> None:
    """Raise `CaseError` if a size or count is larger than a limit."""
    if size > limit:
        raise CaseError(f"{subject}: {size:,}, more than the {limit:,} that ctk takes")
