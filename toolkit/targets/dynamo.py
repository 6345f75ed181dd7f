"""Dynamo backends as targets: registered names, `MODULE:CALLABLE`, `path/to/file.py:callable`.

Any of them is captured graph in, callable out. Backends made with AOTAutograd (`aot_eager`,
`aot_ts`, everything that goes through `torch._dynamo.backends.common.aot_autograd`) also show
their joint, forward and backward graphs. For others the whole compile is one kernel,
`lowered/NAME:captured`; vetoed, the captured graph runs in eager. Passes inside a backend stay
unseen: bisect names a graph, and the reducer does the rest.
"""

import inspect
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, cast

from torch.fx import GraphModule

from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.errors import ConfigError, TargetError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import (
    ErrorRecord,
    KernelId,
    KernelRecord,
    Observer,
    PassId,
    StageRecord,
    first_line,
)
from ctk.compiler.resilience import DISPATCH
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor.patch_sites import wrap_site
from ctk.compiler.usercode.references import load
from ctk.repro_templates.graph.loading import loaded_function, registered_backend
from ctk.toolkit.targets.aot_events import AotEvents
from ctk.toolkit.targets.base import Compiled, Inputs, Options, Target
from ctk.toolkit.targets.reporting import raise_innermost, report

Backend = Callable[..., Any]


def find_registered_target(name: str) -> Target:
    """Return the target of a backend that is registered with Dynamo.

    Raises:
        TargetError: The package behind the name cannot be imported.
    """
    try:
        backend = dynamo.find_backend(name)
    except Exception as error:
        raise TargetError(
            f"target {name!r} cannot be loaded: {type(error).__name__}: {first_line(error)}\n"
            "next: install the package that registers it, or choose another target: ctk doctor"
        ) from error
    return BackendTarget(name, backend)


def callable_target(spec: str) -> Target:
    """Return the target for `MODULE:CALLABLE` or `path/to/file.py:callable`.

    Raises:
        TargetError: It cannot be imported, has no such attribute, or cannot be called.
    """
    backend = load(spec, kind="target", error=TargetError)
    if not callable(backend):
        raise TargetError(
            f"target {spec!r} is a {type(backend).__name__}, which cannot be called\n"
            "next: name a function of (gm, example_inputs) that returns a callable"
        )
    return BackendTarget(spec, backend)


def _not_loaded(*_arguments: object, **_options: object) -> Any:
    raise TargetError("this target was not loaded; resolve_target loads it")


class BackendTarget(Target):
    """A target that calls `backend(gm, example_inputs)`, a config going in as `options`.

    Its kernels are named without the folder of a file: `lowered/backend.py:fancy:captured`.
    """

    def __init__(self, spec: str, backend: Backend = _not_loaded) -> None:
        self.name, self._backend = spec, backend
        place = spec.rpartition(":")[0]
        is_installed = not place or place.endswith(".py")
        self.needs = "" if is_installed else place.partition(".")[0]
        self.repro_backend = loaded_function if place else registered_backend

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        self.check_config(config)
        options = {"options": dict(config)} if config else {}
        call = partial(self._backend, gm, list(example_inputs), **options)
        with raise_innermost():
            if observer is None:
                return cast("Compiled", call())
            return observe_graphs(Path(self.name).name, gm, example_inputs, call, observer)

    def check_config(self, config: Options) -> None:
        """Check that a backend that gets options can take them.

        Raises:
            ConfigError: There are options, and the backend has no parameter for them.
        """
        if not config:
            return
        try:
            parameters = inspect.signature(self._backend).parameters.values()
        except (TypeError, ValueError):
            return  # a builtin checks its own arguments
        if any(p.name == "options" or p.kind is p.VAR_KEYWORD for p in parameters):
            return
        raise ConfigError(
            f"target {self.name!r} takes no options, got {', '.join(sorted(config))}\n"
            "next: give the backend a parameter `options`: torch.compile(options=...) passes it "
            "there"
        )


