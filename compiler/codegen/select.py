"""Ask code generators in order until one takes the graph, tell the observer, and log who refused.

It knows no generator but `eager`, which runs vetoed kernels; the table is an argument.
"""

import contextlib
import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, Codegen, CodegenOptions
from ctk.compiler.codegen.eager import CODEGEN as EAGER
from ctk.compiler.codegen.first_call import record_first_call
from ctk.compiler.errors import CodegenUnsupported, ConfigError, nearest
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import ErrorRecord, KernelId, KernelRecord, Observer, first_line
from ctk.compiler.torch_compat import dispatch_modes_off

log = logging.getLogger("ctk.codegen")


@dataclass(frozen=True, slots=True)
class _Request:
    """One graph to compile, and who is to hear of it."""

    gm: GraphModule
    example_inputs: Sequence[object] = field(repr=False)
    options: CodegenOptions
    on_failure: Literal["raise", "fallback", "warn"]
    observer: Observer | None

    def kernel(self, codegen: str) -> KernelId:
        return KernelId(codegen, self.options.name)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a code generator did not compile a graph: it cannot take it, or it failed."""

    codegen: str
    error: Exception

    def __str__(self) -> str:
        reason = first_line(self.error)
        if isinstance(self.error, CodegenUnsupported):
            return f"{self.codegen} refuses it: {reason}"
        return f"{self.codegen} failed: {type(self.error).__name__}: {reason}"


def compile_with_first(
    table: Sequence[Codegen],
    names: Sequence[str],
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    options: CodegenOptions,
    on_failure: Literal["raise", "fallback", "warn"],
    observer: Observer | None,
) -> BoxedCallable:
    """Compile with the first generator of `table` in the order of `names` that takes the graph.

    See `codegen.generate` for the arguments and what is raised.
    """
    request = _Request(gm, example_inputs, options, on_failure, observer)
    refusals: list[_Refusal] = []
    for codegen in [_lookup(table, name) for name in names]:
        vetoed = observer is not None and not observer.allow_kernel(request.kernel(codegen.name))
        start = time.perf_counter()
        compiled = _compile(request, EAGER if vetoed else codegen)
        if isinstance(compiled, _Refusal):
            refusals.append(compiled)
            continue
        _announce(request, refusals, codegen.name)
        seconds = time.perf_counter() - start
        return _observed(request, compiled, refusals, codegen.name, vetoed=vetoed, seconds=seconds)
    raise _nobody(request, refusals)


def _lookup(table: Sequence[Codegen], name: str) -> Codegen:
    names = [codegen.name for codegen in table]
    if name not in names:
        hint = nearest(name, names)
        raise ConfigError(f"unknown code generator {name!r}{hint}; there are {', '.join(names)}")
    return table[names.index(name)]


def _compile(request: _Request, codegen: Codegen) -> BoxedCallable | _Refusal:
    try:
        return codegen.compile(request.gm, request.example_inputs, request.options)
    except CodegenUnsupported as error:
        return _Refusal(codegen.name, error)
    except Exception as error:
        _add_context(request, codegen.name, error)
        if request.on_failure == "raise":
            raise
        return _Refusal(codegen.name, error)


def _add_context(request: _Request, codegen: str, error: Exception) -> None:
    """Write on an exception where it was raised, and tell the observer."""
    options = request.options
    where = f"lowered/{codegen}:{options.name}"
    nodes = len(request.gm.graph.nodes)
    error.add_note(
        f"in {where}: code generation of a graph with {nodes} nodes, stage {options.stage}"
    )
    error.add_note(
        "Config(on_failure='fallback') or CTK_ON_FAILURE=fallback asks the next generator instead"
    )
    with contextlib.suppress(AttributeError):  # an exception with slots takes no attribute
        error.ctk_where = where  # type: ignore[attr-defined]  # read by the pipeline and by oracles
    if request.observer is not None:
        graph = copy_graph_module(request.gm)
        kernel = request.kernel(codegen)
        request.observer.on_error(ErrorRecord(error, options.stage, kernel=kernel, graph=graph))


def _announce(request: _Request, refusals: Sequence[_Refusal], taken_by: str) -> None:
    """Say in one line which graph was refused, by whom and why, and who compiled it."""
    if not refusals:
        return
    why = "; ".join(str(refusal) for refusal in refusals)
    line = f"graph {request.options.name} ({request.options.stage}): {why}; {taken_by} takes it"
    failed = any(not isinstance(refusal.error, CodegenUnsupported) for refusal in refusals)
    if failed and request.on_failure == "warn":
        warnings.warn(f"ctk: {line}", RuntimeWarning, stacklevel=2)
    else:
        log.warning("%s", line)


def _nobody(request: _Request, refusals: Sequence[_Refusal]) -> Exception:
    """Return what to raise when no generator is left: the first failure, else all reasons."""
    failures = [each.error for each in refusals if not isinstance(each.error, CodegenUnsupported)]
    if failures:
        return failures[0]
    reasons = "\n".join(f"  {refusal}" for refusal in refusals)
    return CodegenUnsupported(
        f"no code generator takes graph {request.options.name} ({request.options.stage}):\n"
        f"{reasons}\n"
        "'eager' takes every graph: add it to Config.fallback"
    )


def _observed(
    request: _Request,
    compiled: BoxedCallable,
    refusals: Sequence[_Refusal],
    codegen: str,
    *,
    vetoed: bool,
    seconds: float,
) -> BoxedCallable:
    """Tell the observer of a kernel; wrap the kernel if the values of its first call are wanted."""
    if request.observer is None:
        return compiled
    graph = copy_graph_module(request.gm)
    record = KernelRecord(
        request.kernel(codegen),
        graph,
        source=_source_of(compiled),
        reason="; ".join(str(refusal) for refusal in refusals) or None,
        vetoed=vetoed,
        seconds=seconds,
    )
    request.observer.on_kernel(record)
    if not request.observer.keep_calls:
        return compiled
    stage, kernel = request.options.stage, request.kernel(codegen)
    return record_first_call(compiled, kernel, stage, graph, request.observer)


def _source_of(compiled: BoxedCallable) -> str:
    """Print the generated code; the fake mode of the compile must not see the constants."""
    with dispatch_modes_off():
        return compiled.ctk_source()
