"""Import a `torch.export` archive, `FILE.pt2`: its program with its example inputs.

The archive's parameters, buffers and constants are the program's, its dynamic sizes stay dynamic,
and its guards run as they do when the program is called. Dynamo captures it, as
`torch.compile(exported.module())` does.

Trust: the graphs of an archive may name any function of torch, so an archive on the command line is
trusted like a FILE.py. Pickles that could run code while they are read are not: `torch.export.load`
falls back to them silently; here they are checked first, and refused without `--trust`.
"""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ctk.compiler.errors import ProgramError, TrustError
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.usercode.references import near_file
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.base import Importer, check_request
from ctk.toolkit.importers.program import capture_requested
from ctk.toolkit.options import CaseOptions

MOST_TIMES = 100
"""Limit of the compression ratio of an archive; zeros are packed a thousand times."""

OBJECTS = ("custom_obj_", "opaque_obj_")
"""Prefixes of archive entries that hold pickled objects of classes (torch 2.11, 2.13)."""


class Archive(Importer):
    """An archive of torch.export, by its name."""

    form = "FILE.pt2 of torch.export"

    @staticmethod
    def accepts(spec: str) -> bool:
        return spec.endswith(".pt2") and not Path(spec).expanduser().is_dir()

    def cases(self, request: CaseOptions) -> list[Case]:
        """Load an archive and capture its program.

        Raises:
            ProgramError: The file does not exist, is not an archive, or has no example inputs.
            TrustError: It holds pickles that may run code.
        """
        path = find_archive(self.text)
        check_request(request)
        program = program_of_export(read_archive(path, trust=request.trust), path)
        return capture_requested(program, request)


def find_archive(spec: str) -> Path:
    """Return the file that a spec names.

    Raises:
        ProgramError: It does not exist.
    """
    path = Path(spec).expanduser().resolve()
    if not path.is_file():
        raise ProgramError(f"no such file: {spec}{near_file(path)}")
    return path


def read_archive(path: Path, *, trust: bool) -> torch.export.ExportedProgram:
    """Return the program of an archive.

    Raises:
        ProgramError: It is not an archive.
        TrustError: It holds pickles that may run code, and is not trusted.
    """
    if not trust:
        refuse_pickles(path)
    return _load_archive(path)


def program_of_export(exported: torch.export.ExportedProgram, path: Path) -> UserProgram:
    """Return an exported program as a program; its symbolic sizes are marked on the inputs.

    Raises:
        ProgramError: It has no example inputs.
    """
    if exported.example_inputs is None:
        raise ProgramError(
            f"{path.name} holds no example inputs\n"
            "next: write a FILE.py with model(), which returns torch.export.load(...).module(), "
            "and inputs()"
        )
    args, kwargs = exported.example_inputs
    values = dict(_placeholders(exported))
    names = exported.graph_signature.user_inputs
    for name, leaf in zip(names, graphs.tree_leaves((args, kwargs)), strict=False):
        value = values.get(str(name))
        if isinstance(leaf, torch.Tensor) and isinstance(value, torch.Tensor):
            sizes = enumerate(value.shape)
            dynamo.mark_symbolic(leaf, [n for n, size in sizes if fake.is_symbolic(size)])
    return UserProgram(exported.module(), tuple(args), {}, path.stem, path, dict(kwargs))


def _placeholders(exported: torch.export.ExportedProgram) -> Iterator[tuple[str, Any]]:
    for node in exported.graph.find_nodes(op="placeholder"):
        yield node.name, node.meta.get("val")


def refuse_pickles(path: Path) -> None:
    """Refuse an archive with a pickle that is more than tensors and plain containers.

    Raises:
        TrustError: It has such a pickle; the message names the entry.
        ProgramError: It is not an archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_bomb(archive, path)
            for name, kind in _pickles(archive):
                reason = _find_unsafe_part(archive.read(name)) if kind == "tensors" else "an object"
                if reason:
                    raise TrustError(
                        f"{path.name} is refused: its entry {name} is a pickle that may run code "
                        f"when it is read ({reason})\n"
                        "next: if you trust who made it: --trust"
                    )
    except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
        raise ProgramError(_describe_unreadable(path, error)) from error


def _refuse_bomb(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse an archive that is much larger than its file; torch itself compresses nothing."""
    nbytes, packed = sum(entry.file_size for entry in archive.infolist()), path.stat().st_size
    if nbytes > MOST_TIMES * packed:
        raise TrustError(
            f"{path.name} is refused: its entries hold {nbytes:,} bytes, packed into {packed:,}\n"
            "next: if you trust who made it: --trust"
        )


def _pickles(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the entries that torch unpickles: `tensors`, or `objects` of any class."""
    names = archive.namelist()
    said = {place for name in names for place in _declared_pickles(archive, name)}
    for name in names:
        last = name.rpartition("/")[2]
        if last.startswith(OBJECTS):
            yield name, "objects"
        elif last.endswith((".pt", ".pkl")) or last in said:
            yield name, "tensors"


def _declared_pickles(archive: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Yield the entries that a list of weights or constants marks as pickled."""
    if not name.endswith("_config.json"):
        return
    listed = json.loads(archive.read(name)).get("config", {})
    for entry in listed.values():
        if entry.get("use_pickle"):
            yield str(entry.get("path_name", "")).rpartition("/")[2]


def _find_unsafe_part(data: bytes) -> str:
    """Return why a pickle holds more than tensors and containers; empty if it does not."""
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        return first_line(error)
    return ""


def _load_archive(path: Path) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(path)
    except Exception as error:
        raise ProgramError(_describe_unreadable(path, error)) from error


def _describe_unreadable(path: Path, error: Exception) -> str:
    return (
        f"{path.name} cannot be read as an archive of torch.export: {type(error).__name__}: "
        f"{first_line(error)}\n"
        "next: see that the file is whole, and that torch.export.load reads it with this torch"
    )


IMPORTER = Archive
