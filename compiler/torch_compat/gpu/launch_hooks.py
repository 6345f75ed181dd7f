"""Hooks of Triton on launches, which profilers such as proton set.

Source: `CompiledKernel.run` of `triton/compiler/compiler.py`: a hook gets the name, the function
and the stream of a launch in a `LazyDict`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lists() -> tuple[list[Any], list[Any]]:
    """Return the lists of the hooks before and after launches, to which Triton adds new ones."""
    if "triton" not in sys.modules:
        return [], []
    runtime = import_module("triton").knobs.runtime
    return runtime.launch_enter_hook.calls, runtime.launch_exit_hook.calls


def with_hooks(launch: Callable[[], int], name: str, function: int, stream: int) -> int:
    """Launch a kernel between the hooks, and return the result of `launch`."""
    enter, leave = lists()
    if not (enter or leave):
        return launch()
    runtime = import_module("triton").knobs.runtime
    known = {"name": name, "function": function, "stream": stream}
    metadata = import_module("triton.compiler.compiler").LazyDict(known)
    runtime.launch_enter_hook(metadata)
    code = launch()
    runtime.launch_exit_hook(metadata)
    return code
