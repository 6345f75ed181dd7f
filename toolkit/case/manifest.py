"""The manifest of a case folder: the case's settings, its provenance, and the list of its files.

Plain data, declared as a schema. Paths under the home folder are written with `~`; of the
environment only the variables of an exact list are recorded. `store` writes graphs and values.
"""

import hashlib
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal, cast

import torch
from pydantic import AfterValidator, Field

from ctk.compiler.errors import CaseError, NoSuchCase, NotHeld
from ctk.compiler.options.choices import InputsMode
from ctk.toolkit.case.case import Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.bounded_file import check_nbytes, check_no_link
from ctk.toolkit.case.formats.checked_types import Line, Module, Sha256, Spec, Symbol
from ctk.toolkit.case.formats.files import replace_file
from ctk.toolkit.case.formats.limits import FILES, GRAPH_NBYTES, NAME_LENGTH, memory_nbytes
from ctk.toolkit.case.formats.plain_text import quote_value, words
from ctk.toolkit.case.formats.safetensors_file import check_header
from ctk.toolkit.case.formats.schema import document, encode, read_document
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.case.formats.strict_json import Json, dump_json
from ctk.toolkit.case.graphs.process_groups import ProcessGroup
from ctk.toolkit.case.roles import Role

SCHEMA: Final = 2
"""Incremented when an older and this version of ctk could misread each other's cases."""

MANIFEST, GRAPH, INPUTS = "manifest.json", "graph.json", "inputs.json"
VALUES = ".safetensors"
"""Files of this kind hold weights, and may be as large as the memory."""

_DAMAGED = (
    "the folder is half-written or damaged: copy it again, or capture again with CTK_DUMP=DIR"
)


def _check_path(name: str) -> str:
    """Return a path in the folder; raise `ValueError` if it leads out, or has odd characters."""
    path = PurePosixPath(name)
    plain = re.fullmatch(r"[\w.+ -]+(/[\w.+ -]+)*", name)
    if len(name) <= NAME_LENGTH and plain and not path.is_absolute() and ".." not in path.parts:
        return name
    raise ValueError(f"{quote_value(name)} leads out of the case folder, or is not a plain path")


FileName = Annotated[str, AfterValidator(_check_path)]
"""A path inside the case folder, with `/`."""


@document
@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and SHA-256 of a file of the folder."""

    nbytes: int
    sha256: Sha256


@document
@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a case; nothing secret (see `select_recorded_variables`)."""

    created: Line
    ctk: Line
    torch: Line
    python: Line
    platform: Line
    environment: Mapping[Line, Line]


@document
@dataclass(frozen=True, slots=True)
class Manifest:
    """The document `manifest.json`; the fields of a `Case` are as there.

    Attributes:
        target: A file of the user is named by its copy: `sources/my.py:backend`.
        config: Options that differ from the target's defaults; files as in `target`.
        inputs: How values were kept.
        symbols: Hint of each symbol.
        synthetic: Inputs and constants whose values are not the program's own.
        imports: Modules that loading must import, if the user allows it, and files among `sources`
            that it must run: they register operators.
        groups: Process groups of its collectives, by name.
        sources: Files of the user that were copied into the folder, relative to it.
        files: Every file that was written, relative to the folder.
    """

    name: Line
    target: Spec
    config: Mapping[str, object]
    modes: Modes
    signature: Signature | None
    inputs: InputsMode
    dynamic: Mapping[Line, tuple[Symbol | None, ...]]
    symbols: Mapping[Symbol, object]
    synthetic: tuple[Line, ...]
    roles: Mapping[Line, Role]
    imports: tuple[Module, ...]
    sources: tuple[FileName, ...]
    files: Annotated[Mapping[FileName, FileRecord], Field(max_length=FILES)]
    provenance: Provenance
    groups: Mapping[Line, ProcessGroup] = field(default_factory=dict[str, ProcessGroup])
    schema: Literal[2] = SCHEMA


RECORDED = words("""
    CTK_CHECK CTK_CHECK_EVERY CTK_CHECK_WHEN CTK_RING CTK_ON_FAILURE CTK_INPUTS CTK_FUEL
    CTK_DISABLE CTK_QUOTA RANK WORLD_SIZE LOCAL_RANK
    OMP_NUM_THREADS CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG PYTHONHASHSEED TORCHDYNAMO_DISABLE
""")
"""The variables whose values a dump records, by exact name: a pattern could match tokens."""


