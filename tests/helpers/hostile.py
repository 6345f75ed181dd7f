"""Hostile cases: a good case that an attacker has changed, and who notices when something runs.

An attacker can change every file of a folder and its hash in the manifest. `Craft` does so; what is
put where code or a path may be named comes from a `Canary`, which knows afterwards whether it ran:

    craft = Craft.new(tmp_path)                    # a copy of a good case, and its canary
    craft.manifest(lambda data: data.update(target=craft.canary.reference))
    assert_refused(craft)                          # `repro`, `show` and `ls`: clean answers, and
                                                   # nothing imported, started, written or called

Everything that Python is asked to do meanwhile is seen by an audit hook: processes, sockets, files
opened for writing, modules found outside the installed ones.
"""

import contextlib
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ctk.toolkit.case.store import save_case
from tests.helpers.case_zoo import capture
from tests.helpers.cli import Said, ctk

SECONDS = 5.0
"""Longest that any command may take to refuse a case here; a refusal itself takes milliseconds."""

JUDGING = ("check", "repro", "bisect-pass", "minify", "diagnose")
"""The commands that run what a case holds."""

LOOKING = ("show", "ls")
"""The commands that only read it."""

_MODULE = "ctk_canary_module"

_PAYLOAD = '''
import pathlib
with open({mark!r}, "a") as file:
    file.write("ran\\n")

def function(*args, **kwargs):
    """Where a target, a pass or an option asks for a function."""
    pathlib.Path({mark!r}).write_text("called")
    return args[0] if args else None
'''


# --- crafting -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Canary:
    """Code and paths to name in a case; silent as long as none of it is used.

    Attributes:
        folder: Holds a module and a file; the module can be imported while `watched`.
    """

    folder: Path

    @property
    def mark(self) -> Path:
        """The file that appears when the code runs, or that a command writes."""
        return self.folder / "mark"

    @property
    def module(self) -> str:
        """A module that can be imported by name."""
        return _MODULE

    @property
    def file(self) -> Path:
        """A Python file with the same code."""
        return self.folder / f"{_MODULE}.py"

    @property
    def reference(self) -> str:
        """`module:function`."""
        return f"{_MODULE}:function"

    @property
    def file_reference(self) -> str:
        """`/path/file.py:function`."""
        return f"{self.file}:function"

    @property
    def shell(self) -> str:
        """A command line."""
        return f"touch {self.mark}"

    @property
    def program(self) -> str:
        """An executable file."""
        return str(self.folder / "program")

    def assert_silent(self) -> None:
        """Fail if anything of it was used."""
        assert not self.mark.exists(), f"code of a case ran: {self.mark.read_text()}"
        assert _MODULE not in sys.modules, "a module that a case names was imported"
        known = {f"{_MODULE}.py", "program"}
        found = {path.name for path in self.folder.iterdir()} - known
        assert not found, f"a case made ctk write {sorted(found)}"


