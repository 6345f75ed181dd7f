"""The manifest of a case folder: what it is, how to run it, and what else is in the folder.

Plain data; paths under the home folder are written with `~`, and of the environment only the
variables of an exact list are recorded. What it does not do: graphs and values (`store`).
"""

import dataclasses
import hashlib
import math
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, cast, get_args

import torch

from ctk.compiler.errors import CaseError, nearest
from ctk.toolkit.case.case import Autocast, Modes
from ctk.toolkit.case.environment import recorded_variables
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.formats.strict_json import Json, expect, items, member, optional, read_json

SCHEMA = 1
"""Raised whenever an older ctk could misread what this one writes."""

MANIFEST = "manifest.json"

_DAMAGED = (
    "the folder is half-written or damaged: copy it again, or capture again with CTK_DUMP=DIR"
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and SHA-256 of a file of the folder."""

    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `manifest.json` holds.

    Attributes:
        name: Label of the case.
        target: Target spec.
        config: Options that differ from the target's defaults.
        modes: Ambient modes.
        signature: The failure, if it was judged.
        inputs: How values were kept: `full`, `recipe` or `none`.
        dynamic: `Case.dynamic`.
        symbols: Hint of each symbol.
        synthetic: Inputs and constants whose values are not the program's own.
        imports: Modules that loading must import, if the user allows it.
        sources: Files of the user that were copied into the folder, relative to it.
        files: Every file that was written, relative to the folder.
        provenance: Who wrote it: versions, platform, environment, time.
    """

    name: str
    target: str
    config: Mapping[str, object]
    modes: Modes
    signature: Signature | None
    inputs: str
    dynamic: Mapping[str, tuple[str | None, ...]]
    symbols: Mapping[str, object]
    synthetic: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    files: Mapping[str, FileRecord] = field(default_factory=dict[str, FileRecord])
    provenance: Mapping[str, object] = field(default_factory=dict[str, object])


def make_provenance() -> Json:
    """Return who writes a case, where and when; nothing secret (see `recorded_variables`)."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "ctk": ctk_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "environment": recorded_variables(),
    }


def ctk_version() -> str:
    """Return the version of the installed distribution, or `unknown` in a bare checkout."""
    try:
        return version("ctk")
    except PackageNotFoundError:
        return "unknown"


# --- writing ------------------------------------------------------------------------------------


def manifest_to_json(manifest: Manifest) -> Json:
    """Return a manifest as JSON.

    Raises:
        CaseError: The config holds something that is no JSON value.
    """
    data: Json = {"schema": SCHEMA}
    for each in dataclasses.fields(manifest):
        value: object = getattr(manifest, each.name)
        if each.name == "files":
            value = {name: dataclasses.asdict(record) for name, record in manifest.files.items()}
        elif isinstance(value, Modes | Signature):
            value = dataclasses.asdict(value)
        data[each.name] = _json_value(value, each.name)
    return data


def _json_value(value: object, where: str) -> object:
    """Return a JSON value with tuples as lists and the home folder as `~`."""
    if isinstance(value, str):
        return shorten_home(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Path):
        return shorten_home(str(value))
    if isinstance(value, tuple | list):
        parts = enumerate(cast("tuple[object, ...]", value))
        return [_json_value(part, f"{where}[{index}]") for index, part in parts]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {str(key): _json_value(item, f"{where}.{key}") for key, item in pairs}
    raise CaseError(
        f"{where} is {value!r}, which a manifest cannot hold; name functions as 'module:function', "
        "and write other values as numbers, strings, lists or dicts"
    )


def shorten_home(text: str) -> str:
    """Replace the home folder at the start of paths in a text by `~`."""
    home = str(Path.home())
    if len(home) < 2:
        return text
    return re.sub(rf"(?<![\w.-]){re.escape(home)}(?=[/\\:'\"\s,)]|$)", "~", text)


def expand_home(value: Any) -> Any:
    """Undo `shorten_home` for paths in options: `~/passes.py:fold` names a file of this user."""
    if isinstance(value, str):
        return str(Path(value).expanduser()) if value.startswith("~/") else value
    if isinstance(value, list):
        return [expand_home(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: expand_home(item) for key, item in cast("dict[str, object]", value).items()}
    return value


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
        CaseError: It is missing, damaged, or was written by a newer ctk.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise CaseError(f"{folder} has no {MANIFEST}: it is no case, or {_DAMAGED}")
    data = read_json(path, next_step=_DAMAGED)
    where = MANIFEST
    schema = member(data, "schema", int, where)
    if schema > SCHEMA:
        raise CaseError(
            f"{folder}: the case was written by a newer ctk (schema {schema}, this ctk reads up to "
            f"{SCHEMA}): upgrade: pip install --upgrade ctk"
        )
    try:
        return _manifest_from_json(data, where)
    except CaseError as error:
        raise CaseError(f"{error}, in {folder}; {_DAMAGED}") from error
    except RecursionError as error:
        raise CaseError(f"{path} is nested too deeply to be real; {_DAMAGED}") from error


def _manifest_from_json(data: Json, where: str) -> Manifest:
    found = optional(data, "signature", dict, where)
    return Manifest(
        name=member(data, "name", str, where),
        target=expand_home(member(data, "target", str, where)),
        config=expand_home(member(data, "config", dict, where)),
        modes=_read_modes(member(data, "modes", dict, where), f"{where}.modes"),
        signature=None if found is None else _read_signature(found, f"{where}.signature"),
        inputs=member(data, "inputs", str, where),
        dynamic=_read_dynamic(member(data, "dynamic", dict, where), f"{where}.dynamic"),
        symbols=member(data, "symbols", dict, where),
        synthetic=tuple(items(data, "synthetic", str, where)),
        imports=tuple(items(data, "imports", str, where)),
        sources=tuple(_checked_path(s, where) for s in items(data, "sources", str, where)),
        files=_read_files(member(data, "files", dict, where), f"{where}.files"),
        provenance=member(data, "provenance", dict, where),
    )


def _read_modes(data: Json, where: str) -> Modes:
    """Read modes; one that is missing has its default (an older ctk did not know it)."""
    known = {each.name: each for each in dataclasses.fields(Modes)}
    values: Json = {}
    for name, value in data.items():
        if name not in known:
            raise CaseError(f"{where}: unknown mode {name!r}{nearest(name, known)}")
        if name != "autocast":
            default: Any = known[name].default
            values[name] = expect(value, type(default), f"{where}.{name}")
    regions = items(data, "autocast", dict, where) if "autocast" in data else []
    return Modes(**values, autocast=tuple(_read_autocast(each, where) for each in regions))


def _read_autocast(data: Json, where: str) -> Autocast:
    return Autocast(
        device_type=member(data, "device_type", str, where),
        dtype=member(data, "dtype", str, where),
        cache_enabled=member(data, "cache_enabled", bool, where),
    )


def _read_signature(data: Json, where: str) -> Signature:
    kind = member(data, "kind", str, where)
    if kind not in get_args(FailureKind):
        raise CaseError(
            f"{where}: unknown kind of failure {kind!r}{nearest(kind, get_args(FailureKind))}"
        )
    return Signature(
        kind=cast("FailureKind", kind),
        exception=optional(data, "exception", str, where),
        where=optional(data, "where", str, where),
        signal=optional(data, "signal", int, where),
        output=optional(data, "output", str, where),
        message=member(data, "message", str, where),
    )


def _read_dynamic(data: Json, where: str) -> dict[str, tuple[str | None, ...]]:
    found: dict[str, tuple[str | None, ...]] = {}
    for name in data:
        symbols = items(data, name, object, where)
        found[name] = tuple(
            None if symbol is None else expect(symbol, str, f"{where}.{name}") for symbol in symbols
        )
    return found


def _read_files(data: Json, where: str) -> dict[str, FileRecord]:
    found: dict[str, FileRecord] = {}
    for name in data:
        record = member(data, name, dict, where)
        place = f"{where}.{name}"
        found[_checked_path(name, where)] = FileRecord(
            member(record, "nbytes", int, place), member(record, "sha256", str, place)
        )
    return found


def _checked_path(name: str, where: str) -> str:
    """Return a path inside the folder.

    Raises:
        CaseError: It is absolute, leads out of the folder, or is no plain path.
    """
    path = PurePosixPath(name)
    plain = re.fullmatch(r"[\w.+ -]+(/[\w.+ -]+)*", name)
    if plain and not path.is_absolute() and ".." not in path.parts:
        return name
    raise CaseError(f"{where}: {name!r} leads out of the case folder, or is no plain path")


def check_files(folder: Path, manifest: Manifest) -> None:
    """Check that every file of the manifest is there, whole and unchanged.

    Raises:
        CaseError: One is missing, has another size or hash, or is a link out of the folder.
    """
    for name, wanted in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise CaseError(f"{folder}: file {name} is missing; {_DAMAGED}")
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CaseError(f"{folder}: file {name} is a link out of the folder: refused")
        nbytes = path.stat().st_size
        if nbytes != wanted.nbytes:
            raise CaseError(
                f"{folder}: file {name} has {nbytes} bytes, the manifest says {wanted.nbytes}; "
                f"{_DAMAGED}"
            )
        if file_record(path) != wanted:
            raise CaseError(
                f"{folder}: file {name} was changed after the case was written (its SHA-256 "
                "differs); put the original back, or capture again"
            )
