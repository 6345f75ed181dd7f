"""Run a file again that registers operators: registrations stay, instead of an error.

    lib = torch.library.Library("mine", "FRAGMENT")
    lib.define("f(Tensor x) -> Tensor")      the second time torch raises "multiple times"
    lib.impl("f", kernel, "CPU")             and here "already a kernel registered"
    @torch.compiler.substitute_in_graph(f)   and here "Duplicate dispatch rule"

The kernels of the first run stay: functions of the first module. `torch.library.custom_op` replaces
its registration by itself.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site


@contextmanager
def register_once() -> Generator[None]:
    """Pass over definitions and kernels that are there already."""
    library = torch.library.Library
    with (
        wrap_site(Site(library, "__init__"), _make),
        wrap_site(Site(library, "define"), _define),
        wrap_site(Site(library, "impl"), _impl),
        wrap_site(Site(library, "_register_fake"), _register_fake),
        wrap_site(Site(torch._ops.OperatorBase, "py_impl"), _py_impl),
        wrap_site(
            Site(importlib.import_module("torch._dynamo"), "substitute_in_graph"), _substitute
        ),
    ):
        yield


def _make(original: Callable[..., Any]) -> Callable[..., Any]:
    """A namespace is defined by one library; another one adds to it as a fragment."""

    def init(library: Any, ns: str, kind: str, *args: Any, **kwargs: Any) -> None:
        is_known = any(name.startswith(f"{ns}::") for name in torch._C._dispatch_get_all_op_names())
        original(library, ns, "FRAGMENT" if is_known and kind == "DEF" else kind, *args, **kwargs)

    return init


def _define(original: Callable[..., Any]) -> Callable[..., Any]:
    def define(library: Any, schema: str, *args: Any, **kwargs: Any) -> Any:
        name = schema.partition("(")[0]
        if torch._C._dispatch_dump(f"{library.ns}::{name.strip()}"):
            return name
        return original(library, schema, *args, **kwargs)

    return define


def _impl(original: Callable[..., Any]) -> Callable[..., Any]:
    def impl(library: Any, name: Any, fn: Any, key: str = "", *args: Any, **kwargs: Any) -> Any:
        operator = (name if isinstance(name, str) else name.name()).split("::")[-1]
        if f"{library.ns}/{operator}/{key or library.dispatch_key}" in torch.library._impls:
            return None
        return original(library, name, fn, key, *args, **kwargs)

    return impl


def _py_impl(original: Callable[..., Any]) -> Callable[..., Any]:
    def py_impl(operator: Any, key: Any) -> Any:
        if key in operator.py_kernels or key in operator.python_key_table:
            return lambda function: function  # the first one stays
        return original(operator, key)

    return py_impl


def _substitute(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that Dynamo traces in place of another one is registered once."""

    def substitute(function: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = original(function, **kwargs)

        def once(own: Any) -> Any:
            try:
                return register(own)
            except ValueError as error:
                if "Duplicate dispatch rule" not in str(error):
                    raise
                return own

        return once

    return substitute


def _register_fake(original: Callable[..., Any]) -> Callable[..., Any]:
    def register_fake(library: Any, name: str, fn: Any, _stacklevel: int = 1, **kwargs: Any) -> Any:
        registry = torch._library.simple_registry.singleton
        if registry.find(f"{library.ns}::{name}").fake_impl.kernel is not None:
            return None
        return original(library, name, fn, _stacklevel + 1, **kwargs)

    return register_fake
