"""Compare two cases on disk: their graphs, their inputs, and how they are compiled.

It compares the files that ctk loads (`graph.json`, not the `graph.py` for people) without building
a graph, and runs and imports no code of a case.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from torch import Tensor

from ctk.compiler.errors import count_of
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.formats.limits import GRAPH_NBYTES
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.safetensors_file import load_arrays
from ctk.toolkit.case.formats.schema import convert, encode, read_document
from ctk.toolkit.case.formats.strict_json import Json, member, read_json
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.graphs.json_listing import Row, argument_text, rows_of
from ctk.toolkit.case.inputs import Inputs
from ctk.toolkit.case.linked_case import linked_arrays
from ctk.toolkit.case.manifest import GRAPH, INPUTS, Manifest, check_files, read_manifest
from ctk.toolkit.case.store import CONSTANTS, VALUES
from ctk.toolkit.case.tensor_comparison import NOTHING, CaseDifference, StoredValues, compare_stored

_NEXT = "copy the folder again"
_SETTINGS = ("target", "config", "modes", "dynamic", "roles")
_SHOWN = 300
"""Characters of a fact about a node that its line does not show."""


@dataclass(frozen=True, slots=True)
class CaseDiff:
    """The differences between two cases.

    Attributes:
        graph: Unified diff of the graphs as text, without its head; empty if they are equal.
        facts: Of nodes with equal lines, such as recorded strides.
        settings: One for each of target, options, modes, symbolic sizes, roles, sources of the
            user, recorded failure that differs.
    """

    graph: str
    facts: tuple[CaseDifference, ...]
    inputs: tuple[CaseDifference, ...]
    constants: tuple[CaseDifference, ...]
    settings: tuple[CaseDifference, ...]

    @property
    def rows(self) -> tuple[CaseDifference, ...]:
        """All but the lines of the graph."""
        return (*self.settings, *self.inputs, *self.constants, *self.facts)

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.graph or self.rows)

    def __str__(self) -> str:
        lines = [line for line in self.graph.splitlines() if line[:1] in ("+", "-")]
        parts = [f"{count_of(len(lines), 'line')} of the graph"] if lines else []
        parts += [f"input {each.what}" for each in self.inputs]
        parts += [f"constant {constant.what}" for constant in self.constants]
        parts += [each.what for each in (*self.settings, *self.facts)]
        return ", ".join(parts)


def compare_cases(left: Path, right: Path) -> CaseDiff:
    """Return the differences between the cases in two folders.

    Raises:
        CaseError: A folder is not a case, or a file of it is missing, damaged or changed.
    """
    one, other = _CaseFiles.of(left), _CaseFiles.of(right)
    mine, others = one.rows, other.rows
    lines, other_lines = ([row.line for row in rows if row.line] for rows in (mine, others))
    diff = difflib.unified_diff(lines, other_lines, lineterm="", n=1)
    shown = list(diff)[2:]  # without the names of files
    return CaseDiff(
        graph="\n".join(line for line in shown if not line.startswith("@@")),
        facts=tuple(_facts(mine, others)),
        inputs=tuple(compare_stored(one.inputs, other.inputs)),
        constants=tuple(compare_stored(one.constants, other.constants)),
        settings=tuple(_settings(one.manifest, other.manifest)),
    )


@dataclass(frozen=True, slots=True)
class _CaseFiles:
    folder: Path
    manifest: Manifest
    graph: Json

    @classmethod
    def of(cls, given: Path) -> "_CaseFiles":
        folder = whole_case(given)
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        graph = read_json(folder / GRAPH, next_step=_NEXT, limit=GRAPH_NBYTES)
        return cls(folder, manifest, graph)

    @property
    def rows(self) -> list[Row]:
        return rows_of(self.graph)

    @property
    def inputs(self) -> StoredValues:
        path = self.folder / INPUTS
        found = read_document(Inputs, path, next_step=_NEXT, limit=GRAPH_NBYTES)
        others = {name: argument_text(value) for name, value in found.values.items()}
        names = dict.fromkeys(found.names).keys()
        arrays = {**self._arrays(VALUES), **linked_arrays(self.folder, self.manifest, found)}
        return StoredValues(path, names, others, found.tensors, arrays)

    @property
    def constants(self) -> StoredValues:
        listed = member(self.graph, "constants", dict, GRAPH)
        index = convert(TensorIndex, listed, where=f"{GRAPH}: constants")
        names = dict.fromkeys(sorted({*index.entries, *index.same})).keys()
        return StoredValues(self.folder / GRAPH, names, {}, index, self._arrays(CONSTANTS))

    def _arrays(self, name: str) -> Mapping[str, Tensor]:
        return load_arrays(self.folder / name) if name in self.manifest.files else {}


def _facts(left: list[Row], right: list[Row]) -> Iterator[CaseDifference]:
    others = {row.subject: row for row in right}
    for row in left:
        other = others.get(row.subject)
        if other is None or other.line != row.line:
            continue
        for key in dict.fromkeys([*row.data, *other.data]):
            mine, theirs = row.data.get(key), other.data.get(key)
            if mine != theirs:
                said = [one_line(json.dumps(each), _SHOWN) for each in (mine, theirs)]
                yield CaseDifference(one_line(f"{key} of {row.subject}"), *said)


def _settings(left: Manifest, right: Manifest) -> Iterator[CaseDifference]:
    """Yield the settings that differ; options and modes one by one."""
    mine, others = encode(left), encode(right)
    for name in _SETTINGS:
        one, other = _by_key(mine[name]), _by_key(others[name])
        for key in dict.fromkeys([*one, *other]):
            if one.get(key) != other.get(key):
                what = f"{name}.{key}" if key else name
                said = [one_line(str(each.get(key, NOTHING))) for each in (one, other)]
                yield CaseDifference(one_line(what), *said)
    for name in dict.fromkeys([*left.sources, *right.sources]):
        records = [each.files.get(name) for each in (left, right)]
        if records[0] != records[1]:
            said = [f"{record.nbytes} bytes" if record else NOTHING for record in records]
            yield CaseDifference(one_line(name), said[0], said[1])
    if left.signature != right.signature:
        said = [str(each.signature or NOTHING) for each in (left, right)]
        yield CaseDifference("recorded failure", *map(one_line, said))


def _by_key(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"": value}
