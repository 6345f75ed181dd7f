"""Name the place where an exception was raised, equal for equal failures in every run.

Line numbers, generated names and hashes are left out.
"""

import re
import traceback
from pathlib import Path
from types import FrameType

from ctk.repro_templates.graph.exceptions import unwrap

OURS = "ctk"
"""The package of ctk: its frames are not the place of a failure."""

FROM_FILE = "ctk_folder_"
"""Prefix of modules that `ctk.compiler.usercode.python_files` loads from a path."""

GENERATED = re.compile(r"<eval_with_key>|<string>|torchinductor_|compile_tasks|^c[a-z2-7]{50,}$")
"""File or module names of code that was generated for one compile."""


def root_error(error: BaseException) -> BaseException:
    """Return the exception in a compiler's wrappers (`InductorError`, `BackendCompilerFailed`)."""
    return unwrap(error)[-1]


def find_raise_site(error: BaseException) -> str:
    """Return `stage/pass` when the pipeline left it on the exception, else `module:function`.

    1. `ctk_where` on the exception, on the exception inside it, or on one of its causes.
    2. The innermost frame outside ctk; `generated` for code generated in this compile.
    3. The innermost frame, if all are in ctk.
    """
    for each in _chain(error):
        where = getattr(each, "ctk_where", None)
        if isinstance(where, str):
            return where
    frames = [frame for frame, _ in traceback.walk_tb(root_error(error).__traceback__)]
    theirs = [frame for frame in frames if _module(frame).partition(".")[0] != OURS]
    innermost = (theirs or frames)[-1:]
    return _name(innermost[0]) if innermost else "unknown"


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop(0)
        if each is not None and each not in chain:
            chain.append(each)
            todo += [root_error(each), each.__cause__, each.__context__]
    return chain


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "unknown"))


def _name(frame: FrameType) -> str:
    module, code = _module(frame), frame.f_code
    if GENERATED.search(code.co_filename) or GENERATED.search(module):
        return "generated"
    if module.startswith(FROM_FILE):  # a file that was loaded by its path has no name of its own
        module = Path(code.co_filename).name
    return f"{module}:{code.co_name}"
