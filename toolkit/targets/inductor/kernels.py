"""Code generation as events: each graph that Inductor compiles, its kernel, its first call.

Inductor hands every graph (forward, backward) to `inner_compile`, a backward graph often only at
the first backward call; the observer stays attached until then. A vetoed kernel is not generated:
its graph is interpreted instead, under the same boxed calling convention.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.observe import ErrorRecord, KernelRecord, Stage
from ctk.compiler.torch_compat.fx.graphs import Boxed
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.toolkit.case.raise_site import root_error
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame, KernelsVetoed, KernelVetoed
from ctk.toolkit.targets.inductor.hooks import install_hooks
from ctk.toolkit.targets.inductor.kernel_parts import spy_on_kernels
from ctk.toolkit.targets.inductor.lowering import Lowering
from ctk.toolkit.targets.inductor.regions import fail_pass
from ctk.toolkit.targets.reporting import interpret_graph, raise_innermost, report


def observe_inner_compile(compile_record: CompileRecord) -> inductor.InnerCompile:
    """Return an `inner_compile` that reports its compiles."""
    original = inductor.inner_compile()

    def inner_compile(
        gm: GraphModule, example_inputs: Sequence[object], *args: Any, **kwargs: Any
    ) -> Any:
        stage: Stage = "backward" if kwargs.get("is_backward") else "forward"
        with raise_innermost(), install_hooks(compile_record):
            frame = compile_record.open(stage, gm, example_inputs)
            try:
                return _compile(
                    compile_record, frame, lambda: original(gm, example_inputs, *args, **kwargs)
                )
            finally:
                compile_record.drop(frame)

    return inner_compile


def _compile(compile_record: CompileRecord, frame: Frame, compile_graph: Callable[[], Any]) -> Any:
    donated = inductor.donated_inputs() if frame.stage == "backward" else frozenset[int]()
    vetoed = False
    try:
        compiled = _compile_unless_vetoed(compile_record, frame, compile_graph)
    except KernelVetoed:
        compiled, vetoed = interpret_graph(frame.last), True
    except Exception as error:
        _fail(compile_record, frame, error)
        raise
    if frame.kernel is not None:
        seconds = time.perf_counter() - frame.kernel_started
        source = inductor.generated_source(compiled)
        compile_record.observer.on_kernel(
            KernelRecord(frame.kernel, frame.last, source=source, vetoed=vetoed, seconds=seconds)
        )
        _tell_parts(compile_record, frame)
    kernels = (frame.kernel,) if frame.kernel is not None else ()
    made = WatchedGraph(compile_record.observer, frame.stage, frame.last, kernels, donated)
    return inductor.wrap_compiled(compiled, lambda call: _watch_kernels(call, frame.lowering, made))


def _compile_unless_vetoed(
    compile_record: CompileRecord, frame: Frame, compile_graph: Callable[[], Any]
) -> Any:
    """Compile a graph; a second time if one of its kernels is vetoed, whose nodes fall back."""
    try:
        try:
            return compile_graph()
        except KernelsVetoed:
            assert frame.lowering is not None, "kernels are asked about while it is lowered"
            frame.lowering.again()
            return compile_graph()
    finally:
        _tell_lowering(compile_record, frame)


def _tell_lowering(compile_record: CompileRecord, frame: Frame) -> None:
    """Report the parts of a lowering, also of a failed one."""
    if frame.lowering is not None:
        frame.lowering.undo.close()
        for record in frame.lowering.records():
            compile_record.observer.on_pass(record)


def _tell_parts(compile_record: CompileRecord, frame: Frame) -> None:
    for part in frame.lowering.parts if frame.lowering is not None else ():
        record = KernelRecord(
            part.id,
            frame.last,
            part.nodes,
            part.source,
            part.suffix,
            vetoed=part.vetoed,
            stores=part.stores,
        )
        compile_record.observer.on_kernel(record)


def _watch_kernels(call: Boxed, lowering: Lowering | None, made: WatchedGraph) -> Boxed:
    if lowering is not None:
        call = spy_on_kernels(call, lowering.module, lowering.launches, made)
    return watch_calls(call, made)


def _fail(compile_record: CompileRecord, frame: Frame, error: Exception) -> None:
    if frame.kernel is None:
        fail_pass(compile_record, frame, error)
        return
    failed = frame.lowering.failed if frame.lowering is not None else None
    pass_id, node = failed or (None, _find_lowered_node(error))
    record = ErrorRecord(
        error, "lowered", pass_id, kernel=frame.kernel, node=node, graph=frame.last
    )
    report(compile_record.observer, record)


def _find_lowered_node(error: BaseException) -> str | None:
    """Return the node whose lowering raised, or whose lowered form failed in code generation.

    The traceback's innermost `run_node(n)`, or the innermost method of a piece of Inductor's IR
    that computes a node.
    """
    found = None
    for frame, _ in traceback.walk_tb(root_error(error).__traceback__):
        node = frame.f_locals.get("n")
        if frame.f_code.co_name == "run_node" and isinstance(node, Node):
            found = node.name
        origin = inductor_lowering.origin_of(frame.f_locals.get("self"))
        found = origin.name if origin is not None else found
    return found
