"""One entry of the persistent cache: its key, and its label.

A `Key` is named parts: short texts, or digests of long ones. The digest of the key names the file
of an entry, and the file holds the parts as well: so a renamed or replaced entry is noticed, and
two entries can be compared part by part.
"""

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ctk.compiler.artifacts.container import Bytes, Container, open_container, peek, write
from ctk.compiler.cache_folder.folder import access_problem
from ctk.compiler.errors import ContainerError, UnreadableContainer

MAGIC = "ctk-entry"
_LABEL = "entry.json"
_FORMAT = 1

Value = str | int


@dataclass(frozen=True, slots=True)
class Key:
    """Everything that a compile depends on: a text for each named part."""

    parts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The name of the entry: 64 hex digits."""
        parts = sorted(self.parts.items())
        return hashlib.sha256(json.dumps([_FORMAT, parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A part in which two keys differ; None where a key has no such part."""

    part: str
    theirs: str | None
    ours: str | None


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[KeyDifference]:
    """Return the parts in which two keys differ, by name."""
    names = sorted({*theirs, *ours})
    return [
        KeyDifference(name, theirs.get(name), ours.get(name))
        for name in names
        if theirs.get(name) != ours.get(name)
    ]


@dataclass(frozen=True, slots=True)
class Label:
    """The description that an entry holds of itself.

    Attributes:
        about: Facts to show: `nodes`, `stages`, `device`, `ctk`, `torch`.
    """

    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    about: Mapping[str, Value] = field(default_factory=dict[str, Value])


def write_entry(
    path: Path, key: Key, members: Mapping[str, Bytes], about: Mapping[str, Value]
) -> None:
    """Write an entry into an existing folder.

    Raises:
        StorageError: The file cannot be written.
        ContainerError: The name of a member is not allowed, or is the name of the label.
    """
    if _LABEL in members:
        raise ContainerError(f"no member of an entry may be called {_LABEL}")
    label = {"format": _FORMAT, "parts": dict(key.parts), "about": dict(about)}
    data = json.dumps(label, indent=1).encode()
    write(path, {_LABEL: data, **members}, magic=MAGIC, private=True)


def read_entry(path: Path) -> tuple[Label, Container]:
    """Return the label of an entry and its members, all of them checked.

    Raises:
        FileNotFoundError: There is no such entry.
        UnreadableContainer: The system refuses to read it.
        ContainerError: It is damaged, or its key has another digest than its name.
    """
    require_own_file(path)
    container = open_container(path, MAGIC)
    members = dict(container.members)
    label = _parse_label(bytes(members.pop(_LABEL, b"")))
    if label is None:
        raise ContainerError(f"{path} is not used: it has no label")
    if Key(label.parts).digest != path.name:
        raise ContainerError(f"{path} is not used: it was made under another name")
    return label, Container(path, container.digest, members)


def read_label(path: Path) -> Label | None:
    """Return the label of an entry, unchecked, to be shown; None if it has none."""
    return _parse_label(peek(path, _LABEL) or b"")


def require_own_file(path: Path) -> None:
    """Refuse a path that is not a file, is behind a link, or that other users can change.

    Raises:
        FileNotFoundError: Nothing is there.
        UnreadableContainer: Its folder is refused.
        ContainerError: It is refused; the message has the reason.
    """
    status = path.lstat()
    if path.parent.is_symlink():
        raise UnreadableContainer(f"{path.parent} is a link out of the cache; next: remove it")
    problem = access_problem(status) if stat.S_ISREG(status.st_mode) else "is not a file"
    if problem is not None:
        raise ContainerError(f"{path} is not used: it {problem}")


def _parse_label(data: bytes) -> Label | None:
    try:
        found = json.loads(data)
        parts, about = found["parts"], found["about"]
        is_ours = found["format"] == _FORMAT and set(found) == {"format", "parts", "about"}
        texts = [*parts, *parts.values(), *about]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_typed = all(isinstance(text, str) for text in texts)
    is_typed = is_typed and all(isinstance(value, str | int) for value in about.values())
    if not (is_ours and is_typed):
        return None
    return Label(cast("Mapping[str, str]", parts), cast("Mapping[str, Value]", about))
