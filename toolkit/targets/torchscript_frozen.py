"""TorchScript with the weights inside, as its users have it: traced, frozen and optimised.

The captured graph holds the parameters of the user's module. It is traced unchanged, without
autograd dispatch, and the passes of `torch.jit.freeze` and `torch.jit.optimize_for_inference` run
one by one, each with a name, vetoed or not:

    captured    conv2d(x, self.weight); add(y, y, alpha=2)
    frozen      frozen/trace_and_freeze, frozen/fold_frozen_conv_bn, ...
                frozen/convert_frozen_ops_to_mkldnn: aten::add became aten::add_
    lowered     lowered/torchscript:frozen, the work of torch.jit's executor

A graph of torch.jit is shown as an FX graph with one node, which runs it. Gradients, sizes that
change, results that are not tensors and buffers that are written to are out of scope: for such a
graph `compile_frozen` raises `CodegenUnsupported`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.torchscript.torchscript_codegen import are_real, compiling
from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.clone import clone_value, clone_values, layout, put_back
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.outputs import flatten_outputs
from ctk.compiler.fx.walk import input_names, output_leaves
from ctk.compiler.observe import (
    ErrorRecord,
    KernelRecord,
    Observer,
    PassRecord,
    RewriteRecord,
    Stage,
    StageRecord,
    first_line,
)
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed
from ctk.compiler.torch_compat.torchscript import torchscript_api as torchscript
from ctk.compiler.torch_compat.torchscript.torchscript_api import JitGraph, JitPass
from ctk.toolkit.targets.base import Compiled
from ctk.toolkit.targets.reporting import interpret_graph, report

STAGE: Stage = "frozen"


def compile_frozen(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    optimize_for_inference: bool,
    observer: Observer | None,
) -> Compiled:
    """Compile a captured graph without gradients, its parameters as constants.

    Args:
        gm: Holds its parameters; not changed.
        example_inputs: Real tensors, one per placeholder; only read.
        optimize_for_inference: Also run the passes of `torch.jit.optimize_for_inference`.

    Raises:
        CodegenUnsupported: TorchScript cannot freeze the graph.
    """
    return _Frozen(gm, tuple(example_inputs), observer).compile_call(optimize_for_inference)


def show_as_fx(graph: JitGraph, captured: GraphModule) -> GraphModule:
    """Return a graph of torch.jit as an FX graph of one node, with the inputs of another."""
    run = torchscript.function_of(graph)

    def torchscript_graph(*args: object) -> object:
        with torch.no_grad():
            return run(*args)

    torchscript_graph.__doc__ = torchscript.text_of(graph)
    made = Graph()
    inputs = [made.placeholder(name) for name in input_names(captured)]
    made.output(made.call_function(torchscript_graph, tuple(inputs)))
    return GraphModule({}, made)


class _Frozen:
    """One compile."""

    def __init__(
        self, gm: GraphModule, inputs: tuple[object, ...], observer: Observer | None
    ) -> None:
        self._captured = copy_graph_module(gm)
        self._restore = flatten_outputs(self._captured)
        self._inputs, self._observer = inputs, observer
        self._numbering = Numbering(observer)
        _check(self._captured, inputs)

    def compile_call(self, for_inference: bool) -> Compiled:
        call = self._lower(for_inference)
        restore = self._restore
        if restore is None:
            return lambda *args: call(list(args))
        return lambda *args: restore(call(list(args)))

    def _lower(self, for_inference: bool) -> Boxed:
        with compiling():
            graph, last = self._freeze()
            if graph is None:
                return interpret_graph(self._captured)
            for each in torchscript.jit_passes():
                if for_inference or not each.for_inference:
                    graph, last = self._ran(each, graph, last)
            return self._kernel(graph, last)

    def _freeze(self) -> tuple[JitGraph | None, GraphModule]:
        """Trace and freeze; None if that was refused: then eager runs."""
        pass_id = self._numbering.pass_id(STAGE, "trace_and_freeze")
        if not self._numbering.allow_pass(pass_id):
            self._enter("captured")
            self._tell(PassRecord(pass_id, "exact", self._captured, self._captured, vetoed=True))
            return None, self._captured
        started = time.perf_counter()
        graph = _trace_and_freeze(self._captured, self._inputs)
        after = show_as_fx(graph, self._captured)
        self._enter("captured")  # only now it is sure that the graph can be frozen
        self._enter(STAGE)
        seconds = time.perf_counter() - started
        self._tell(PassRecord(pass_id, "exact", self._captured, after, seconds=seconds))
        return graph, after

    def _ran(
        self, each: JitPass, graph: JitGraph, before: GraphModule
    ) -> tuple[JitGraph, GraphModule]:
        """Run one pass; return its graph, or the one before it."""
        pass_id = self._numbering.pass_id(STAGE, each.name)
        if not self._numbering.allow_pass(pass_id):
            self._tell(PassRecord(pass_id, "reassociates", before, before, vetoed=True))
            return graph, before
        started, new = time.perf_counter(), graph.copy()
        try:
            each.run(new)
        except Exception as error:
            if self._observer is not None:
                report(self._observer, ErrorRecord(error, STAGE, pass_id, graph=before))
            raise
        kinds = torchscript.changed_kinds(graph, new)
        is_same = torchscript.text_of(graph) == torchscript.text_of(new)
        if is_same or not self._keeps_layout(graph, new):
            self._tell(PassRecord(pass_id, "reassociates", before, before))
            return graph, before
        rewrite = self._numbering.rewrite_id(pass_id, " ".join(kinds) or each.name)
        allowed = self._numbering.allow_rewrite(rewrite)
        after = (
            show_as_fx(new, self._captured) if allowed and self._observer is not None else before
        )
        made = RewriteRecord(rewrite, (), vetoed=not allowed, after=lambda: after)
        seconds = time.perf_counter() - started
        self._tell(PassRecord(pass_id, "reassociates", before, after, (made,), seconds=seconds))
        return (new, after) if allowed else (graph, before)

    def _keeps_layout(self, before: JitGraph, after: JitGraph) -> bool:
        """Return whether results keep their strides: of oneDNN's formats the caller knows nothing.

        Source: as `ts_compile` does. Differs: each pass is looked at alone.
        """
        old, new = (self._run(torchscript.function_of(each)) for each in (before, after))
        return layout(old) == layout(new)

    def _run(self, function: Callable[..., Any]) -> list[object]:
        with torch.random.fork_rng(_devices(self._inputs)):
            return list(function(*clone_values(self._inputs)))

    def _kernel(self, graph: JitGraph, last: GraphModule) -> Boxed:
        kernel = self._numbering.kernel_id("torchscript", STAGE)
        started, observer = time.perf_counter(), self._observer
        if observer is not None:
            observer.on_stage(StageRecord("lowered", last, self._inputs))
        vetoed = not self._numbering.allow_kernel(kernel)
        call = interpret_graph(self._captured) if vetoed else _box_graph(graph)
        if observer is None:
            return call
        seconds, text = time.perf_counter() - started, torchscript.text_of(graph)
        record = KernelRecord(kernel, last, source=text, vetoed=vetoed, seconds=seconds)
        observer.on_kernel(record)
        return watch_calls(call, WatchedGraph(observer, STAGE, last, (kernel,)))

    def _enter(self, stage: Stage) -> None:
        if self._observer is not None:
            self._observer.on_stage(StageRecord(stage, self._captured, self._inputs))

    def _tell(self, record: PassRecord) -> None:
        if self._observer is not None:
            self._observer.on_pass(record)


def _box_graph(graph: JitGraph) -> Boxed:
    """Return a boxed callable; results that share memory with a constant are copied."""
    function = torchscript.function_of(graph)
    folded = torchscript.outputs_of_constants(graph)

    def run(args: list[Any]) -> Any:
        inputs = tuple(args)
        args.clear()
        with torch.no_grad():
            values = list(function(*inputs))
        for index in folded:
            values[index] = clone_value(values[index])
        return values

    return boxed(run)


def _check(captured: GraphModule, inputs: Sequence[object]) -> None:
    """Check that a graph is one of tensors with fixed sizes.

    Raises:
        CodegenUnsupported: It is not.
    """
    if not (are_real(inputs) and all(isinstance(value, Tensor) for value in inputs)):
        raise CodegenUnsupported("an input is not a tensor, or has a symbolic size")
    if not all(isinstance(leaf, Node) for leaf in output_leaves(captured)):
        raise CodegenUnsupported("a result is not a tensor")
    names = [str(getattr(n.target, "__name__", n.target)) for n in captured.graph.nodes]
    if any("autocast" in name for name in names) or torch.is_autocast_enabled("cpu"):
        raise CodegenUnsupported("autocast: a trace would keep casts of weights")


def _trace_and_freeze(captured: GraphModule, inputs: Sequence[object]) -> JitGraph:
    """Trace and freeze a graph on copies of its inputs; its own tensors are not changed."""
    held = [*captured.parameters(), *captured.buffers()]
    saved = clone_values(held)
    try:
        with torch.random.fork_rng(_devices(inputs)):
            return torchscript.freeze_graph(captured.eval(), clone_values(inputs))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise CodegenUnsupported(f"torch.jit refuses the graph: {first_line(error)}") from error
    finally:
        put_back(held, saved)


def _devices(inputs: Sequence[object]) -> list[int]:
    tensors = (value for value in inputs if isinstance(value, Tensor))
    return sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
