"""Decompositions while AOTAutograd traces: observe each, or keep an operator whole.

torch replaces an operator by simpler ones in three places, and each is wrapped here:

1. The table of the trace (`decomposition_table`): operators that reach the tracing mode.
2. `OpOverload.decompose`: operators made of others (CompositeImplicitAutograd) in C++ or Python,
   if autograd did not decompose them already.
3. The Python dispatcher: `py_impl` registrations of `torch._decomp` for autograd.

Also here: the tables that can be chosen for a trace. Decompositions in C++ before Python is called
(`linear` -> `t`, `addmm`) are not observed.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Protocol, cast

import torch
from torch.fx import traceback

from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.operator_types import OpOverload
from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site

_AUTOGRAD = ("CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA")
"""The dispatch keys whose Python kernels are decompositions."""

Values = tuple[tuple[Any, ...], dict[str, Any], Any]
"""Arguments, keyword arguments and results of an operator; tensors as `Name` of their node."""


class Name(str):
    """The name of the node of a traced value."""

    __slots__ = ()


class Watcher(Protocol):
    """Callbacks before and after the decomposition of an operator."""

    def is_active(self) -> bool:
        """Return whether the current trace is of the user's graph."""
        ...

    def allow(self, operator: OpOverload) -> bool:
        """Return whether an operator may be decomposed; asked again and again."""
        ...

    def on_applied(self, operator: OpOverload, captured: str | None, values: Values | None) -> None:
        """Get a decomposition; `captured` is None in backward, `values` without nodes."""
        ...

    def on_failed(self, operator: str, error: Exception) -> None:
        """See that a decomposition raised; torch may catch it."""
        ...


Table = Mapping[Callable[..., Any], Callable[..., Any]]
"""Decompositions by operator."""


def core_aten() -> Table:
    """Return the decompositions to the core ATen operators."""
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions().items())


def inductor() -> Table:
    """Return Inductor's table."""
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table().items())


def every() -> Table:
    """Return all decompositions for traces of ATen."""
    return {**core_aten(), **registry()}


def registry() -> Table:
    """Return torch's live registry of decompositions below autograd, without loading it."""
    from torch._decomp import global_decomposition_table

    return global_decomposition_table["post_autograd"]


@contextmanager
def decompositions_watched(watcher: Watcher) -> Generator[None]:
    """Ask `watcher` about each decomposition of this thread; needs the compile lock."""
    hooks = _Hooks(watcher, threading.get_ident())
    with ExitStack() as undo:
        undo.enter_context(wrap_site(Site(_proxies(), "maybe_handle_decomp"), hooks.table))
        undo.enter_context(wrap_site(Site(OpOverload, "decompose"), hooks.composite))
        undo.enter_context(wrap_site(Site(OpOverload, "_get_dispatch"), hooks.dispatcher))
        _forget_kernels()
        undo.callback(_forget_kernels)
        yield


@cache
def _proxies() -> Any:
    return importlib.import_module("torch.fx.experimental.proxy_tensor")


def trace_site() -> Site:
    """Return the function by which every AOTAutograd backend, also Inductor, traces its graph."""
    from torch._dynamo.backends import common

    return Site(common, "aot_module_simplified")


def _forget_kernels() -> None:
    """Clear the Python dispatcher's cache of `_get_dispatch`."""
    for operator in list(torch._ops.get_cached_ops()):
        if getattr(operator, "py_kernels", None):
            operator._dispatch_cache.clear()


