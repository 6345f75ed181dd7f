"""Startup code of the Python children of a watched script, copied as `sitecustomize.py`.

It imports neither torch nor ctk: it records the start of the process, runs the `sitecustomize` that
it shadows, and installs the watch when `torch._dynamo` is imported. A process that has no ctk or
never compiles is not affected.
"""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

BOOK = "book.jsonl"
"""The file of all processes of a run, one JSON object per event and line."""

HOOK = "hook.txt"
"""The file that names a function to call with the folder, instead of `WATCH`."""

WATCH = "ctk.toolkit.watch.children:watch_here"

DYNAMO = "torch._dynamo"


def note(folder: str, entry: dict[str, object]) -> None:
    """Append a line to the book of a run, in one write; ignored if the run has ended."""
    line = json.dumps({"pid": os.getpid(), **entry}) + "\n"
    with contextlib.suppress(OSError):
        book = os.open(os.path.join(folder, BOOK), os.O_WRONLY | os.O_APPEND)  # noqa: PTH118  # keeps the start of every child cheap
        try:
            os.write(book, line.encode())
        finally:
            os.close(book)


def call_hook(folder: str) -> None:
    """Import the hook of a run, and call it."""
    place = WATCH
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, HOOK)) as file:  # noqa: PTH118, PTH123  # keeps the start of every child cheap
        place = file.read()
    module, _, name = place.partition(":")
    with contextlib.suppress(ImportError, OSError):  # ctk is not installed, or the run has ended
        getattr(importlib.import_module(module), name)(folder)


class WatchWhenNeeded(importlib.abc.MetaPathFinder):
    """Starts the watch right after `torch._dynamo` was imported."""

    def __init__(self, start: Callable[[], None]) -> None:
        self._start = start

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != DYNAMO:
            return None
        spec = importlib.machinery.PathFinder.find_spec(DYNAMO, path)
        if spec is None or spec.loader is None:
            return spec
        original, start = spec.loader.exec_module, self._start

        def exec_module(module: ModuleType) -> None:
            original(module)
            start()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one object
        return spec


def run_hidden_sitecustomize(folder: str) -> None:
    """Run the next `sitecustomize` on the path, if there is one."""
    rest = [entry for entry in sys.path if entry != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _folder = os.path.dirname(__file__)  # noqa: PTH120  # keeps the start of every child cheap
    if not any("compile_worker" in word for word in sys.orig_argv):  # Inductor's own processes
        note(_folder, {"started": sys.orig_argv[1:], "parent": os.getppid()})
        sys.meta_path.insert(0, WatchWhenNeeded(functools.partial(call_hook, _folder)))
    run_hidden_sitecustomize(_folder)
