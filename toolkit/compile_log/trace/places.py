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

_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.M)
_ROOT = re.compile(r"L\['(\w+)'\]\.?")
_INDEX = re.compile(r"\[['\"]?(\w+)['\"]?\]")


def place_of(node: Node) -> str:
    """Return `FILE:LINE` of the innermost frame of the user's program, or an empty string."""
    stack = node.meta.get("stack_trace")
    return _place_in(stack, str(Path.cwd())) if isinstance(stack, str) else ""


@cache
def _place_in(stack: str, folder: str) -> str:
    frames = _FRAME.findall(stack)[::-1]
    for foreign in (LIBRARIES, (TORCH, "<")):
        for file, line in frames:
            if not file.startswith(foreign):
                path = Path(file)
                path = path.relative_to(folder) if path.is_relative_to(folder) else path
                return f"{path}:{line}"
    return ""


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

    >>> shorten_path("L['self'].layers[0].norm")
    'layers.0.norm'
    """
    root = _ROOT.match(path)
    inner = path[root.end() :] if root is not None and root[1] == "self" else path
    inner = _ROOT.sub(r"\1.", inner) if inner is path else inner
    return _INDEX.sub(r".\1", inner).strip(".")
