"""Write a case whose files are links to files that other cases have as well.

A case of each of many calls of one graph repeats the graph, and most of the weights. Here, equal
files are one file on disk with several names (hard links), so each folder is a whole case that can
be read, copied and removed on its own:

    .files/5f0c...                          a weight, by the digest of its file
    graph0_call998/inputs.0.safetensors     the same file, while the weight keeps its value
    graph0_call999/inputs.0.safetensors
    graph0_call999/inputs.1.safetensors     a file of this call
    graph0_call999/graph.json, inputs.json  one file for all calls, while the shapes stay

`inputs.N.safetensors` holds the values of storage number N of `inputs.json`, `inputs.safetensors`
those of all small ones. Each file costs one digest per case (SHA-256), and a write only if it is
new.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from ctk.compiler.fx.clone import raw_bytes
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import (
    atomic_folder,
    make_folder,
    raise_storage_errors,
    replace_file,
)
from ctk.toolkit.case.formats.safetensors_file import NATIVE, load_arrays, to_array
from ctk.toolkit.case.formats.schema import write_document
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.case.formats.strict_json import parse_json
from ctk.toolkit.case.formats.tensors import Keep
from ctk.toolkit.case.inputs import Inputs, pack_inputs, symbols_of
from ctk.toolkit.case.manifest import (
    INPUTS,
    VALUES,
    FileRecord,
    Manifest,
    now,
    read_manifest,
    write_manifest,
)

SMALL_NBYTES = 1 << 16
"""Values below this size are in one file: a file costs about as much as 100 KB."""

TOGETHER = f"inputs{VALUES}"

_NAME = "values"


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, not written yet."""

    header: bytes
    values: memoryview
    digest: str

    @classmethod
    def of(cls, header: bytes, values: memoryview | bytes = b"") -> "Content":
        """Return the content of two pieces."""
        digest = hashlib.sha256(header)
        digest.update(values)
        return cls(header, memoryview(values), digest.hexdigest())

    @property
    def record(self) -> FileRecord:
        """The entry of the file in a manifest."""
        return FileRecord(self.nbytes, self.digest)

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return len(self.header) + self.values.nbytes


@dataclass(slots=True)
class ContentFiles:
    """Files on disk by content, which the files of cases are links to.

    Attributes:
        nbytes: Of all files.
    """

    folder: Path
    nbytes: int = 0
    _users: dict[str, int] = field(default_factory=dict[str, int])

    def missing_nbytes(self, contents: Iterable[Content]) -> int:
        """Return the bytes of the contents that have no file yet."""
        missing = {each.digest: each.nbytes for each in contents if each.digest not in self._users}
        return sum(missing.values())

    def add(self, content: Content) -> None:
        """Write the file of a content, unless there is one."""
        if content.digest not in self._users:
            replace_file(self.folder / content.digest, content.header, content.values)
            self._register(content.record)

    def adopt(self, path: Path, record: FileRecord) -> None:
        """Give an existing file a name by its content, and keep it."""
        if record.sha256 not in self._users:
            self._link(path, self.folder / record.sha256)
            self._register(record)
        self.use([record.sha256])

    def place(self, digest: str, path: Path) -> None:
        """Give the file of a content one more name; the folders of the name are made."""
        make_folder(path.parent)
        self._link(self.folder / digest, path)

    def use(self, digests: Iterable[str]) -> None:
        """Keep files until as many calls of `release`."""
        for digest in digests:
            self._users[digest] += 1

    def release(self, digests: Iterable[str]) -> None:
        """Remove the files that no case uses any more."""
        for digest in digests:
            self._users[digest] -= 1
        for digest in [each for each, users in self._users.items() if users <= 0]:
            own = self.folder / digest
            with raise_storage_errors(own):
                self.nbytes -= own.stat().st_size
                own.unlink()
            del self._users[digest]

    def _register(self, record: FileRecord) -> None:
        self._users[record.sha256] = 0
        self.nbytes += record.nbytes

    @staticmethod
    def _link(file: Path, path: Path) -> None:
        with raise_storage_errors(path):
            os.link(file, path, follow_symlinks=False)


