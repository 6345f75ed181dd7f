"""Facts of joint graphs for a partitioner: symbols, effects, descriptions, settings."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs


def is_opaque(value: object) -> bool:
    """Return whether a value is neither tensor nor number: a script object, a process group, ..."""
    from torch._library.fake_class_registry import FakeScriptObject
    from torch.fx.experimental._backward_state import BackwardState

    kinds = (torch.ScriptObject, FakeScriptObject, BackwardState)
    return isinstance(value, kinds) or bool(_is_opaque_object()(value))


@cache
def _is_opaque_object() -> Callable[[object], bool]:
    """Return torch's test: `is_custom_class_obj` from torch 2.14 on, `is_opaque_value` before."""
    objects: Any = importlib.import_module("torch._library.opaque_object")
    return getattr(objects, "is_custom_class_obj", None) or objects.is_opaque_value


def has_effect_token(node: Node) -> bool:
    """Return whether a node is `with_effects(token, ...)`."""
    from torch._functorch._aot_autograd.utils import is_with_effects

    return bool(is_with_effects(node))


def hint(size: object, fallback: int) -> int:
    """Return a concrete int for a symbolic size, without adding a guard.

    torch 2.13 has `optimization_hint`, 2.11 `SymNode.hint` (None for an unknown size).
    """
    if not isinstance(size, torch.SymInt):
        return int(cast("int", size))
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    if hasattr(shapes, "optimization_hint"):
        return int(shapes.optimization_hint(size, fallback=fallback))
    known = size.node.hint
    return fallback if known is None else int(known)


def free_symbols(value: object) -> list[Any]:
    """Return the symbols in the sizes of a value, by name."""
    from torch.fx.experimental.symbolic_shapes import free_symbols as symbols

    return sorted(symbols(cast(Any, value)), key=lambda symbol: symbol.name)


def symbol_of(node: Node) -> object | None:
    """Return the symbol that a node binds, if it binds one."""
    from torch.fx.experimental.symbolic_shapes import is_symbol_binding_fx_node

    return is_symbol_binding_fx_node(node)


def symbol_bindings(graph: Graph) -> Mapping[Any, Node]:
    """Return the node that binds each symbol of a graph."""
    from torch.fx.experimental.symbolic_shapes import find_symbol_binding_fx_nodes

    return find_symbol_binding_fx_nodes(graph)


def saved_descriptions(checked: int, unchecked: int, others: int) -> list[object]:
    """Describe saved values for `desc`; autograd does not check versions of `unchecked`."""
    module: Any = importlib.import_module("torch._functorch._aot_autograd.descriptors")
    plain, loose = module.SavedForBackwardsAOTOutput, module.SavedForBackwardsNoVcCheckAOTOutput
    end = checked + unchecked
    return [
        loose(index) if checked <= index < end else plain(index) for index in range(end + others)
    ]


def flops(node: Node, arguments: tuple[Any, Mapping[str, Any]], result: object) -> int:
    """Return the floating-point operations of a call by torch's table, 0 if it has no row."""
    from torch.utils.flop_counter import flop_registry

    count: Any = flop_registry.get(cast(Any, getattr(node.target, "_overloadpacket", node.target)))
    if count is None:
        return 0
    args, kwargs = arguments
    return int(count(*args, **kwargs, out_val=result))


_LEFT_TO_TORCH: Mapping[str, object] = {
    "enable_activation_offloading": False,
    "_sync_decision_cross_ranks": False,
    "activation_memory_budget_require_full_coverage": True,
    "activation_memory_budget_runtime_estimator": "flops",
    "cse": True,
    "is_non_builtin_to_include": False,
    "max_dist_from_bw": 1000,
    "recompute_views": False,
    "treat_parameters_as_free_to_save": True,
    "unsafe_allow_optimization_of_collectives": False,
    "unsafe_treat_script_objects_as_zero_size": False,
    "visualize_memory_budget_pareto": False,
}
"""Options that only torch's own partitioner carries out, with the value that asks for nothing.

`activation_memory_budget_require_full_coverage` exists from torch 2.15 on.
"""

SOLVERS = {
    "dp": "dp",
    "dp_knapsack_sliding_hirschberg": "dp",
    "greedy": "greedy",
    "ilp": "exact",
}
"""torch's names of the knapsack's solvers, with those of ctk."""


def changed_settings(neutral: Mapping[str, object]) -> dict[str, object]:
    """Return the options of `torch._functorch.config` in force with another value than these."""
    config: Any = importlib.import_module("torch._functorch.config")
    values = {name: getattr(config, name, value) for name, value in neutral.items()}
    return {name: value for name, value in values.items() if value != neutral[name]}


def settings_of_torchs_partitioner() -> list[str]:
    """Return the options of torch in force that only its own partitioner carries out."""
    inductor: Any = importlib.import_module("torch._inductor.config")
    found = list(changed_settings(_LEFT_TO_TORCH))
    name = "activation_memory_budget_solver"
    if not set(changed_settings({name: "dp"}).values()) <= SOLVERS.keys():
        found.append(name)
    name = "activation_quantization_aten_pass"
    return found + ([name] if name in inductor.post_grad_fusion_options else [])


def has_random_state_inputs(gm: GraphModule) -> bool:
    """Return whether a sub-graph takes generator states that the partitioner must thread."""
    return any(
        "rng_state" in node.name
        for graph in gm.modules()
        if isinstance(graph, GraphModule)
        for node in graph.graph.find_nodes(op="placeholder")
    )


def run_and_save_rng_state() -> Any:
    """Return the operator `(op, *args) -> (state, result)`: the generator's state before it."""
    return importlib.import_module("torch._prims.rng_prims").run_and_save_rng_state


def run_with_rng_state() -> Any:
    """Return the operator `(state, op, *args) -> result`, which keeps the generator's state."""
    return importlib.import_module("torch._prims.rng_prims").run_with_rng_state


def rng_state_nbytes(device: str) -> int | None:
    """Return the bytes of the state of a device's generator; None if it cannot be restored."""
    return {"cpu": 5056, "cuda": 16}.get(device)


def empty_rng_state(device: str | None, like: object) -> torch.Tensor:
    """Return a fake tensor like a generator's state, which is on the CPU, in the mode of `like`."""
    nbytes = rng_state_nbytes(device or "cpu")
    assert nbytes is not None
    mode = fake.mode_of(graphs.tree_leaves(like))
    if mode is None:
        return torch.empty(nbytes, dtype=torch.uint8, device="meta")
    with mode:
        return torch.empty(nbytes, dtype=torch.uint8)


@contextlib.contextmanager
def torch_budget(budget: float) -> Generator[None]:
    """Set the memory budget of torch's own partitioner, to compare with."""
    config: Any = importlib.import_module("torch._functorch.config")
    with config.patch(activation_memory_budget=budget):
        yield


def nodes_saved_by(forward: GraphModule, num_fwd_outputs: int) -> Sequence[Node]:
    """Return the nodes that a partitioned forward graph saves for backward."""
    return cast("Any", forward.graph.output_node().args[0])[num_fwd_outputs:]
