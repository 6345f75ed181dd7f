"""Trace a function to an ATen graph: forward, or forward and backward.

The first placeholders are the arguments, real or fake. May be called while a compile is under way.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule

Function = Callable[..., Any]


def trace_forward(function: Function, args: Sequence[object]) -> GraphModule:
    """Trace a function below autograd, without gradients."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    # Symbolic sizes need the Python dispatcher.
    with _by_itself(), enable_python_dispatcher(), torch.no_grad():
        return make_fx(function, tracing_mode="real")(*args)


@contextlib.contextmanager
def _by_itself() -> Generator[None]:
    """Trace apart from the compile that is under way, and from the autocast that it was made in."""
    with torch._guards.tracing(None), torch._C._DisableAutocast():
        yield


def trace_jvp(function: Function, args: Sequence[object]) -> GraphModule:
    """Trace a function of dual numbers, without gradients backwards.

    The graph takes the arguments, then a tangent for each that requires a gradient. It returns the
    results, then the tangent of each that has one.
    """
    from torch.autograd import forward_ad

    varying = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    primals = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
    places = [place for place, each in enumerate(args) if any(each is one for one in varying)]

    def of_duals(*values: Any) -> list[object]:
        duals, tangents = [*values[: len(args)]], values[len(args) :]
        with forward_ad.dual_level():
            for place, tangent in zip(places, tangents, strict=True):
                duals[place] = forward_ad.make_dual(duals[place], tangent)
            results = function(*duals)
            parts = [
                forward_ad.unpack_dual(each)
                for each in (results if isinstance(results, (list, tuple)) else [results])
            ]
        found = [part.primal for part in parts]
        return [*found, *(part.tangent for part in parts if part.tangent is not None)]

    with warnings.catch_warnings():  # the first dual number of a process loads TorchScript
        warnings.filterwarnings("ignore", r".*torch\.jit\.script")  # of a type of its release
        module = trace_forward(of_duals, [*primals, *(each.detach() for each in varying)])
    return _without_aliases(module)


def _without_aliases(module: GraphModule) -> GraphModule:
    """Drop leftovers of packing dual numbers: aliases, and nodes without users."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.alias.default):
        node.replace_all_uses_with(cast("torch.fx.Node", node.args[0]))
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def ambient() -> tuple[bool, ...]:
    """Return the settings of the process that a trace depends on: which attention is allowed."""
    cuda = torch.backends.cuda
    return (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    )


def trace_joint(function: Function, args: Sequence[object]) -> GraphModule:
    """Trace a function and its backward pass with AOTAutograd; the graph also takes tangents.

    Its outputs are the outputs of the function, then a gradient or None for each argument. `detach`
    and `alias`, which AOTAutograd puts around values for backward, are removed, as the pipeline
    does in a user's graph before rules run.

    Raises:
        ValueError: No result requires a gradient, so that there is no joint graph.
    """
    from functorch.compile import aot_function, default_partition, make_boxed_func

    graph_modules: list[GraphModule] = []

    def keep(joint: GraphModule, inputs: object, **options: Any) -> object:
        graph_modules.append(GraphModule(joint, _copy(joint)))
        return default_partition(joint, inputs, **options)  # type: ignore[arg-type]  # as torch calls it

    def compiled(gm: GraphModule, example_inputs: Sequence[Any]) -> object:
        return make_boxed_func(cast("Callable[..., Any]", gm))

    with _by_itself(), torch.enable_grad():
        aot_function(function, compiled, partition_fn=keep, decompositions={})(*args)
    if not graph_modules:
        raise ValueError("no result requires a gradient: there is nothing to trace backwards")
    return graph_modules[0]


def _copy(joint: GraphModule) -> torch.fx.Graph:
    """Return a copy of a graph, whose results are one flat list."""
    graph = torch.fx.Graph()
    result = graph.graph_copy(joint.graph, {})
    graph.output(result)
    for node in graph.nodes:
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return graph


def fake_like(value: torch.Tensor, mode: Any, *, requires_grad: bool = False) -> torch.Tensor:
    """Return a new fake tensor of the type and strides of `value`, which may be symbolic."""
    with mode, torch.no_grad():
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    return made.requires_grad_(requires_grad and made.is_floating_point())
