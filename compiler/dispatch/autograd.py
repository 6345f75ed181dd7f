"""Autograd dispatch: from a captured graph to functional ATen graphs, and their wrappers."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ctk.compiler.dispatch.decomposition_table import Decomposition, Operator
from ctk.compiler.dispatch.decompositions import Decompositions, is_wanted
from ctk.compiler.dispatch.fake_kernels import FakeKernels
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.graphs import Boxed
from ctk.compiler.torch_compat.inductor import inductor_api as inductor


@dataclass(frozen=True, slots=True)
class Stages:
    """Callbacks for the graphs that dispatch produces.

    Attributes:
        joint: Transforms the joint graph in place; gets its inputs (primals, then tangents).
        backward: Compiles the backward graph; called as late as the first backward pass.
        inference: Compiles the graph of inference, without a call of `joint`.
        partition: Splits the joint graph in two; gets it, its inputs and AOTAutograd's options.
    """

    joint: Callable[[GraphModule, Sequence[object]], None]
    forward: Callable[[GraphModule, Sequence[object]], Boxed]
    backward: Callable[[GraphModule, Sequence[object]], Boxed]
    inference: Callable[[GraphModule, Sequence[object]], Boxed]
    partition: Callable[
        [GraphModule, object, Mapping[str, object]], tuple[GraphModule, GraphModule]
    ] = aot.min_cut_partition


def dispatch(
    gm: GraphModule,
    example_inputs: Sequence[object],
    stages: Stages,
    numbering: Numbering | None = None,
    decompositions: Mapping[Operator, Decomposition] | None = None,
) -> Callable[..., Sequence[object]]:
    """Trace `gm` for the current grad mode and compile the resulting graphs.

    Args:
        gm: Captured graph. Its parameters and buffers become inputs.
        example_inputs: One per placeholder: real or fake tensors, ints or symbolic ints.
        numbering: Numbering of the compile; None if decompositions are not observed.
        decompositions: Decompositions by operator, besides AOTAutograd's own.

    Returns:
        A callable that takes the graph's inputs and returns its outputs; input mutation, aliasing
        and gradients are as in eager.
    """

    def partition(joint: GraphModule, joint_inputs: object, **options: object) -> object:
        stages.joint(joint, graphs.tree_leaves(joint_inputs))  # (primals, tangents)
        return stages.partition(joint, joint_inputs, options)

    def backward(graph: GraphModule, inputs: Sequence[object]) -> object:
        with inductor.compile_lock():  # autograd may ask for it while another thread compiles
            compiled = stages.backward(graph, inputs)
        return torch.compiler.disable(compiled, reason="ctk has compiled this backward graph")

    with contextlib.ExitStack() as watch:
        if numbering is not None and is_wanted(numbering):
            watcher = Decompositions(numbering)
            if not watcher.may_functionalize():
                return cast("Callable[..., Sequence[object]]", gm)
            watch.enter_context(inductor.compile_lock())
            watch.enter_context(watcher.watch(gm))
            watch.enter_context(FakeKernels(numbering).hook())
            stages = _report_before(stages, watcher)
        run = aot.trace(
            gm,
            example_inputs,
            forward=stages.forward,
            backward=torch.compiler.disable(backward, reason="ctk compiles the backward graph"),
            inference=stages.inference,
            partition=partition,
            decompositions=decompositions or {},
        )
    return _disable(run)


def resume(
    wrappers: object,
    gm: GraphModule,
    forward: Boxed,
    backward: Boxed | None,
    backward_graph: Callable[[], GraphModule],
) -> Callable[..., Sequence[object]]:
    """Return the callable of an earlier `dispatch` without a trace.

    Args:
        wrappers: The record of that compile (`torch_compat/aot/aot_runtime.py`).
        forward: The compiled forward, or the compiled graph of inference.
        backward_graph: Returns the graph that was compiled as `backward`; compiled autograd calls.

    Raises:
        NoDataForm: The data is malformed, or belongs to another graph.
    """
    if backward is not None:
        reason = "ctk has compiled this backward graph"
        backward = cast("Boxed", torch.compiler.disable(backward, reason=reason))
    reason = "ctk reads an entry of the cache"
    untraced = cast("Any", torch.compiler.disable(backward_graph, reason=reason))
    run = aot_runtime.rebuild(
        wrappers, gm, forward=forward, backward=backward, backward_graph=untraced
    )
    return _disable(run)


def _disable(run: Callable[..., Sequence[object]]) -> Callable[..., Sequence[object]]:
    disabled = torch.compiler.disable(run, reason="ctk has compiled this graph")
    return cast("Callable[..., Sequence[object]]", disabled)


def _report_before(stages: Stages, watcher: Decompositions) -> Stages:
    """Return stages whose first one reports the decompositions to the observer."""

    def joint(graph: GraphModule, inputs: Sequence[object]) -> None:
        watcher.report()
        stages.joint(graph, inputs)

    def inference(graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        watcher.report()
        return stages.inference(graph, inputs)

    return replace(stages, joint=joint, inference=inference)
