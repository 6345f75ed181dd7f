"""The settings of torch's compilers as a whole: what a script changes while it is loaded, undone.

A `repro.py` of torch sets options of `torch._inductor.config` and its siblings, and variables of
the environment, as soon as it is run.
"""

import importlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

MODULES = (
    "torch._inductor.config",
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch.fx.experimental._config",
)
"""Seen in torch 2.11 and 2.13; each has `get_config_copy` and `load_config`-able values."""


@contextmanager
def settings_kept() -> Generator[dict[str, object]]:
    """Put environment and options back after the block; yields what it changed in Inductor's.

    The dict is filled when the block ends without an exception: `{"cpp.threads": 1}`.
    """
    changed: dict[str, object] = {}
    environment = dict(os.environ)
    modules: dict[str, Any] = {name: importlib.import_module(name) for name in MODULES}
    before = {name: module.get_config_copy() for name, module in modules.items()}
    try:
        yield changed
        changed |= _difference(before[MODULES[0]], modules[MODULES[0]].get_config_copy())
    finally:
        for name, module in modules.items():
            for key, value in _difference(module.get_config_copy(), before[name]).items():
                _set(module, key, value)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if before.get(key, _NOTHING) != value}


_NOTHING = object()


def _set(module: Any, key: str, value: object) -> None:
    *parts, last = key.split(".")
    for part in parts:
        module = getattr(module, part)
    setattr(module, last, value)
