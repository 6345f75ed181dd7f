"""Find the cases below a folder, half-written and damaged ones included, and describe each.

Reads manifests and sizes only: no graph is loaded, no hash verified and no module imported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case_replacement import is_part_of_case, whole_case
from ctk.toolkit.case.formats.files import is_partial
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.formats.limits import GRAPH_NBYTES
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.strict_json import Json, expect, items, member, read_json
from ctk.toolkit.case.manifest import GRAPH, MANIFEST, read_manifest

HALF_WRITTEN = "half-written: the process died, had no disk space left, or is still writing"

NOT_SAVED = "not_saved.txt"
"""Holds the reason why a watched program could not write the case."""

_LEFT_BEHIND = (NOT_SAVED, "events.jsonl")
"""Files of a graph's dump that may exist without its case."""

_REASON_NBYTES = 1000


@dataclass(frozen=True, slots=True)
class CaseEntry:
    """A case folder.

    Attributes:
        name: Label of the case; empty when its manifest cannot be read.
        failure: The recorded signature; None if the case was never judged to fail.
        call_nodes: Calls in the graph, sub-graphs included; None when unknown.
        age_seconds: Since it was written.
        problem: Why it cannot be used; None when it can.
    """

    path: Path
    name: str = ""
    target: str = ""
    failure: str | None = None
    call_nodes: int | None = None
    age_seconds: float = 0.0
    problem: str | None = None


def find_cases(walk: Walk) -> list[CaseEntry]:
    """Return the cases at or below a folder, by path."""
    return [describe(folder) for folder in _case_folders(walk)]


def _case_folders(walk: Walk) -> Iterator[Path]:
    """Yield folders that are cases or the start of one, without descending into them."""
    for folder, subfolders, files in walk:
        is_case = not {MANIFEST, GRAPH, *_LEFT_BEHIND}.isdisjoint(files)
        if is_case or any(map(is_part_of_case, subfolders)) or is_partial(folder):
            subfolders.clear()
            yield folder


def describe(folder: Path) -> CaseEntry:
    """Return the entry of a case; an error becomes its `problem`."""
    folder, outer = whole_case(folder), folder
    if is_partial(folder) or not (folder / MANIFEST).exists():
        return CaseEntry(outer, age_seconds=_age_of_file(folder), problem=_why_half(folder))
    try:
        manifest = read_manifest(folder)
    except CaseError as error:
        age = _age_of_file(folder / MANIFEST)
        return CaseEntry(outer, age_seconds=age, problem=one_line(first_line(error)))
    sizes = {name: record.nbytes for name, record in manifest.files.items()}
    return CaseEntry(
        outer,
        manifest.name,
        manifest.target,
        str(manifest.signature) if manifest.signature else None,
        count_calls(folder / GRAPH),
        _age(manifest.provenance.created, folder / MANIFEST),
        _damage(folder, sizes),
    )


def _why_half(folder: Path) -> str:
    """Return why a folder is not a whole case: the recorded reason, or the likely ones."""
    path = folder / NOT_SAVED
    if path.is_symlink():
        return HALF_WRITTEN
    try:
        with path.open("rb") as file:
            reason = file.read(_REASON_NBYTES).decode(errors="replace")
    except OSError:
        return HALF_WRITTEN
    return one_line(f"not saved: {reason.partition(chr(10))[0]}")


def _damage(folder: Path, sizes: dict[str, int]) -> str | None:
    for name, nbytes in sizes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != nbytes:
            return f"{name} has {path.stat().st_size} bytes instead of {nbytes}"
    return None


def count_calls(path: Path) -> int | None:
    """Return the call nodes of a `graph.json`, sub-graphs included; None if unreadable."""
    try:
        return _calls(read_json(path, next_step="", limit=GRAPH_NBYTES))
    except CaseError:
        return None


def _calls(graph: Json) -> int:
    nodes = items(graph, "nodes", dict, "graph")
    own = sum(str(node.get("op", "")).startswith("call_") for node in nodes)
    subgraphs = member(graph, "subgraphs", dict, "graph")
    return own + sum(_calls(expect(subgraph, dict, "graph")) for subgraph in subgraphs.values())


def _age(created: object, manifest: Path) -> float:
    try:
        written = datetime.fromisoformat(str(created))
        if written.tzinfo is None:
            written = written.replace(tzinfo=UTC)
        return max(0.0, (datetime.now(UTC) - written).total_seconds())
    except (ValueError, OverflowError):
        return _age_of_file(manifest)


def _age_of_file(path: Path) -> float:
    return max(0.0, datetime.now(UTC).timestamp() - path.stat().st_mtime)
