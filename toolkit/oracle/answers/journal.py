"""The journal of an operation: every answer is on disk at once, and no question is asked twice.

`journal.jsonl` in the folder of a bisect-pass, minify or diagnose has a header with the subject,
then a line per answer, per smaller case, per finished bisection. An operation is determined by its
case and these answers, so the same operation, run again with them, reaches the point where the
first one was killed without asking a question.

    {"sum":"…","kind":"Header","key":"","value":{"torch":"2.13.0","cases":["8f2c…"],…}}
    {"sum":"…","kind":"Judgement","key":"1d0b…","value":{"verdict":"passes",…}}

It stores documents of the reducer and the bisection without knowing either. It cannot check that an
answer is true: a folder from another person holds that person's answers.
"""

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import torch

from ctk.compiler.errors import FolderTaken, SchemaError
from ctk.toolkit.case.formats.growing_file import NEXT, GrowingFile, create, read_lines, reopen
from ctk.toolkit.case.formats.schema import convert, decode, document, encode
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.case.manifest import ctk_version
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.signals import defer_interrupts

T = TypeVar("T")

JOURNAL = "journal.jsonl"
SCHEMA = 2
"""Of the lines and of the fingerprints in their keys."""

OperationName = Literal["bisect-pass", "minify", "diagnose", "bisect-version"]

logger = logging.getLogger("ctk")


@document
@dataclass(frozen=True, slots=True)
class Header:
    """The subject of a journal; its answers hold for nothing else.

    Attributes:
        subject: Its name on the command line; null for an object of the caller of the library.
        options: The options as keywords of the library, for display.
        cases: Fingerprint of each case that was loaded, target, options and modes included.
        sources: Digest of each of the user's files that target and options name, or import, and of
            the modules whose functions the graphs call.
        variables: Digest of each environment variable that changes a compile.
    """

    operation: OperationName
    subject: str | None
    options: Mapping[str, object]
    inputs: str
    cases: tuple[str, ...]
    sources: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    torch: str = torch.__version__
    ctk: str = ctk_version()
    schema: int = SCHEMA


@document
@dataclass(frozen=True, slots=True)
class Line:
    """One line: a document, its type's name, and the question that it answers."""

    kind: str
    key: str
    value: Mapping[str, object]


class Journal(Closeable):
    """The journal of a running operation; a context manager, closed at the end. For any thread.

    Attributes:
        is_replay: Whether all answers so far were remembered.
    """

    def __init__(self, file: GrowingFile, header: Header) -> None:
        self._file = file
        self._values: dict[tuple[str, str], Mapping[str, object]] = {}
        self._last: dict[str, str] = {}
        self._writing = threading.Lock()
        self._is_closed = False
        for number, text in enumerate(file.lines, 1):
            self._keep(decode(Line, text, where=f"{file.path}, line {number}"))
        self.remembered = max(len(file.lines) - 1, 0)
        self.is_replay = self.remembered > 0
        if not file.lines:
            self.note("", header)
            self.is_replay = False

    def recall(self, kind: type[T], key: str) -> T | None:
        """Return the document of this type that was noted for a question, if there is one."""
        value = self._values.get((kind.__name__, key))
        if value is None:
            return None
        return convert(kind, value, where=f"{self._file.path}, {kind.__name__} {key}")

    def note(self, key: str, value: object) -> None:
        """Write a document for a question; it is on disk when this returns, unless `problem`."""
        line = Line(type(value).__name__, key, encode(value))
        had_problem = bool(self.problem)
        text = scrub(json.dumps(encode(line), separators=(",", ":")))
        with defer_interrupts(), self._writing:  # a torn line would break the chain of digests
            if self._is_closed:  # by Ctrl-C, while a thread waited for its answer
                return
            self._keep(line)
            self._file.append(text)
            self.is_replay = False
        if self.problem and not had_problem:
            logger.warning("ctk: %s; it goes on without", self.problem)

    def last(self, kind: type) -> str | None:
        """Return the question whose document of this type was noted last."""
        return self._last.get(kind.__name__)

    @property
    def is_empty(self) -> bool:
        """Whether the journal has no answer yet."""
        return len(self._values) <= 1

    @property
    def problem(self) -> str:
        """Why the last answers are not on disk; empty when they are."""
        return self._file.problem

    def _keep(self, line: Line) -> None:
        self._values[line.kind, line.key] = line.value
        self._last[line.kind] = line.key

    def close(self) -> None:
        """Close the file, which unlocks it."""
        with self._writing:
            self._is_closed = True
            self._file.close()