@dataclass(frozen=True, slots=True)
class Craft:
    """A case folder in an attacker's hands.

    Attributes:
        folder: A copy of a good case: a linear layer and a relu, target `ctk`.
        canary: What to name in it.
    """

    folder: Path
    canary: Canary

    @classmethod
    def new(cls, tmp_path: Path) -> "Craft":
        """Return a fresh copy in a folder of its own."""
        place = Path(tempfile.mkdtemp(prefix="craft-", dir=tmp_path))
        shutil.copytree(good_case(), place / "case", symlinks=True)
        nest = place / "nest"
        nest.mkdir()
        canary = Canary(nest)
        canary.file.write_text(_PAYLOAD.format(mark=str(canary.mark)))
        program = Path(canary.program)
        program.write_text(f"#!/bin/sh\n{canary.shell}\n")
        program.chmod(0o700)
        return cls(place / "case", canary)

    def manifest(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the manifest."""
        path = self.folder / "manifest.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    def json(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change another JSON file of the case (`graph.json`), and its hash."""
        data = json.loads((self.folder / name).read_text())
        change(data)
        self.put(name, json.dumps(data))

    def graph(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change `graph.json`, and its hash."""
        self.json("graph.json", change)

    def put(self, name: str, data: str | bytes, *, listed: bool = True) -> Path:
        """Write a file into the case; `listed` gives it its place and hash in the manifest."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        if listed:
            self.list(name)
        return path

    def list(self, name: str, *, source: bool = False) -> None:
        """Give a file that lies in the folder its hash in the manifest; `source`: as a source."""
        data = (self.folder / name).read_bytes()
        record = {"nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.manifest(lambda found: found["files"].update({name: record}))
        if source:
            self.manifest(lambda found: found.update(sources=[*found["sources"], name]))

    def call(self) -> dict[str, Any]:
        """Return the first call of the graph, as a starting point for `graph(...)`."""
        data = json.loads((self.folder / "graph.json").read_text())
        return first_call(data)


def first_call(graph: dict[str, Any]) -> dict[str, Any]:
    """Return the first node of a `graph.json` that calls a function; to be changed in place."""
    return next(node for node in graph["nodes"] if node["op"] == "call_function")


@functools.cache
def good_case() -> Path:
    """Return a saved case that every command takes; only to be copied."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    (case,) = capture(model, torch.randn(2, 4))
    place = Path(tempfile.mkdtemp(prefix="ctk-good-"))
    return save_case(case, place / "case", inputs="full")


# --- noticing -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """What Python was asked to do: one line per event that a refused case must not cause."""

    events: list[str] = field(default_factory=list[str])
    compiles: bool = False


_watching: list[tuple[Seen, tuple[Path, ...]]] = []

_STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.startfile",
    "pty.spawn",
)
_TALKS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request")


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _watching:
        return
    seen, allowed = _watching[-1]
    if _is_second_event(event) or (seen.compiles and _compiles_c(event, args)):
        return
    if event.startswith(_STARTS) or event.startswith(_TALKS):
        seen.events.append(f"{event} {args[:2]}")
    elif event == "import" and args[0].partition(".")[0] == _MODULE:
        seen.events.append(f"import {args[0]}")
    elif event == "open" and _writes(args) and not _is_below(args[0], allowed):
        seen.events.append(f"write {args[0]}")


def _is_second_event(event: str) -> bool:
    """Return whether `subprocess` itself starts a process so, as Python 3.13 and later do."""
    if event != "os.posix_spawn":
        return False
    return sys._getframe(2).f_code.co_filename == subprocess.__file__  # the hook's caller


def _compiles_c(event: str, args: tuple[Any, ...]) -> bool:
    """Return whether an event is part of a compile of C, of code that ctk itself has printed."""
    if event == "open":
        return Path(str(args[0])).parent.name.startswith("ctk-c-")
    return event == "subprocess.Popen" and Path(str(args[0])).name in ("cc", "gcc", "clang")


def _writes(args: tuple[Any, ...]) -> bool:
    mode = args[1] if len(args) > 1 else None
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _is_below(place: object, allowed: Sequence[Path]) -> bool:
    if isinstance(place, int) or str(place) == "/dev/null":
        return True
    path = Path(str(place) if not isinstance(place, bytes) else place.decode()).resolve()
    return any(path.is_relative_to(folder) for folder in allowed) or "__pycache__" in path.parts


@functools.cache
def _install_audit() -> None:
    sys.addaudithook(_audit)  # cannot be taken out again; it sleeps outside of `watched`


@contextlib.contextmanager
def watched(canary: Canary, *, out: Path | None = None, compiles: bool = False) -> Generator[Seen]:
    """Note everything that a case must not cause, with the canary's module on `sys.path`.

    Args:
        canary: What the case names.
        out: The folder that the command may write to; nothing else.
        compiles: The graph may be compiled: by the C compiler, from a folder for that.
    """
    _install_audit()
    seen = Seen(compiles=compiles)
    sys.path.append(str(canary.folder))
    _watching.append((seen, (out.resolve(),) if out else ()))
    try:
        yield seen
    finally:
        _watching.pop()
        sys.path.remove(str(canary.folder))


# --- running ------------------------------------------------------------------------------------


def assert_refused(
    craft: Craft,
    *,
    says: str = "",
    commands: Sequence[str] = ("repro",),
    options: Sequence[str] = (),
) -> list[Said]:
    """Run commands on a hostile case, and `show` and `ls`; return what the judging ones said.

    Each judging command exits with 2 or 125 and `says` a text; `show` and `ls` may answer. Nothing
    that was noted may have happened, no traceback is shown, and it takes no longer than `SECONDS`.
    """
    said = [run_on(craft, command, *options, codes=(2, 125)) for command in commands]
    for each in said:
        assert says in each.out + each.err, each.out + each.err
    for command in LOOKING:
        run_on(craft, command, codes=(0, 2, 125))
    return said


def run_on(craft: Craft, command: str, *options: str, codes: Sequence[int]) -> Said:
    """Run one command on a crafted case; see `assert_refused`."""
    out = craft.folder.parent / "out"
    more = ["--out", str(out)] if command in ("bisect-pass", "minify", "diagnose") else []
    before, started = listing(craft.folder), time.process_time()
    with watched(craft.canary, out=out, compiles=0 in codes or 1 in codes) as seen:
        said = ctk(command, craft.folder, *more, *options)
    seconds = time.process_time() - started  # of this process: others may keep the machine busy
    text = f"{command}: {said.out}{said.err}"
    assert said.code in codes, text
    assert "Traceback" not in text and "which is a bug" not in text, text
    assert not seen.events, f"{command}: {seen.events}"
    assert seconds < SECONDS or 2 not in codes, f"{command} took {seconds:.1f} s"
    assert listing(craft.folder) == before, f"{command} changed the case"
    craft.canary.assert_silent()
    return said


def listing(folder: Path) -> list[str]:
    """Return every name below a folder, links not followed."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
