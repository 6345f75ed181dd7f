"""Ask code generators in order until one takes the graph, notify the observer, and log refusals."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from torch.fx import GraphModule

from ctk.compiler.codegen import CODEGENS
from ctk.compiler.codegen.base import BoxedCallable, as_boxed
from ctk.compiler.codegen.kernels import Codegen, KernelContext
from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.error_place import place
from ctk.compiler.errors import CodegenUnsupported, ConfigError, nearest
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.observe import ErrorRecord, Observer, Stage, first_line, is_observers
from ctk.compiler.options.config import Config
from ctk.compiler.phases import phase
from ctk.compiler.rewriting.numbering import Numbering

log = logging.getLogger("ctk.codegen")

_HINT = "Config(on_failure='fallback') or CTK_ON_FAILURE=fallback asks the next generator instead"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a code generator did not compile a graph: it cannot take it, or it failed."""

    codegen: str
    error: Exception

    def __str__(self) -> str:
        return self._said(first_line(self.error))

    @property
    def in_full(self) -> str:
        """The message of the generator, with the output of its compiler."""
        return self._said(str(self.error).strip() or first_line(self.error))

    def _said(self, reason: str) -> str:
        if isinstance(self.error, CodegenUnsupported):
            return f"{self.codegen} refuses it: {reason}"
        return f"{self.codegen} failed: {type(self.error).__name__}: {reason}"


def generate(
    gm: GraphModule, example_inputs: Sequence[object], stage: Stage, numbering: Numbering
) -> BoxedCallable:
    """Compile a graph with `Config.codegen`, or with the first of `Config.fallback` that takes it.

    Args:
        numbering: Of the compile. Its config lists the generators, and the policy for an unexpected
            exception (`on_failure`): `raise` it, `fallback` to the next generator, or `warn` and do
            so. A refusal (`CodegenUnsupported`) does not count as a failure: the next one is asked.
            Its observer may veto kernels, whose nodes then run in eager, and sees kernels, first
            calls and errors.

    Returns:
        A boxed callable. Without an observer it is the generator's own, with nothing around it.

    Raises:
        ConfigError: A name is not in the table.
        CodegenUnsupported: No generator takes the graph; lists the reason of each.
    """
    config, observer = numbering.config, numbering.observer
    refusals: list[_Refusal] = []
    for codegen in generators(config, gm):
        context = KernelContext(codegen, stage, numbering)
        try:
            with phase("lowered", f"{codegen.name}:{stage}"):
                compiled = codegen.compile(gm, example_inputs, context)
        except CodegenUnsupported as error:
            refusals.append(_Refusal(codegen.name, error))
        except Exception as error:
            if is_observers(error):
                raise
            kernel, node = context.at_hand()
            record = ErrorRecord(error, "lowered", kernel=kernel, node=node, graph=gm)
            place(record, observer, hint=_HINT)
            if config.on_failure == "raise":
                raise
            refusals.append(_Refusal(codegen.name, error))
        else:
            _announce(stage, config, refusals, codegen.name)
            if observer is None:
                return compiled
            return _observed(gm, compiled, context, observer, refusals)
    raise _nobody(stage, refusals)


AUTO = "auto"
"""The `Config.codegen` that leaves the choice to the graph's devices."""


def generators(config: Config, gm: GraphModule | None = None) -> list[Codegen]:
    """Return the generators that a compile asks, in order, each once.

    Without a graph only the names are checked.

    Raises:
        ConfigError: A name is not in the table.
    """
    table = {codegen.name: codegen for codegen in CODEGENS}
    first = _for_devices(gm) if config.codegen == AUTO else config.codegen
    names = tuple(dict.fromkeys((first, *config.fallback)))
    for name in names:
        if name not in table:
            raise ConfigError(
                f"unknown code generator {name!r}{nearest(name, table)}; "
                f"there are {', '.join(table)}, and {AUTO}, which chooses by the devices of a graph"
            )
    return [table[name] for name in names]


def _for_devices(gm: GraphModule | None) -> str:
    values = (tensor_of(node) for node in gm.graph.nodes) if gm is not None else ()
    return "triton" if any(value is not None and value.is_cuda for value in values) else "c"


def _announce(stage: Stage, config: Config, refusals: Sequence[_Refusal], taken_by: str) -> None:
    if not refusals:
        return
    why = "; ".join(str(refusal) for refusal in refusals)
    line = f"graph {stage}: {why}; {taken_by} takes it"
    failed = any(not isinstance(refusal.error, CodegenUnsupported) for refusal in refusals)
    if failed and config.on_failure == "warn":
        warnings.warn(f"ctk: {line}", RuntimeWarning, stacklevel=2)
    else:
        log.warning("%s", line)


def _nobody(stage: Stage, refusals: Sequence[_Refusal]) -> Exception:
    """Return what to raise when no generator is left: the first failure, else all reasons."""
    failures = [each.error for each in refusals if not isinstance(each.error, CodegenUnsupported)]
    if failures:
        return failures[0]
    reasons = "\n".join(indent(refusal.in_full, "  ") for refusal in refusals)
    return CodegenUnsupported(
        f"no code generator takes graph {stage}:\n{reasons}\n"
        "'eager' takes every graph: add it to Config.fallback"
    )


def _observed(
    gm: GraphModule,
    compiled: BoxedCallable,
    context: KernelContext,
    observer: Observer,
    refusals: Sequence[_Refusal],
) -> BoxedCallable:
    graph = context.copy_of(gm)
    reason = "; ".join(str(refusal) for refusal in refusals) or None
    records = context.records(graph, reason)
    for record in records:
        observer.on_kernel(record)
    kernels = tuple(record.id for record in records)
    watched = WatchedGraph(observer, context.stage, graph, kernels, returned=context.returned)
    return as_boxed(watch_calls(compiled, watched), compiled.ctk_source)
