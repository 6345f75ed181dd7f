"""Watch the compiles of a test suite in this process, from the import of `torch._dynamo` on.

A suite that never compiles imports neither torch nor the hooks. A test is a `Scope` of the session:
the first calls of each function in it are compared, also of functions that an earlier test or a
fixture has compiled. Nothing is raised, warned or logged into the tests.

While a graph is compiled or called for the first time, an outcome on disk blames it for the end of
the process, for a crash leaves nothing else.
"""

import logging
import shutil
import sys
from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctk.compiler.errors import CtkError
from ctk.toolkit.case.formats.files import make_folder
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.link import Link, Work, find_link, set_link
from ctk.toolkit.testing.options import Marker, SuiteOptions
from ctk.toolkit.watch.child_start import BOOK, DYNAMO, WatchWhenNeeded

if TYPE_CHECKING:
    from ctk.toolkit.watch.children import Children
    from ctk.toolkit.watch.hooks import Installed
    from ctk.toolkit.watch.watch_session import Failure, Scope

OnWork = Callable[[str, Work], None]
"""Takes the folder of a case, and the work that begins on it: empty when it ends."""


@dataclass(slots=True)
class WorkLink(Link):
    """A link without a supervisor, which calls a function in this process."""

    on_work: OnWork = lambda case, work: None

    def note_work(self, case: str, work: Work) -> None:
        self.on_work(case, work)


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was seen in a test, or in a part of it.

    Attributes:
        graphs: Number of graphs that were compiled.
        compared: Number of calls of graphs and functions that were compared with eager.
        unchecked: The graphs with a call that was not, each with the reason.
        target: The last target that compiled or was called.
    """

    graphs: int = 0
    compared: int = 0
    failures: tuple["Failure", ...] = ()
    unchecked: tuple[str, ...] = ()
    target: str = ""

    def plus(self, other: "Seen") -> "Seen":
        """Return the events of two parts of a test, in this order."""
        return Seen(
            self.graphs + other.graphs,
            self.compared + other.compared,
            (*self.failures, *other.failures),
            (*self.unchecked, *other.unchecked),
            other.target,
        )


NOTHING = Seen()


@dataclass(slots=True)
class SuiteWatch(Closeable):
    """The hooks of this process, started with the first import of `torch._dynamo`.

    Attributes:
        on_work: Called when the compile or the first call of a graph begins and ends.
    """

    options: SuiteOptions
    on_work: OnWork
    _installed: "Installed | None" = None
    _scope: tuple[str, Marker] = ("", Marker())
    _starts: tuple[int, int, int, int] = (0, 0, 0, 0)
    _children: "Children | None" = None
    _nbytes: int = 0
    _undo: ExitStack = field(default_factory=ExitStack)

    @property
    def is_installed(self) -> bool:
        """Whether a test may have compiled."""
        return self._installed is not None

    @property
    def target(self) -> str:
        """The target of the last graph or call that was watched; empty for none."""
        return "" if self._installed is None else self._installed.session.target

    def start(self) -> None:
        """Install the hooks, or wait for the import of `torch._dynamo`."""
        if DYNAMO in sys.modules:
            self._install()
            return
        finder = WatchWhenNeeded(self._install)
        sys.meta_path.insert(0, finder)
        self._undo.callback(lambda: finder in sys.meta_path and sys.meta_path.remove(finder))

    def close(self) -> None:
        """Remove the hooks, and the dumps of graphs without a failure."""
        self._undo.close()

    def enter(self, name: str, mark: Marker) -> None:
        """Let a test begin; the name is empty between tests."""
        self._scope = (name, mark)
        if self._installed is not None:
            self._set_scope()

    def take(self) -> Seen:
        """Return everything that was seen since the last call."""
        if self._installed is None:
            return NOTHING
        session, children = self._installed.session, self._read_children()
        compared = session.checked + session.calls.whole
        compared += children.checked + children.calls.whole
        graphs = session.graphs + children.graphs
        ends = (graphs, compared, len(session.failures), len(children.failures))
        starts, self._starts = self._starts, ends
        return Seen(
            graphs - starts[0],
            compared - starts[1],
            (*session.failures[starts[2] : ends[2]], *children.failures[starts[3] :]),
            tuple(f"{graph}: {why}" for graph, why in session.take_unchecked().items()),
            session.target,
        )

    def _read_children(self) -> "Children":
        """Return the results of the child processes, read again when their book has grown."""
        from ctk.toolkit.watch.children import read_children

        assert self._installed is not None
        book = Path(self._installed.session.book)
        nbytes = (book / BOOK).stat().st_size
        if self._children is None or nbytes != self._nbytes:
            self._children, self._nbytes = read_children(book), nbytes
        return self._children

    def _install(self) -> None:
        try:
            self._install_hooks()
        except CtkError as error:  # such as a folder that cannot be made: no test can be judged
            pytest.exit(f"ctk: {error}", returncode=pytest.ExitCode.USAGE_ERROR)

    def _install_hooks(self) -> None:
        from ctk.toolkit.watch.children import watch_children
        from ctk.toolkit.watch.hooks import install

        make_folder(self.options.out)
        self._installed = installed = install(
            dump=self.options.out,
            check="output" if self.options.mode == "check" else "off",
            on_failure="record",
            inputs="failing",
            calls=self.options.calls,
            target=self.options.target,
        )
        self._undo.callback(self._remove_passing)
        self._undo.callback(installed.uninstall)
        self._undo.enter_context(_silence_log())
        installed.session.book = str(
            self._undo.enter_context(watch_children(installed.session.options))
        )
        if find_link() is None:
            set_link(WorkLink(None, on_work=self.on_work))
        self._set_scope()

    def _set_scope(self) -> None:
        import torch

        from ctk.toolkit.watch.watch_session import Scope

        assert self._installed is not None
        name, mark = self._scope
        session = self._installed.session
        scope = Scope(name, mark.target, mark.config, mark.is_off)
        if _compiler(scope) != _compiler(session.scope):
            torch.compiler.reset()  # compiled code does not depend on the scope
        session.scope = scope

    def _remove_passing(self) -> None:
        assert self._installed is not None
        dumps = self._installed.session.made_folder
        if self.options.mode == "check" and dumps is not None:
            failures = self._installed.session.failures
            remove_others(dumps, {failure.folder for failure in failures})


def remove_others(dumps: Path, kept: Collection[Path]) -> None:
    """Remove the graphs of a process that show no failure, and its folder if none remains."""
    for folder in dumps.iterdir():
        if folder.is_dir() and folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    if not kept:
        shutil.rmtree(dumps, ignore_errors=True)


def _compiler(scope: "Scope") -> tuple[object, ...]:
    return scope.target, dict(scope.config), scope.is_off


@contextmanager
def _silence_log() -> Generator[None]:
    """Keep the log of ctk out of the logs and streams of the tests."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger("ctk")
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)