def start_journal(folder: Path, header: Header) -> Journal:
    """Start the journal of a new folder."""
    return Journal(create(folder / JOURNAL), header)


def resume_journal(folder: Path, header: Header) -> Journal:
    """Open the journal that an earlier run of the same operation left in a folder.

    Raises:
        CaseError: There is none, it is in use or damaged, or its subject is another one.
    """
    if not (folder / JOURNAL).is_file():
        raise FolderTaken(
            f"{folder} has no {JOURNAL}: there is nothing to resume; leave out --resume to start"
        )
    file = reopen(folder / JOURNAL)
    try:
        if file.lines:
            check_same(_header(file.lines[0], folder), header, folder)
        return Journal(file, header)
    except BaseException:
        file.close()
        raise


def read_header(folder: Path) -> Header | None:
    """Return the header of a journal; None if its writer died before the first line.

    Raises:
        CaseError: It cannot be read, or is damaged.
    """
    lines = read_lines(folder / JOURNAL)
    return _header(lines[0], folder) if lines else None


def has_line(folder: Path, kind: type) -> bool:
    """Return whether a journal on disk holds a document of a type."""
    lines = read_lines(folder / JOURNAL)
    return any(decode(Line, text, where=JOURNAL).kind == kind.__name__ for text in lines)


def _header(text: bytes, folder: Path) -> Header:
    where = f"{folder / JOURNAL}, line 1"
    line = decode(Line, text, where=where)
    found = line.value.get("schema")
    if line.kind != Header.__name__ or found != SCHEMA:
        raise SchemaError(
            f"{where}: not a journal of this ctk (schema {found}, this ctk reads {SCHEMA}); {NEXT}"
        )
    return convert(Header, line.value, where=where)


def check_same(then: Header, now: Header, folder: Path) -> None:
    """Check that the answers of a journal hold for the present subject.

    Raises:
        CaseError: They do not; the message names the difference.
    """
    differs = difference(then, now)
    if differs:
        raise FolderTaken(f"the answers in {folder} are of another run: {differs}\n{NEXT}")


def difference(then: Header, now: Header) -> str:
    """Return the difference by which answers of one header do not hold for another, or ""."""
    now = convert(Header, json.loads(scrub(json.dumps(encode(now)))), where="")  # as it is kept
    named = ("operation", "torch", "ctk", "inputs")
    for name in named:
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            return f"{name} was {before}, and is {after} now"
    is_same = then.cases == now.cases
    for name in sorted({*then.options, *now.options}):
        before, after = then.options.get(name), now.options.get(name)
        is_asked = name in OTHER_QUESTION or (not is_same and name not in ANSWERS_STAY)
        if is_asked and before != after:
            return f"{name} was {_show(before)}, and is {_show(after)} now"
    before, after = {**then.sources, **then.variables}, {**now.sources, **now.variables}
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if changed:
        return f"changed since: {', '.join(changed)}"
    if is_same:
        return ""
    if then.subject != now.subject:
        return f"they are about {then.subject}, not {now.subject}"
    return "the program makes another graph or other values now (its file, or a library, changed)"


ANSWERS_STAY = (
    "allow_imports",
    "isolate",
    "timeout_seconds",
    "memory_nbytes",
    "jobs",
    "executor",
    "resources",
)
"""Options of the executor, which does not change an answer."""

OTHER_QUESTION = ("oracle", "same_failure")
"""Options that ask another question about the same cases."""


def _show(value: object) -> str:
    return json.dumps(value, default=repr)