def select_recorded_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the listed variables that are set."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in RECORDED if name in source}


def make_provenance() -> Provenance:
    """Return the provenance of a case that is written now."""
    return Provenance(
        created=now(),
        ctk=ctk_version(),
        torch=torch.__version__,
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        environment=select_recorded_variables(),
    )


def now() -> str:
    """Return the time as provenance records it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def ctk_version() -> str:
    """Return the version of the installed distribution, or `unknown` in a bare checkout."""
    try:
        return version("ctk")
    except PackageNotFoundError:
        return "unknown"


# --- writing ------------------------------------------------------------------------------------


def write_manifest(manifest: Manifest, folder: Path, *, exact: bool = False) -> None:
    """Write `manifest.json` in one step, scrubbed unless `exact`."""
    data = encode(manifest)
    data = data if exact else cast("Json", map_strings(data, scrub))
    data = {"schema": data.pop("schema"), **data}
    replace_file(folder / MANIFEST, dump_json(data).encode())


def map_strings(value: object, change: Callable[[str], str], where: str = "config") -> object:
    """Return a JSON value with each of its strings changed, keys excepted; tuples become lists.

    Raises:
        CaseError: It is not a JSON value; the message names `where` and the place in it.
    """
    if isinstance(value, str | Path):
        return change(str(value))
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, tuple | list):
        parts = enumerate(cast("tuple[object, ...]", value))
        return [map_strings(part, change, f"{where}[{index}]") for index, part in parts]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {str(key): map_strings(item, change, f"{where}.{key}") for key, item in pairs}
    raise NotHeld(
        f"{where} is {value!r}, which a manifest cannot hold; name functions as 'module:function', "
        "and write other values as numbers, strings, lists or dicts"
    )


def file_record(path: Path) -> FileRecord:
    """Return size and hash of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return FileRecord(path.stat().st_size, digest.hexdigest())


# --- reading ------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a case folder; cheap, and imports nothing.

    Raises:
        CaseError: It is missing, damaged, or was written by another ctk.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise NoSuchCase(f"{folder} has no {MANIFEST}: it is not a case, or {_DAMAGED}")
    return read_document(Manifest, path, next_step=_DAMAGED, schema=SCHEMA)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Check that every file of the manifest is there, unchanged, and that no other source is.

    Raises:
        CaseError: A file is missing, changed, or lies behind a link; or a source is not listed (a
            listed one could import it).
    """
    _check_listed(folder, manifest)
    for name, wanted in manifest.files.items():
        path = folder / name
        check_no_link(folder, path)
        if not path.is_file():
            raise CaseError(f"{folder}: file {name} is missing; {_DAMAGED}")
        nbytes = path.stat().st_size
        check_nbytes(path, nbytes, memory_nbytes() if path.suffix == VALUES else GRAPH_NBYTES)
        if nbytes != wanted.nbytes:
            raise CaseError(
                f"{folder}: file {name} has {nbytes} bytes, the manifest lists {wanted.nbytes}; "
                f"{_DAMAGED}"
            )
        if path.suffix == VALUES:
            check_header(path)  # before hashing, which takes minutes for a hole of many gigabytes
        if file_record(path) != wanted:
            raise CaseError(
                f"{folder}: file {name} was changed after the case was written (its SHA-256 "
                "differs); put the original back, or capture again"
            )


def _check_listed(folder: Path, manifest: Manifest) -> None:
    """Check that the manifest lists each file that is read of a case."""
    for name in (GRAPH, INPUTS, *manifest.sources):
        if name not in manifest.files:
            raise CaseError(f"{folder}: the manifest does not list {name}; {_DAMAGED}")
    for path in (folder / "sources").rglob("*"):
        name = path.relative_to(folder).as_posix()
        is_cache = "__pycache__" in path.parts  # Python writes it beside a source that was run
        if not path.is_dir() and not is_cache and name not in manifest.files:
            raise CaseError(f"{folder}: the manifest does not list {name}: remove it")
