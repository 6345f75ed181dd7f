"""Code generation as events: each graph that Inductor compiles, its kernel, and the values of its first call.

Inductor hands every graph (forward, backward) to `inner_compile`, a backward graph often only at the first backward
call; the observer stays attached until then. A vetoed kernel is not generated: its graph is interpreted instead, under
the same boxed calling convention.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from compiler import torch_compat
from compiler.observe import CallRecord, KernelId, KernelRecord, Stage
from torch.fx import GraphModule, Interpreter

from toolkit import clone
from toolkit.targets.inductor_errors import fail_pass, lowered_node, report, reraise
from toolkit.targets.inductor_hooks import installed
from toolkit.targets.inductor_session import Frame, KernelVetoed, Session

Boxed = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A graph that was compiled, and what its calls are to be reported as.

    Attributes:
        donated: Positions of inputs whose memory the compiled code may reuse, so that their contents after a call
            mean nothing.
    """

    session: Session = field(repr=False)
    stage: Stage
    graph: GraphModule = field(repr=False)
    kernel: KernelId | None
    donated: frozenset[int]


def observed_inner_compile(session: Session) -> torch_compat.InnerCompile:
    """Return an `inner_compile` that reports what it compiles."""
    original = torch_compat.inductor_inner_compile()

    def inner_compile(gm: GraphModule, example_inputs: Sequence[object], *args: Any, **kwargs: Any) -> Any:
        stage: Stage = "backward" if kwargs.get("is_backward") else "forward"
        with installed(session):
            frame = session.open(stage, gm, example_inputs)
            try:
                return _compile(session, frame, lambda: original(gm, example_inputs, *args, **kwargs))
            finally:
                session.drop(frame)

    return inner_compile


def plain_inner_compile() -> torch_compat.InnerCompile:
    """Return Inductor's `inner_compile`, with exceptions that keep their type."""
    original = torch_compat.inductor_inner_compile()

    def inner_compile(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            reraise(error)

    return inner_compile


def _compile(session: Session, frame: Frame, compile_graph: Callable[[], Any]) -> Any:
    donated = torch_compat.donated_inputs() if frame.stage == "backward" else frozenset[int]()
    vetoed = False
    try:
        compiled = compile_graph()
    except KernelVetoed:
        compiled, vetoed = torch_compat.boxed(_interpreted(frame.last)), True
    except Exception as error:
        _fail(session, frame, error)
        reraise(error)
    if frame.kernel is not None:
        seconds = time.perf_counter() - frame.kernel_started
        source = torch_compat.generated_source(compiled)
        session.observer.on_kernel(
            KernelRecord(frame.kernel, frame.last, source, vetoed=vetoed, seconds=seconds)
        )
    job = Job(session, frame.stage, frame.last, frame.kernel, donated)
    return torch_compat.wrap_compiled(compiled, lambda call: _watched(call, job))


def _fail(session: Session, frame: Frame, error: Exception) -> None:
    if frame.kernel is None:
        fail_pass(session, frame, error)
        return
    node = lowered_node(error)
    report(session, error, stage="lowered", kernel=frame.kernel, node=node, graph=frame.last)


def _interpreted(graph: GraphModule) -> Boxed:
    """Return a boxed callable that runs a graph operator by operator."""

    def run(args: list[Any]) -> Any:
        with torch.no_grad():
            return Interpreter(graph).boxed_run(args)

    return run


def _watched(call: Boxed, job: Job) -> Boxed:
    """Return `call` that reports its first call's values, and every exception."""
    pending = [job.session.observer.keep_calls]

    def watched(args: list[Any]) -> Any:
        if pending[0]:
            pending[0] = False
            return _recorded(call, job, args)
        return _located(call, job, args)

    return watched


def _located(call: Boxed, job: Job, args: list[Any]) -> Any:
    try:
        return call(args)
    except Exception as error:
        stage: Stage = "lowered" if job.kernel else job.stage
        report(job.session, error, stage=stage, kernel=job.kernel, graph=job.graph)
        raise


def _recorded(call: Boxed, job: Job, args: list[Any]) -> Any:
    held, inputs = list(args), clone.clone_inputs(args)
    outputs = _located(call, job, args)
    results = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    after = tuple(
        inputs[i] if i in job.donated else clone.snapshot(value) for i, value in enumerate(held)
    )
    cloned = tuple(clone.snapshot(value) for value in results)
    job.session.observer.on_call(CallRecord(job.stage, job.graph, inputs, cloned, after))
    return outputs
