"""Targets that are Dynamo backends: registered ones by name, others as `MODULE:CALLABLE` or `path/to/file.py:callable`.

Any of them is captured graph in, callable out. Backends made with AOTAutograd (`aot_eager`, `aot_ts`, everything that
goes through `torch._dynamo.backends.common.aot_autograd`) also show their forward and backward graphs: the compilers
that they pass to it are wrapped for one compile. Passes inside a backend stay unseen: bisect names a stage.

A file is loaded once per path, under a module name of its own. The backend itself is not copied or changed.
"""

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from compiler import torch_compat
from compiler.errors import ConfigError, TargetError, nearest
from compiler.observe import Observer
from torch.fx import GraphModule

from toolkit.targets.base import Compiled, Target
from toolkit.targets.dynamo_events import Events, unwrapped

Backend = Callable[..., Any]


def registered_target(name: str) -> Target:
    """Return the target of a backend that is registered with Dynamo.

    Raises:
        TargetError: The package behind the name cannot be imported.
    """
    try:
        backend = torch_compat.dynamo_backend(name)
    except Exception as error:
        raise TargetError(
            f"target {name!r} cannot be loaded: {type(error).__name__}: {_first(error)}\n"
            "next: install what it needs, or choose another target (ctk doctor lists them)"
        ) from error
    return backend_target(name, backend)


def callable_target(spec: str) -> Target:
    """Return the target for `MODULE:CALLABLE` or `path/to/file.py:callable`.

    Raises:
        TargetError: It cannot be imported, has no such attribute, or the attribute cannot be called.
    """
    location = spec.rpartition(":")[0]
    needs = () if location.endswith(".py") else (location.partition(".")[0],)
    return backend_target(spec, load_callable(spec), needs=needs)


def backend_target(name: str, backend: Backend, *, needs: tuple[str, ...] = ()) -> Target:
    """Return a target that calls `backend(gm, example_inputs)`, with the config as keyword arguments if there is one."""
    return Target(name, partial(_compile, name, backend), partial(_check_config, name, backend), needs)


def _compile(
    name: str,
    backend: Backend,
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config: Mapping[str, object],
    observer: Observer | None,
) -> Compiled:
    """Compile one captured graph with a Dynamo backend."""
    _check_config(name, backend, config)
    call = partial(backend, gm, list(example_inputs), **_keywords(config))
    with unwrapped():
        if observer is None:
            return cast(Compiled, call())
        events = Events(name, observer)
        return events.compile(gm, example_inputs, call)


def _keywords(config: Mapping[str, object]) -> dict[str, object]:
    """Return the config as Dynamo passes it on: `options` as one argument, the way `torch.compile` does."""
    return {"options": dict(config)} if config else {}


def _check_config(name: str, backend: Backend, config: Mapping[str, object]) -> None:
    """Check that a backend that gets options can take them.

    Raises:
        ConfigError: There are options, and the backend has no parameter for them.
    """
    if not config:
        return
    try:
        parameters = inspect_parameters(backend)
    except (TypeError, ValueError):
        return
    if "options" in parameters or any(p.startswith("**") for p in parameters):
        return
    raise ConfigError(
        f"target {name!r} takes no options, got {sorted(config)}\n"
        "next: give the backend a parameter `options` (torch.compile(options=...) passes it on)"
    )
