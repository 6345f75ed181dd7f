"""Child processes of a watched script: they are watched as well, and their results counted.

A forked child has the hooks already. A new Python process finds the `sitecustomize.py` of ctk first
on `PYTHONPATH` (child_start.py), which installs them when `torch._dynamo` is imported. Each process
appends its events to one file at once, so that a killed child counts as well:

    {"pid": 12, "launched": ["-c", "..."]}             the script is about to start a Python process
    {"pid": 13, "started": ["-c", "..."], "parent": 12}  it is watched
    {"pid": 13, "graph": "graph0"}
    {"pid": 13, "failure": ["graph0", "dumps/child_13_0/graph0", "accuracy: ..."]}
    {"pid": 13, "missing": ["graph0", "events", "OSError: ..."]}
    {"pid": 13, "checked": 1}                            a call of a graph was compared
    {"pid": 13, "call": ["whole", "", 1]}                calls of compiled callables (CallCounts)

A launch without a start was not watched: `-I`, `-E` and `-S`, an environment of its own. Other
programs than Python do not count, nor do processes that Inductor starts: compile workers, tests of
the processor's vector instructions.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctk.compiler.errors import CaseError
from ctk.compiler.torch_compat.inductor.launches import is_launched_by_inductor
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.processes.scratch import remove_folder, scratch_root
from ctk.toolkit.watch.child_start import BOOK, note
from ctk.toolkit.watch.watch_session import CallCounts, Failure, Missing, WatchOptions

OPTIONS = "options.json"

LAUNCH = "subprocess.Popen"
"""The audit event of a process start: executable, arguments, folder, environment."""


@dataclass(frozen=True, slots=True)
class Children:
    """The results of the child processes of a run.

    Attributes:
        processes: Number of children that compiled a graph.
        unwatched: Number of Python processes that were started but not watched.
        checked: Number of calls of graphs that were compared with eager.
        calls: Calls of compiled callables; skipped ones are a lower bound.
    """

    graphs: int = 0
    processes: int = 0
    failures: tuple[Failure, ...] = ()
    unwatched: int = 0
    missing: tuple[Missing, ...] = ()
    checked: int = 0
    calls: CallCounts = field(default_factory=CallCounts)


NO_CHILDREN = Children()


@contextmanager
def watch_children(options: WatchOptions) -> Generator[Path]:
    """Watch the children that start inside the block; yield the folder of the run.

    The environment is restored, and the folder removed, at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="children-", dir=scratch_root()))
    (folder / BOOK).touch()
    (folder / OPTIONS).write_text(json.dumps(dataclasses.asdict(options), default=str))
    shutil.copyfile(Path(__file__).with_name("child_start.py"), folder / "sitecustomize.py")
    before, owner = os.environ.get("PYTHONPATH"), os.getpid()
    active = [True]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    sys.addaudithook(lambda event, args: _on_event(event, args, folder) if active[0] else None)
    try:
        yield folder
    finally:
        active[0] = False  # an audit hook cannot be removed
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
        if os.getpid() == owner:
            remove_folder(folder)


def read_children(folder: Path) -> Children:
    """Read the results so far of the children of this process."""
    entries = [_read_entry(line) for line in (folder / BOOK).read_text().splitlines()]
    theirs = [entry for entry in entries if entry.get("pid") != os.getpid()]
    graphs = [entry for entry in theirs if "graph" in entry]
    failures = tuple(
        _read_failure(graph, Path(case), summary, advice)
        for entry in theirs
        if "failure" in entry
        for graph, case, summary, advice in [map(str, entry["failure"])]
    )
    missing = tuple(Missing(*entry["missing"]) for entry in theirs if "missing" in entry)
    launched = Counter(tuple(entry["launched"]) for entry in entries if "launched" in entry)
    started = Counter(tuple(entry["started"]) for entry in entries if "started" in entry)
    unwatched = (launched - started).total()
    processes = len({entry["pid"] for entry in graphs})
    checked = sum("checked" in entry for entry in theirs)
    calls = CallCounts()
    for part, why, number in (entry["call"] for entry in theirs if "call" in entry):
        calls.add_calls(part, why, number)
    return Children(len(graphs), processes, failures, unwatched, missing, checked, calls)


def _read_failure(graph: str, case: Path, summary: str, advice: str) -> Failure:
    try:
        manifest = read_manifest(case)
    except CaseError:  # it was not saved
        return Failure(graph, case, summary, is_saved=False, advice=advice)
    return Failure(graph, case, summary, True, advice, manifest.signature, manifest.target)


def watch_here(folder: str) -> None:
    """Install the hooks in a process that a watched script has started."""
    from ctk.toolkit.watch.hooks import install

    options = json.loads((Path(folder) / OPTIONS).read_text())
    options["quota"] = options.pop("quota_nbytes")
    handle = install(**options)
    handle.session.book, handle.inherited = folder, True


def _on_event(event: str, args: Sequence[Any], folder: Path) -> None:
    if event != LAUNCH:
        return
    command = args[1]
    words = [os.fsdecode(each) for each in ([command] if isinstance(command, str) else command)]
    is_python = bool(words) and Path(words[0]).name.startswith("python")
    if is_python and not is_launched_by_inductor():
        note(str(folder), {"launched": words[1:]})


def _read_entry(line: str) -> Mapping[str, Any]:
    try:
        return json.loads(line)
    except ValueError:  # cut off: its writer was killed, or the disk is full
        return {}
