"""Run a script or module as Python would, with every `torch.compile` in it watched.

The summary holds the script's exit status and its exception, without frames of ctk in its
traceback. Child processes of the script are watched as well (children.py).
"""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Unpack

from ctk.compiler.options.choices import Check
from ctk.compiler.torch_compat.dynamo.capture_reasons import (
    Collected,
    collect_reasons,
    switched_off_by,
)
from ctk.compiler.usercode.references import find_script
from ctk.toolkit.importers.no_graph import explain_no_graph
from ctk.toolkit.processes.signals import restore_ctrl_c
from ctk.toolkit.watch.children import NO_CHILDREN, Children, read_children, watch_children
from ctk.toolkit.watch.hooks import Installed, install
from ctk.toolkit.watch.watch_session import CallCounts, Failure, Missing, WatchKeywords

INTERRUPTED = 130
"""Exit status of a process that Ctrl-C ended."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a watched script.

    Attributes:
        folder: The dumps of this run; None if nothing was compiled.
        exit_code: The script's own: 0, the argument of `sys.exit`, 1 for an exception.
        checked: Number of calls of graphs that were compared with eager, children included.
        unchecked: Why a call of a graph was not, by its name.
        error: The exception that ended the script; its traceback starts in the script.
        why: Why nothing was compiled, if that is so and known.
        children: The results of its child processes; `failures` and `missing` include theirs.
        calls: The calls of compiled callables, children included.
        check: Whether calls were compared with eager at all.
    """

    graphs: int
    failures: tuple[Failure, ...]
    folder: Path | None
    exit_code: int = 0
    error: BaseException | None = field(default=None, repr=False)
    why: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    children: Children = NO_CHILDREN
    checked: int = 0
    unchecked: Mapping[str, str] = field(default_factory=dict[str, str])
    calls: CallCounts = field(default_factory=CallCounts)
    check: Check = "off"


def run_script(
    path: str | Path,
    args: Sequence[str] = (),
    *,
    is_module: bool = False,
    **options: Unpack[WatchKeywords],
) -> RunSummary:
    """Run a script, or the module of a name, as `__main__` under watch, in this process.

    `sys.argv` and `sys.path` are the script's while it runs. Its threads end before the summary.

    Raises:
        ProgramError: The file or module does not exist.
        ConfigError: An option is not allowed.
    """
    script = Path(path) if is_module else Path(path).expanduser()
    find_script(path, is_module=is_module)
    handle, process = install(**options), os.getpid()
    present = {*threading.enumerate()}
    exit_code, error, found, children = 0, None, Collected(), NO_CHILDREN
    try:
        with ExitStack() as around:
            handle.session.book = str(around.enter_context(watch_children(handle.session.options)))
            around.callback(lambda: _end_forked_child(process))
            around.enter_context(apply_script_environment(script, args, is_module=is_module))
            around.enter_context(collect_reasons(found))
            try:
                _run_as_main(path, is_module=is_module)
            finally:
                _join_threads(present)
                children = read_children(Path(handle.session.book))
    except SystemExit as request:
        exit_code = _exit_code(request)
    except KeyboardInterrupt as interrupt:
        exit_code, error = INTERRUPTED, _trim_traceback(interrupt)
    except BaseException as raised:  # any exception of the script is passed to the caller
        exit_code, error = 1, _trim_traceback(raised)
    finally:
        handle.uninstall()
    handle.session.book = ""
    if handle.session.ring is not None:
        handle.session.ring.close(is_clean=error is None and not exit_code)
    return _summarize(handle, exit_code, error, found, children)


def _run_as_main(path: str | Path, *, is_module: bool) -> None:
    with restore_ctrl_c():
        if is_module:
            runpy.run_module(str(path), run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(Path(path).expanduser()), run_name="__main__")


def _summarize(
    handle: Installed,
    exit_code: int,
    error: BaseException | None,
    found: Collected,
    children: Children,
) -> RunSummary:
    session = handle.session
    folder = session.made_folder if session.graphs else None
    why = () if session.graphs or children.graphs else _explain_no_graph(handle, found)
    calls = CallCounts()
    calls.add(session.calls)
    calls.add(children.calls)
    return RunSummary(
        session.graphs,
        failures=(*session.failures, *children.failures),
        folder=folder,
        exit_code=exit_code,
        error=error,
        why=why,
        missing=(*session.missing, *children.missing),
        children=children,
        checked=session.checked + children.checked,
        unchecked=session.unchecked,
        calls=calls,
        check=session.options.check,
    )


def _join_threads(present: set[threading.Thread]) -> None:
    """Wait for the threads of the script, as Python does at its end."""
    while own := {*threading.enumerate()} - present - {threading.current_thread()}:
        waited = [thread for thread in own if not thread.daemon]
        if not waited:
            return
        for thread in waited:
            thread.join()


def _end_forked_child(process: int) -> None:
    """End a forked child of the script at its end: the parent returns the summary."""
    if os.getpid() == process:
        return
    error = sys.exception()
    exit_code = _exit_code(error) if isinstance(error, SystemExit) else int(error is not None)
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exception(_trim_traceback(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _explain_no_graph(handle: Installed, found: Collected) -> tuple[str, ...]:
    if switched_off_by() or handle.lookups:
        return explain_no_graph(found)
    return ("it never calls torch.compile, or did before it was watched",)


@contextmanager
def apply_script_environment(
    script: Path, args: Sequence[str], *, is_module: bool = False
) -> Generator[None]:
    """Set `sys.argv` and `sys.path[0]` as for a script or module, inside the block."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *args]
    sys.path.insert(0, str(Path.cwd() if is_module else script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _exit_code(request: SystemExit) -> int:
    """Return the exit status that Python gives to a `SystemExit`; a message goes to stderr."""
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF  # the system keeps one byte
    sys.stderr.write(f"{request.code}\n")
    return 1


def _trim_traceback(error: BaseException) -> BaseException:
    """Return the exception without the first frames, of ctk and of runpy."""
    trace: TracebackType | None = error.__traceback__
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)