def observe_graphs(
    name: str,
    gm: GraphModule,
    example_inputs: Sequence[object],
    call: Callable[[], Any],
    observer: Observer,
) -> Compiled:
    """Report the graphs that AOTAutograd shows; a backend that shows none is one kernel.

    The two look alike before the call, and the call may never return. So the observer is
    first asked about a pass of the same name.
    """
    captured, kernel = copy_graph_module(gm), KernelId(name, "captured")
    observer.on_stage(StageRecord("captured", captured, tuple(example_inputs)))
    events = AotEvents(name, observer)
    started = time.perf_counter()
    if not observer.allow_pass(PassId("lowered", f"{name}:captured")):
        return _veto_backend(observer, kernel, captured, started)
    try:
        with _aot_watched(events):
            compiled = call()
    except Exception as error:
        if events.is_aot:
            report(observer, ErrorRecord(error, "captured", graph=captured), where=DISPATCH)
            raise
        if not observer.allow_kernel(kernel):
            return _veto_backend(observer, kernel, captured, started)
        report(observer, ErrorRecord(error, "captured", kernel=kernel, graph=captured))
        raise
    if events.is_aot and events.has_graphs:
        return cast("Compiled", compiled)
    if not observer.allow_kernel(kernel):
        return _veto_backend(observer, kernel, captured, started)
    seconds = time.perf_counter() - started
    observer.on_kernel(KernelRecord(kernel, captured, seconds=seconds))
    made = WatchedGraph(observer, "captured", captured, (kernel,))
    run = watch_calls(lambda args: compiled(*args), made)

    @wraps(compiled, updated=())  # its state is the user's (python_state.py)
    def call_graph(*args: object) -> object:
        return run(list(args))

    return call_graph


def _veto_backend(
    observer: Observer, kernel: KernelId, captured: GraphModule, started: float
) -> GraphModule:
    """Return the captured graph, which runs in eager, and tell that the backend was left out."""
    seconds = time.perf_counter() - started
    observer.on_kernel(KernelRecord(kernel, captured, vetoed=True, seconds=seconds))
    return captured


@contextmanager
def _aot_watched(events: AotEvents) -> Generator[None]:
    """Wrap the compilers of every AOTAutograd backend that is called inside; undo it afterwards."""
    thread = threading.get_ident()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(backend: Any, gm: GraphModule, inputs: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:  # it compiles something else, without the lock
                return original(backend, gm, inputs, **kwargs)
            events.is_aot = True
            return original(_with_events(backend, events), gm, inputs, **kwargs)

        return call

    with (
        inductor.compile_lock(),
        events.decompositions.hook(),
        events.fake_kernels.hook(),
        wrap_site(aot.backend_site(), wrap),
    ):
        yield


def _with_events(backend: Any, events: AotEvents) -> Any:
    """Return a copy of an AOTAutograd backend whose compilers report their graphs."""
    from functorch.compile import default_partition  # loads torch's compiler parts

    kwargs = dict(backend.kwargs)
    forward: Any = kwargs.get("fw_compiler")
    if not _is_plain(forward):
        return backend  # it wants a compiler of a class of its own: leave it alone
    backward: Any = kwargs.get("bw_compiler") or forward
    inference: Any = kwargs.get("inference_compiler") or forward
    kwargs["fw_compiler"] = events.compiler("forward", forward)
    kwargs["inference_compiler"] = events.compiler("forward", inference)
    if _is_plain(backward):
        kwargs["bw_compiler"] = events.compiler("backward", backward)
    partition: Any = kwargs.get("partition_fn") or default_partition
    kwargs["partition_fn"] = _partition(partition, events)
    return type(backend)(**kwargs)


def _is_plain(compiler: Any) -> bool:
    return callable(compiler) and not hasattr(compiler, "compiler_fn")


def _partition(partition: Backend, events: AotEvents) -> Backend:
    def run(gm: GraphModule, inputs: Any, **kwargs: Any) -> Any:
        events.joint(gm, graphs.tree_leaves(inputs))
        if not events.observer.allow_pass(PassId("joint", "partition")):
            return aot.plain_partition(gm, inputs, kwargs)
        return partition(gm, inputs, **kwargs)

    return run