class _Hooks:
    def __init__(self, watcher: Watcher, thread: int) -> None:
        self._watcher, self._thread = watcher, thread
        self._kept: list[str] = []
        self._running: list[OpOverload] = []

    def table(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `maybe_handle_decomp(mode, operator, args, kwargs)`."""

        def run(mode: Any, operator: OpOverload, args: Any, kwargs: Any) -> Any:
            if operator not in _table_of(mode) or not self._is_ours():
                return original(mode, operator, args, kwargs)
            if not self._allows(operator):
                return NotImplemented
            call = partial(original, mode, operator, args, kwargs)
            return self._applying(operator, args, kwargs, call, mode.tracer)

        return run

    def composite(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `OpOverload.decompose`, except its calls by fake tensors, which need shapes only."""

        def decompose(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
            tracer = self._tracer() if self._is_ours() else None
            if tracer is None:
                return original(operator, *args, **kwargs)
            if not self._allows(operator):
                return NotImplemented
            call = partial(original, operator, *args, **kwargs)
            return self._applying(operator, args, kwargs, call, tracer)

        return decompose

    def dispatcher(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `OpOverload._get_dispatch`, which selects the kernel of the Python dispatcher."""

        def get_dispatch(operator: OpOverload, key: Any) -> Any:
            kernel = original(operator, key)
            kernels = operator.py_kernels.items()
            if not any(kernel is each and k.name in _AUTOGRAD for k, each in kernels):
                return kernel
            chosen = self._choose(operator, kernel)
            operator._dispatch_cache[key] = chosen
            return chosen

        return get_dispatch

    def _choose(self, operator: OpOverload, kernel: Callable[..., Any]) -> Any:
        """Return a kernel that decomposes, or calls the kernel of C++."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_ours():
                return kernel(*args, **kwargs)
            if self._allows(operator):
                call = partial(kernel, *args, **kwargs)
                return self._applying(operator, args, kwargs, call, self._tracer())
            self._kept.append(str(operator.overloadpacket))
            try:
                return operator._op_dk(_key_in_cpp(operator), *args, **kwargs)
            finally:
                self._kept.pop()

        return run

    def _is_ours(self) -> bool:
        return threading.get_ident() == self._thread and self._watcher.is_active()

    def _allows(self, operator: OpOverload) -> bool:
        """Return whether to decompose: never an overload that a kept operator calls in C++."""
        is_kept = str(operator.overloadpacket) in self._kept
        return not is_kept and self._watcher.allow(operator)

    @staticmethod
    def _tracer() -> Any:
        mode = _proxies().get_proxy_mode()
        return None if mode is None else mode.tracer

    def _applying(
        self,
        operator: OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        call: Callable[[], Any],
        tracer: Any,
    ) -> Any:
        self._running.append(operator)
        try:
            result = call()
        except Exception as error:
            self._watcher.on_failed(str(operator), error)
            raise
        finally:
            self._running.pop()
            if self._running:  # the calling decomposition continues
                self._watcher.allow(self._running[-1])
        if result is not NotImplemented:
            values = _values(operator, args, kwargs, result, tracer)
            self._watcher.on_applied(operator, _name_of_captured(), values)
        return result


def _table_of(mode: Any) -> Table:
    """Return the decompositions of a trace.

    From torch 2.13 on the mode has them; the module has them in 2.11, and in a context in 2.12.
    """
    if not hasattr(_proxies(), "CURRENT_DECOMPOSITION_TABLE"):
        return mode.decomposition_table
    table = _proxies().CURRENT_DECOMPOSITION_TABLE
    return ContextVar.get(table, {}) if isinstance(table, ContextVar) else table


def _key_in_cpp(operator: OpOverload) -> Any:
    """Return the dispatch key of eager's kernel under autograd.

    A composite operator has no kernel for autograd; and its registrations are found by the key
    `Autograd` only, not by the key of a device.
    """
    keys = torch._C.DispatchKey
    composite = keys.CompositeImplicitAutograd
    is_made_of_others = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), composite)
    return composite if is_made_of_others else keys.Autograd


def _name_of_captured() -> str | None:
    """Return the node that the interpreter of AOTAutograd is at."""
    sources = traceback.get_current_meta().get("from_node") or []
    return str(sources[-1].name) if sources else None


def _values(
    operator: OpOverload, args: Any, kwargs: Any, result: Any, tracer: Any
) -> Values | None:
    """Return the values of an operator by the names of their nodes; None if one has no node.

    They are looked up when the call is over: functionalization has brought them up to date then.
    Nodes of a sub-graph (of `cond`, `flex_attention`) have names of their own, so they have none.
    """
    if tracer is None or operator._schema.is_mutable or _is_in_subgraph():
        return None
    unknown: list[object] = []

    def named(value: object) -> object:
        if not isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        name = _node_of(value, tracer)
        if name is None:
            unknown.append(value)
        return name

    values = tuple(graphs.tree_map(named, each) for each in (tuple(args), dict(kwargs), result))
    return None if unknown else cast("Values", values)


def _is_in_subgraph() -> bool:
    outer = _proxies()._CURRENT_MAKE_FX_TRACER
    return outer is not None and outer.parent_tracer is not None


def _node_of(value: object, tracer: Any) -> object:
    """Return the node of a tensor, or the number that a symbolic one has here."""
    if not isinstance(value, torch.Tensor):
        return getattr(getattr(value, "node", None), "hint", None)
    from torch._subclasses.functional_tensor import FunctionalTensor

    if isinstance(value, FunctionalTensor):
        value = torch._from_functional_tensor(value.elem)
    slot = _proxies().get_proxy_slot(value, tracer, None)
    node = getattr(getattr(slot, "proxy", None), "node", None)
    return None if node is None else Name(node.name)
