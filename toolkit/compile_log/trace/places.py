"""The place of a node in the user's program: `FILE:LINE`, and the path of the module around it.

Both are metadata that Dynamo writes and that dispatch and most passes keep. A case that was loaded
from a folder has none.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from torch.fx import Node

from ctk.compiler.torch_compat.dynamo.capture_reasons import LIBRARIES, TORCH
from ctk.compiler.usercode.python_files import working_folder

_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.M)
_ROOT = re.compile(r"L\['(\w+)'\]\.?")
_MODELS = ("self", "fn")
_INDEX = re.compile(r"\[['\"]?(\w+)['\"]?\]")


def place_of(node: Node) -> str:
    """Return `FILE:LINE` of the innermost frame of the user's program, or an empty string."""
    stack = node.meta.get("stack_trace")
    file, line = _innermost(stack) if isinstance(stack, str) else ("", "")
    return relative_place(file, line) if file else ""


def relative_place(file: str, line: object) -> str:
    """Return `FILE:LINE`, relative to the working folder for a file in it."""
    path, here = Path(file), working_folder()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


@cache
def _innermost(stack: str) -> tuple[str, str]:
    """Return file and line of the innermost frame outside of libraries, else outside of torch."""
    frames: list[tuple[str, str]] = _FRAME.findall(stack)[::-1]
    for foreign in (LIBRARIES, (TORCH, "<")):
        for frame in frames:
            if not frame[0].startswith(foreign):
                return frame
    return "", ""


def module_of(node: Node) -> str:
    """Return the path of the innermost module whose code a node is: `encoder.layers.0`.

    The nodes of a backward graph have that of the forward node whose gradient they compute.
    """
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        stack = node.meta.get(key)
        if isinstance(stack, Mapping) and stack:
            path, *_ = cast("tuple[Any, ...]", [*stack.values()][-1])
            return shorten_path(str(path))
    return ""


@cache
def shorten_path(path: str) -> str:
    """Return the path of a module without Dynamo's spelling of its root.

    The root of a compiled model is `self`, or `fn` where Dynamo wraps a module of torch.

    >>> shorten_path("L['self'].layers[0].norm")
    'layers.0.norm'
    """
    named = _ROOT.sub(lambda root: "" if root[1] in _MODELS else f"{root[1]}.", path, count=1)
    return _INDEX.sub(r".\1", named).strip(".")
