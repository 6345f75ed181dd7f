"""Autograd dispatch: from a captured graph to functional ATen graphs, and their wrappers.

AOTAutograd's functionalization and tracing are reused. Here the stages are hung into its
call-backs; what happens in a stage is the caller's. The decompositions that tracing applies are
passes of the stage `dispatch` (`decompositions.py`).
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

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
    """What to do with the graphs that dispatch produces.

    Attributes:
        joint: Transforms the joint graph in place; gets its inputs (primals, then tangents).
        forward: Compiles the forward graph of training.
        backward: Compiles the backward graph; torch may call it at the first backward pass only.
        inference: Compiles the graph of inference, which has not been through `joint`.
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
    """Trace `gm` for the current grad mode and compile what comes out.

    Args:
        gm: Captured graph. Its parameters and buffers become inputs.
        example_inputs: One per placeholder: real or fake tensors, ints or symbolic ints.
        stages: What to do with the graphs.
        numbering: That of the compile; None if nobody watches what is decomposed.
        decompositions: What takes operators apart, besides what AOTAutograd does by itself.

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
            watch.enter_context(watcher.watched(gm))
            watch.enter_context(FakeKernels(numbering).hooked())
            stages = _telling(stages, watcher)
        run = aot.trace(
            gm,
            example_inputs,
            forward=stages.forward,
            backward=torch.compiler.disable(backward, reason="ctk compiles the backward graph"),
            inference=stages.inference,
            partition=partition,
            decompositions=decompositions or {},
        )
    return _disabled(run)


def resumed(
    wrappers: object, gm: GraphModule, forward: Boxed, backward: Boxed | None
) -> Callable[..., Sequence[object]]:
    """Return what `dispatch` returned, of an earlier compile; traces nothing.

    Args:
        wrappers: What was recorded of that compile (`torch_compat/aot_runtime.py`).
        gm: The captured graph of now: gives parameters and buffers.
        forward: The compiled forward, or the compiled graph of inference.
        backward: The compiled backward, if there was one.

    Raises:
        NoDataForm: The data is malformed, or not of this graph.
    """
    if backward is not None:
        reason = "ctk has compiled this backward graph"
        backward = cast("Boxed", torch.compiler.disable(backward, reason=reason))
    return _disabled(aot_runtime.rebuild(wrappers, gm, forward=forward, backward=backward))


def _disabled(run: Callable[..., Sequence[object]]) -> Callable[..., Sequence[object]]:
    disabled = torch.compiler.disable(run, reason="ctk has compiled this graph")
    return cast("Callable[..., Sequence[object]]", disabled)


def _telling(stages: Stages, watcher: Decompositions) -> Stages:
    """Return the stages; the first that gets a traced graph tells what was decomposed."""

    def joint(graph: GraphModule, inputs: Sequence[object]) -> None:
        watcher.told()
        stages.joint(graph, inputs)

    def inference(graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        watcher.told()
        return stages.inference(graph, inputs)

    return replace(stages, joint=joint, inference=inference)
