"""Autograd dispatch: AOTAutograd and its partitioners."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.torch_compat.inductor.patch_sites import Site


def backend_site() -> Site:
    """Return the call of each backend made with `aot_autograd(fw_compiler=...)`.

    Its `self.kwargs` holds `fw_compiler`, `bw_compiler` and `inference_compiler`.
    """
    from torch._dynamo.backends.common import AotAutograd

    return Site(AotAutograd, "__call__")


def trace(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
    partition: Callable[..., Any],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> Callable[..., Any]:
    """Trace a captured graph to functional ATen graphs with AOTAutograd, for these compilers.

    An empty table of decompositions is the same as none. Each trace is counted as torch counts its
    own: by the count DDPOptimizer knows that the first call of the result returns fake tensors.
    """
    from torch._dynamo.utils import counters
    from torch._functorch.aot_autograd import aot_module_simplified

    counters["aot_autograd"]["total"] += 1
    return aot_module_simplified(
        gm,
        example_inputs,
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=partition,
        decompositions=dict(decompositions),
        keep_inference_input_mutations=True,
    )


def min_cut_partition(
    joint: GraphModule, joint_inputs: object, options: Mapping[str, Any]
) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph into forward and backward with torch's min-cut partitioner."""
    from functorch.compile import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(joint, joint_inputs, **options)


def plain_partition(
    joint: GraphModule, joint_inputs: object, options: Mapping[str, Any]
) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph like AOTAutograd's default: save exactly the values that backward needs.

    Options of the min-cut partitioner only (`compiler`) are dropped.
    """
    from functorch.compile import default_partition

    known = inspect.signature(default_partition).parameters
    return default_partition(
        joint, joint_inputs, **{k: v for k, v in options.items() if k in known}
    )
