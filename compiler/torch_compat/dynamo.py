"""Dynamo: where it finds its backends, and its exceptions."""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch


def backend_names() -> tuple[str, ...]:
    """Return the names of all registered Dynamo backends. Seen in torch 2.11 and 2.13."""
    from torch._dynamo import list_backends

    return tuple(list_backends(exclude_tags=()))


def find_backend(name: str) -> Callable[..., Any]:
    """Return a registered Dynamo backend. Seen in torch 2.11 and 2.13."""
    from torch._dynamo import lookup_backend

    return lookup_backend(name)


def wrap_backend_lookup(wrap: Callable[[object], object], owner: object) -> Callable[[], None]:
    """Pass each backend that Dynamo looks up through `wrap` first; return the undo function.

    Covers every `torch.compile` and `torch.compiler.set_stance(force_backend=...)` that starts
    afterwards. Seen in torch 2.11 and 2.13: `torch._dynamo.eval_frame.get_compiler_fn`.

    Args:
        wrap: Takes a name, a callable, or one of torch.compile's wrapper objects.
        owner: What `backend_lookup_owner` returns until then.
    """
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    original = module.get_compiler_fn
    active = [True]

    def lookup(backend: object) -> object:
        return original(wrap(backend) if active[0] else backend)

    def undo() -> None:
        active[0] = False  # somebody may have wrapped ours in the meantime, and still call it
        if module.get_compiler_fn is lookup:
            module.get_compiler_fn = original

    cast(Any, lookup).ctk_owner = owner
    module.get_compiler_fn = lookup
    return undo


def backend_lookup_owner() -> object | None:
    """Return the owner that `wrap_backend_lookup` was given, while it is in force."""
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    return getattr(module.get_compiler_fn, "ctk_owner", None)


def unwrap_backend(backend: Any) -> tuple[str | None, Any, dict[str, object]]:
    """Return what torch.compile was told: registered name (or None), callable, keyword arguments.

    Inductor's keyword is `options`, with those of its `mode` merged in. Seen in torch 2.11 and
    2.13: `torch._TorchCompileInductorWrapper`, `torch._TorchCompileWrapper`, `_COMPILER_FNS`.
    """
    if type(backend) is torch._TorchCompileInductorWrapper:
        return "inductor", backend, {"options": dict(backend.config)}
    keywords: dict[str, object] = {}
    if isinstance(backend, torch._TorchCompileWrapper):
        keywords, backend = dict(backend.kwargs), backend.compiler_fn
    registry: Any = importlib.import_module("torch._dynamo.backends.registry")
    if isinstance(backend, str):
        return backend, registry.lookup_backend(backend), keywords
    loaded = getattr(registry, "_COMPILER_FNS", {})
    name = next((name for name, function in loaded.items() if function is backend), None)
    return name, backend, keywords


def inductor_mode_options(mode: str, dynamic: bool | None = None) -> dict[str, object]:
    """Return the Inductor options that a `mode` of torch.compile stands for (torch 2.11, 2.13)."""
    inductor: Any = importlib.import_module("torch._inductor")
    return dict(inductor.list_mode_options(mode, dynamic))


def control_flow() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which a backend steers Dynamo: restarts, skips, graph breaks.

    They are no failures of a compiler. Seen in torch 2.11 and 2.13: `torch._dynamo.exc`.
    """
    exc: Any = importlib.import_module("torch._dynamo.exc")
    names = ("TensorifyScalarRestartAnalysis", "RestartAnalysis", "SkipFrame")
    found = [getattr(exc, name) for name in names if hasattr(exc, name)]
    return (*found, *getattr(exc, "exceptions_allowed_to_be_fallback", ()))


def specialized_floats() -> AbstractContextManager[object]:
    """Let Dynamo take Python floats as constants.

    As inputs they make most backends ask Dynamo to trace again with constants, which takes a
    running Dynamo. Seen in torch 2.11 and 2.13.
    """
    config: Any = importlib.import_module("torch._dynamo.config")
    return config.patch(specialize_float=True)
