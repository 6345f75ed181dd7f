"""Dynamo: where it finds its backends, and its exceptions."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import functools
import importlib
import json
import sys
import threading
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, cast

import torch

from ctk.compiler.torch_compat.inductor.patch_sites import replace_attribute

_LOOKUP = threading.RLock()
"""Held during the lookup of a backend. Dynamo registers an entry point at its first lookup by a
check and an insertion, so that two threads may insert it twice, which raises. Code inside imports
backends and takes no other lock of ctk but the next.
"""

_REGISTERING = threading.Lock()
"""Held while a backend is registered, which modules do while they are imported. It is another lock:
one thread may look up, and wait for the module that another one imports, which registers.
"""


def backend_names() -> tuple[str, ...]:
    """Return the names of all registered Dynamo backends."""
    from torch._dynamo import list_backends

    with _LOOKUP:
        return tuple(list_backends(exclude_tags=()))


def find_backend(name: str) -> Callable[..., Any]:
    """Return a registered Dynamo backend."""
    from torch._dynamo import lookup_backend

    with _LOOKUP:
        return lookup_backend(name)


def wrap_backend_lookup(wrap: Callable[[object], object], owner: object) -> Callable[[], None]:
    """Pass each backend that Dynamo looks up through `wrap` first; return the undo function.

    Covers every `torch.compile` and `torch.compiler.set_stance(force_backend=...)` that starts
    afterwards.

    Args:
        wrap: Takes a name, a callable, or one of torch.compile's wrapper objects.
        owner: The result of `backend_lookup_owner` until the undo.
    """
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    original = module.get_compiler_fn
    active = [True]

    def lookup(backend: object) -> object:
        with _LOOKUP:  # torch.compile may be called by several threads at once
            return original(wrap(backend) if active[0] else backend)

    cast(Any, lookup).ctk_owner = owner
    undo_registering = _register_once()
    undo_lookup = replace_attribute(module, "get_compiler_fn", lookup)

    def undo() -> None:
        active[0] = False  # a later wrapper may still call this one
        undo_registering()
        undo_lookup()

    return undo


def _register_once() -> Callable[[], None]:
    """Let Dynamo register the same backend twice; return the undo function.

    It looks backends up in more places than one (`torch._TorchCompileWrapper`), without a lock.
    """
    registry: Any = importlib.import_module("torch._dynamo.backends.registry")
    original, known = registry.register_backend, registry._COMPILER_FNS

    def register(compiler_fn: Any = None, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        with _REGISTERING:
            if name in known and known[name] is compiler_fn:
                return compiler_fn
            return original(compiler_fn, name, *args, **kwargs)

    return replace_attribute(registry, "register_backend", register)


def wrap_backend_calls(wrap: Callable[[Any], Callable[..., Any]]) -> Callable[[], None]:
    """Let Dynamo compile each graph with `wrap(backend)`; return the undo function.

    Compiled functions keep the backend of the program, so that they are pickled, copied, compared
    and inspected as without the hook. The patched class is imported by the first
    lookup: a process that is importing `torch._dynamo` cannot import it yet.
    """
    undo, active = ExitStack(), [True]

    def patch() -> None:
        module: Any = importlib.import_module(_BACKEND_CALLS)
        configured: Any = module.WrapBackendDebug
        original = configured.__call__

        def call(self: Any, gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
            backend = self._torchdynamo_orig_backend
            wrapped = wrap(backend) if active[0] else backend
            if wrapped is not backend:
                self = configured(wrapped, self._compiler_name)
            return original(self, gm, example_inputs, **kwargs)

        undo.callback(replace_attribute(configured, "__call__", call))

    if _BACKEND_CALLS in sys.modules:
        patch()
    else:
        module: Any = importlib.import_module("torch._dynamo.eval_frame")
        lookup, pending = module.get_compiler_fn, [patch]

        def first_lookup(backend: object) -> object:
            with _LOOKUP:
                while pending and active[0]:
                    pending.pop()()
            return lookup(backend)

        undo.callback(replace_attribute(module, "get_compiler_fn", first_lookup))
    undo.callback(lambda: active.__setitem__(0, False))
    return undo.close


_BACKEND_CALLS = "torch._dynamo.repro.after_dynamo"
"""The module of the class by which Dynamo calls every backend."""


def backend_lookup_owner() -> object | None:
    """Return the owner that `wrap_backend_lookup` was given, while it is in force."""
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    return getattr(module.get_compiler_fn, "ctk_owner", None)


def unwrap_backend(backend: Any) -> tuple[str | None, Any, dict[str, object]]:
    """Return the backend of torch.compile: registered name (or None), callable, keyword arguments.

    Inductor's keyword is `options`, with the options of its `mode`.
    """
    if type(backend) is torch._TorchCompileInductorWrapper:
        return "inductor", backend, {"options": dict(backend.config)}
    keywords: dict[str, object] = {}
    if isinstance(backend, torch._TorchCompileWrapper):
        keywords, backend = dict(backend.kwargs), backend.compiler_fn
    registry: Any = importlib.import_module("torch._dynamo.backends.registry")
    if isinstance(backend, str):
        return backend, find_backend(backend), keywords
    loaded = getattr(registry, "_COMPILER_FNS", {})
    name = next((name for name, function in loaded.items() if function is backend), None)
    return name, backend, keywords


class BackendWrappers:
    """Wrappers of backends, one for equal ones: Dynamo compares them to reuse code."""

    def __init__(self) -> None:
        self._known: list[tuple[object, Callable[..., Any]]] = []

    def find(self, backend: object) -> Callable[..., Any] | None:
        """Return the wrapper of a backend that was kept."""
        for known, wrapper in self._known:
            if known is backend or known == backend:
                return wrapper
        return None

    def keep(self, backend: object, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """Keep and return the wrapper of a backend."""
        self._known.append((backend, wrapper))
        return wrapper


def inductor_mode_options(mode: str) -> dict[str, object]:
    """Return the Inductor options that a `mode` of torch.compile stands for."""
    inductor: Any = importlib.import_module("torch._inductor")
    return dict(inductor.list_mode_options(mode))


def mark_symbolic(tensor: torch.Tensor, dimensions: Sequence[int]) -> None:
    """Let Dynamo capture dimensions of an input with symbolic sizes if it can."""
    module: Any = importlib.import_module("torch._dynamo")
    for dimension in dimensions:
        module.maybe_mark_dynamic(tensor, dimension)


def control_flow() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which a backend steers Dynamo: restarts, skips, graph breaks.

    They are no failures of a compiler.
    """
    exc: Any = importlib.import_module("torch._dynamo.exc")
    names = ("TensorifyScalarRestartAnalysis", "RestartAnalysis", "SkipFrame")
    found = [getattr(exc, name) for name in names if hasattr(exc, name)]
    return (*found, *fallbacks())