def adopt_case(folder: Path, files: ContentFiles) -> Manifest:
    """Add the files of a case that do not depend on its inputs; return its manifest of them.

    Raises:
        CaseError: The case is not whole.
    """
    manifest = read_manifest(folder)
    kept = {
        name: record
        for name, record in manifest.files.items()
        if name != INPUTS and not name.endswith(VALUES)
    }
    for name, record in kept.items():
        files.adopt(folder / name, record)
    return replace(manifest, files=kept)


@dataclass(frozen=True, slots=True)
class PackedCall:
    """The inputs of a case: their description, and the files of a case by their names."""

    inputs: Inputs
    contents: Mapping[str, Content]


def pack_linked(case: Case, keep: Keep, like: PackedCall | None = None) -> PackedCall:
    """Return the inputs of a case as files.

    Args:
        like: An earlier call: its description is reused if it is equal.

    Raises:
        CaseError: An input cannot be kept.
    """
    inputs, values = pack_inputs(case, keep=keep, measure=False, in_place=True)
    if like is not None and like.inputs == inputs:
        document = like.contents[INPUTS]
    else:
        document = Content.of(scrub(write_document(inputs)).encode("utf-8", "backslashreplace"))
    small = {key: to_array(each) for key, each in values.items() if each.nbytes < SMALL_NBYTES}
    names = _value_names(inputs).items()
    large = {name: content_of(values[key]) for name, key in names if key in values.keys() - small}
    together = {TOGETHER: Content.of(save(small))} if small else {}
    return PackedCall(inputs, {INPUTS: document, **together, **large})


def write_linked(
    case: Case, folder: Path, like: Manifest, packed: PackedCall, files: ContentFiles
) -> frozenset[str]:
    """Write a case, and return the digests of its files; its folder appears when it is complete.

    Args:
        like: Of `adopt_case`, for a case of the same graph.

    Raises:
        CaseError: The folder is occupied.
        StorageError: It cannot be written, or the file system has no hard links.
    """
    contents = packed.contents
    records = {**like.files, **{name: each.record for name, each in contents.items()}}
    with atomic_folder(folder) as partial:
        for content in contents.values():
            files.add(content)
        for name, record in records.items():
            files.place(record.sha256, partial / name)
        manifest = replace(
            like,
            name=case.name,
            modes=case.modes,
            signature=case.signature,
            inputs="full",
            symbols=symbols_of(case) if case.dynamic else {},
            synthetic=packed.inputs.tensors.synthetic,
            files=records,
            provenance=replace(like.provenance, created=now()),
        )
        write_manifest(manifest, partial, exact=True)  # its texts are of a scrubbed one
    used = frozenset(each.digest for each in contents.values())
    files.use(used)
    return used


def linked_arrays(folder: Path, manifest: Manifest, inputs: Inputs) -> dict[str, Tensor]:
    """Return the values in the linked files of a case, by storage; none for other cases.

    Raises:
        CaseError: A file is damaged.
    """
    names = {name: key for name, key in _value_names(inputs).items() if name in manifest.files}
    return {
        key: array for name, key in names.items() for array in load_arrays(folder / name).values()
    }


def _value_names(inputs: Inputs) -> dict[str, str]:
    """Return the storages by the names of their files."""
    return {f"inputs.{number}{VALUES}": key for number, key in enumerate(inputs.tensors.storages)}


def content_of(values: Tensor) -> Content:
    """Return the safetensors file of a tensor as bytes that share its memory if they can."""
    plain = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    word = _word_of(plain.dtype) if plain.dtype in NATIVE else "U8"
    data = raw_bytes(plain.detach().cpu()).numpy().data
    count = plain.numel() if plain.dtype in NATIVE else data.nbytes
    entry = f'{{"dtype":"{word}","shape":[{count}],"data_offsets":[0,{data.nbytes}]}}'
    text = f'{{"{_NAME}":{entry}}}'.encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return Content.of(header, data)


@cache
def _word_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in a safetensors file."""
    data = save({_NAME: torch.empty(0, dtype=dtype, device="cpu")})
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")], where="safetensors")
    return str(header[_NAME]["dtype"])
