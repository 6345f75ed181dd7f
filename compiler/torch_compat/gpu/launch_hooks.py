"""Hooks of Triton on launches, which profilers such as proton set.

They are looked up at each launch: Triton may be imported after a stored kernel is loaded, and a
hook may be replaced, by another chain, a function or None.

Source: `CompiledKernel.run` of `triton/compiler/compiler.py`: a hook gets the name, the function
and the stream of a launch in a `LazyDict`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ctk.compiler.torch_compat.gpu import cuda_launch


def launch(kernel: cuda_launch.Loaded, programs: int, arguments: Sequence[int]) -> str | None:
    """Launch programs on the current stream, between the hooks; return the driver's error."""
    stream = cuda_launch.current_stream(kernel.device)
    before, after = _hooks()
    metadata = _metadata(kernel, stream) if (before, after) != (None, None) else None
    if before is not None:
        before(metadata)
    code = kernel.launch(programs, stream, arguments)
    if after is not None:
        after(metadata)
    return cuda_launch.error_text(code) if code else None


def _hooks() -> tuple[Any, Any]:
    """Return the hooks before and after launches; None for a hook that calls nothing."""
    runtime = getattr(sys.modules.get("triton.knobs"), "runtime", None)
    if runtime is None:
        return None, None
    return _called(runtime.launch_enter_hook), _called(runtime.launch_exit_hook)


def _called(hook: Any) -> Any:
    return hook if getattr(hook, "calls", True) else None


def _metadata(kernel: cuda_launch.Loaded, stream: int) -> Any:
    known = {"name": kernel.name, "function": kernel.function, "stream": stream}
    return import_module("triton.compiler.compiler").LazyDict(known)