def fallbacks() -> tuple[type[Exception], ...]:
    """Return the exceptions of a backend for which Dynamo runs the graph in eager."""
    exc: Any = importlib.import_module("torch._dynamo.exc")
    return tuple(getattr(exc, "exceptions_allowed_to_be_fallback", ()))


def use_one_thread() -> None:
    """Run operators in this thread alone, and reuse the code that Dynamo compiled for more threads.

    Compiled code has a guard on torch's global state, which includes the number of threads. The
    guard is rewritten if its state is JSON (torch 2.13); else Dynamo compiles the code once more.
    """
    torch.set_num_threads(1)
    for manager in _guard_managers():
        check = (getattr(manager, "closure_vars", None) or {}).get("___check_global_state")
        state = getattr(check, "__self__", None)
        text = None if state is None else state.__getstate__()
        if state is not None and isinstance(text, str):  # not a state of another form
            state.__setstate__(json.dumps({**json.loads(text), "num_threads": 1}))


def _guard_managers() -> Iterator[Any]:
    """Yield the guards of all code that Dynamo has compiled."""
    frames: Any = importlib.import_module("torch._dynamo.convert_frame")
    find_entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
    for reference in frames.input_codes.seen:
        code = reference()
        entries = [] if code is None else find_entries(code)
        yield from (entry.guard_manager for entry in entries)


class FloatRestart:
    """Floats of a graph that must be constants: Dynamo traces again with constants.

    With dynamic shapes, Dynamo makes the floats of a program inputs. If the traced graph has no
    tensor arithmetic for one (a dropout's probability), AOTAutograd raises.
    """

    @staticmethod
    def exception() -> type[BaseException]:
        """Return the exception."""
        return importlib.import_module("torch._dynamo.exc").TensorifyScalarRestartAnalysis

    @staticmethod
    def names() -> frozenset[str]:
        """Return the symbols that are to be numbers when Dynamo traces again."""
        state = importlib.import_module("torch._dynamo.symbolic_convert").TensorifyState
        return frozenset(state.force_specializations)

    @staticmethod
    def ask(names: Sequence[str], known: Container[str]) -> None:
        """Make Dynamo trace again with these symbols as numbers, if it has them and they are not.

        Raises:
            BaseException: `exception()`, where that changes anything: so it cannot go on for ever.
        """
        state = importlib.import_module("torch._dynamo.symbolic_convert").TensorifyState
        if FloatRestart.names().issuperset(names) or not all(name in known for name in names):
            return
        for name in names:
            state.specialize(name)
        raise FloatRestart.exception()


