"""The calls of a compiled graph, for targets that do not report them: first values, exceptions.

All callables here are boxed, as AOTAutograd wants them: they take one list of inputs and may
clear it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ctk.compiler import torch_compat
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.observe import (
    CallRecord,
    ErrorRecord,
    KernelCall,
    KernelId,
    Observer,
    PassId,
    RewriteId,
    Stage,
)
from ctk.toolkit.case.raise_site import root_error
from ctk.toolkit.run import clone

Boxed = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A graph that was compiled, and what its calls are to be reported as.

    Attributes:
        donated: Positions of inputs whose memory the compiled code may reuse, so that their
            contents after a call mean nothing; the record shows them unchanged.
    """

    observer: Observer = field(repr=False)
    stage: Stage
    graph: GraphModule = field(repr=False)
    kernel: KernelId | None
    donated: frozenset[int] = frozenset()


def interpreted(graph: GraphModule) -> Boxed:
    """Return a boxed callable that runs a graph operator by operator, as a vetoed kernel does."""

    def run(args: list[Any]) -> Any:
        with torch.no_grad():
            return Interpreter(graph).boxed_run(args)

    return torch_compat.boxed(run)


def watched(call: Boxed, job: Job) -> Boxed:
    """Return `call`, reporting every exception and, if wanted, its first call's values."""
    pending = [job.observer.keep_calls]

    def run(args: list[Any]) -> Any:
        if pending[0]:
            pending[0] = False
            return _recorded(call, job, args)
        return _located(call, job, args)

    return run


def _located(call: Boxed, job: Job, args: list[Any]) -> Any:
    try:
        return call(args)
    except Exception as error:
        stage: Stage = "lowered" if job.kernel else job.stage
        report(job.observer, error, stage=stage, kernel=job.kernel, graph=job.graph)
        raise


def _recorded(call: Boxed, job: Job, args: list[Any]) -> Any:
    held, inputs = list(args), clone.clone_inputs(args)
    outputs = _located(call, job, args)
    results: Sequence[object] = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    after = tuple(
        inputs[i] if i in job.donated else clone_value(value) for i, value in enumerate(held)
    )
    cloned = tuple(clone_value(value) for value in results)
    kernels = (KernelCall(job.kernel),) if job.kernel is not None else ()
    job.observer.on_call(CallRecord(job.stage, job.graph, inputs, cloned, after, kernels))
    return outputs


def report(
    observer: Observer,
    error: BaseException,
    *,
    stage: Stage,
    pass_id: PassId | None = None,
    rewrite: RewriteId | None = None,
    kernel: KernelId | None = None,
    node: str | None = None,
    graph: GraphModule | None = None,
    where: str | None = None,
) -> None:
    """Write the place on an exception (`ctk_where` and a note) and tell the observer, once.

    Args:
        observer: Gets the record.
        error: What was raised; if torch wrapped it, the innermost exception is meant.
        stage: Stage of the graph.
        pass_id: The pass that raised.
        rewrite: The rewrite that raised.
        kernel: The kernel that raised, while it was generated or called.
        node: The node at hand.
        graph: A copy of the graph at that time.
        where: Name of the place, if it is none of these.
    """
    inner = root_error(error)
    if getattr(inner, "ctk_where", None) is not None:
        return
    where = where or str(kernel or pass_id or stage)
    inner.ctk_where = where  # type: ignore[attr-defined]  # exceptions take attributes
    places = [f"in {where}", str(rewrite) if rewrite else "", f"at node {node}" if node else ""]
    around = f"\n{excerpt(graph.graph, node)}" if graph is not None else ""
    text = ", ".join(place for place in places if place)
    inner.add_note(f"ctk: {text}{around}\nctk: whole story: ctk diagnose")
    observer.on_error(ErrorRecord(inner, stage, pass_id, rewrite, kernel, node, graph))
