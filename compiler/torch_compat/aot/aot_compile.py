"""`torch.compile(f).aot_compile(...)`: the contract between Dynamo and a backend.

Dynamo compiles a function to keep it: it asks the backend for a `SerializableCallable`, and saves
its data beside guards and byte code. Meanwhile it sets options of AOTAutograd's own cache.
"""

import importlib
from contextlib import AbstractContextManager
from typing import Any

_KEPT = ("force_autograd_cache", "bundled_autograd_cache", "strict_autograd_cache")
"""Options that hand a compile to AOTAutograd's cache, which takes results of Inductor only."""


def _functorch_config() -> Any:
    return importlib.import_module("torch._functorch.config")


def is_saving() -> bool:
    """Return whether Dynamo compiles for `aot_compile`, and not for a call."""
    config = _functorch_config()
    return all(getattr(config, name, False) for name in _KEPT)


def without_autograd_cache() -> AbstractContextManager[None]:
    """Return a context in which AOTAutograd's own cache does not take part in a compile."""
    return _functorch_config().patch(dict.fromkeys(_KEPT, False))


def serializable_callable() -> Any:
    """Return the base class of functions that Dynamo can save."""
    return importlib.import_module("torch._dynamo.aot_compile_types").SerializableCallable