@contextmanager
def parameters_as_attributes() -> Generator[None]:
    """Let Dynamo make a module's tensors attributes of the graph, if gradients are off.

    Like Inductor's `freezing`. Dynamo reads the setting of the process, not the options of
    `torch.compile`. In torch: `is_parameter_freezing`.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    with config.patch(freezing=True):
        yield


@contextmanager
def specialized_floats() -> Generator[None]:
    """Let Dynamo take Python floats as constants.

    As inputs they make most backends ask Dynamo to trace again with constants, which takes a
    running Dynamo.
    """
    config: Any = importlib.import_module("torch._dynamo.config")
    with config.patch(specialize_float=True):
        yield


def graph_breaks() -> tuple[str, ...]:
    """Return why Dynamo has broken graphs in this process since it was reset, first lines only."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    return tuple(str(reason).splitlines()[0] for reason in utils.counters["graph_break"])


def wrap_compiled_calls(
    wrap: Callable[[Any, Any, object, bool | None], Any],
) -> Callable[[], None]:
    """Pass each compiled function through `wrap` when it is made; return the undo function.

    A compiled module, and `Module.compile`, call such a function, so they are covered.

    Args:
        wrap: Takes the compiled function, its original, the backend that the program named, and
            its `dynamic`; returns the function to call in its place.
    """
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    context: Any = module.OptimizeContext
    original = context.__call__

    def call(self: Any, fn: Any) -> Any:
        made = original(self, fn)
        if not isinstance(made, FunctionType) or not active[0]:
            return made
        wrapped = wrap(
            made, module.innermost_fn(fn), _backend_of(self), getattr(self, "_dynamic", None)
        )
        return made if wrapped is made else _in_disguise(wrapped, made)

    active = [True]
    undo_call = replace_attribute(context, "__call__", call)

    def undo() -> None:
        active[0] = False
        undo_call()

    return undo


def _backend_of(context: Any) -> object:
    """Return the backend that a program has named, of an optimize context."""
    backend = getattr(context, "callback", None)
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend


def take_apart(compiled: Any) -> tuple[Callable[..., Any], object] | None:
    """Return the function or module in a result of torch.compile, and the backend it names.

    None for other callables. A module on which `Module.compile` was called counts as a result.
    """
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    if isinstance(compiled, module.OptimizedModule):
        return compiled._orig_mod, _backend_of(compiled.dynamo_ctx)
    if isinstance(compiled, torch.nn.Module):
        made = getattr(compiled, "_compiled_call_impl", None)
        parts = take_apart(made) if made is not None else None
        return (compiled, parts[1]) if parts is not None else None
    disguises = [each for each in _captured(compiled) if isinstance(each, _Disguise)]
    made = disguises[0].made if disguises else compiled
    contexts = [each for each in _captured(made) if isinstance(each, module.OptimizeContext)]
    return (module.innermost_fn(made), _backend_of(contexts[0])) if contexts else None


def _captured(function: Any) -> list[object]:
    """Return the values that a function has captured from the scopes around it."""
    cells = getattr(function, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if cell != CellType()]  # that one is empty


@dataclass(frozen=True, slots=True)
class _Disguise:
    """A function that is called in place of the result of torch.compile, and that result."""

    function: Callable[..., Any]
    made: Any


def _in_disguise(function: Callable[..., Any], made: Any) -> Callable[..., Any]:
    """Return a function that calls `function`, and that a program cannot tell from `made`."""
    disguise = _Disguise(function, made)

    @functools.wraps(made)
    def compile_wrapper(*args: Any, **kwargs: Any) -> Any:
        return disguise.function(*args, **kwargs)

    disguised: Any = compile_wrapper
    disguised.__wrapped__ = made.__wrapped__
    if hasattr(made, "_torchdynamo_wrapper_id"):
        disguised._torchdynamo_wrapper_id = id(disguised)
    return disguised


def capture_data_dependent_sizes() -> None:
    """Capture operators whose results have sizes that the data tell."""
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
