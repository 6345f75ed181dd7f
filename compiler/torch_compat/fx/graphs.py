"""FX graphs: lazy modules, calling conventions, replacement hooks, nested values."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import functools
import importlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.traceback import preserve_node_meta

Boxed = Callable[[list[Any]], Any]
"""A compiled graph: takes one list of inputs, which it may clear, and returns a sequence."""


@functools.cache
def _pytree() -> Any:
    return importlib.import_module("torch.utils._pytree")


def tree_map(function: Callable[..., Any], tree: Any, *others: Any, is_leaf: Any = None) -> Any:
    """Return nested values with a function applied to each leaf."""
    return _pytree().tree_map(function, tree, *others, is_leaf=is_leaf)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """Return the leaves of nested values."""
    return _pytree().tree_leaves(tree, is_leaf)


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], Any]:
    """Return the leaves of nested values, and their nesting."""
    return _pytree().tree_flatten(tree, is_leaf)


def leaves_as(tree: Any, nesting: Any) -> list[Any]:
    """Return the leaves of a tree in the order of a nesting, whose dicts may have another one.

    Raises:
        ValueError: The tree is nested otherwise.
    """
    leaves, own = _pytree().tree_flatten(tree)
    if own == nesting:
        return leaves
    found: list[Any] = nesting.flatten_up_to(tree)
    if not all(_pytree().tree_is_leaf(each) for each in found):
        raise ValueError("a list or dict in the place of a value")
    return found


def tree_unflatten(leaves: Iterable[Any], nesting: Any) -> Any:
    """Return nested values of leaves."""
    return _pytree().tree_unflatten(leaves, nesting)


def trace_calls(
    function: Callable[..., object], args: Sequence[object], *, fake: bool = False
) -> GraphModule:
    """Return the ATen graph of a function of tensors, without gradients.

    With `fake` nothing is computed, and a fake value is recorded on each node.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(function, tracing_mode="fake" if fake else "real")(*args)


def preserve_traces() -> AbstractContextManager[None]:
    """Give the nodes of a trace inside the block the user's lines of the nodes that they trace."""
    return preserve_node_meta()


def boxed(call: Boxed) -> Boxed:
    """Mark a callable as taking one list of inputs and clearing it."""
    cast(Any, call)._boxed_call = True
    return call


def copy_codegen(source: Graph, target: Graph) -> None:
    """Give `target` the calling convention (pytrees in and out) of `source`."""
    target.set_codegen(source._codegen)


def is_erased(node: Node) -> bool:
    """Return whether a node was erased from its graph."""
    return bool(node._erased)


def plain_codegen(graph: Graph) -> None:
    """Drop a graph's own calling convention: its nodes define inputs and outputs."""
    graph.set_codegen(CodeGen())


def convention_functions(
    graph: Graph,
) -> tuple[Callable[[Sequence[object]], list[object]], Callable[[object], object]] | None:
    """Return the functions of a graph's own convention: call -> inputs, outputs -> result.

    None for a graph whose nodes define inputs and outputs. The inputs of an exported graph are
    nested values in its call, and its outputs are flat.
    """
    codegen: Any = graph._codegen
    if not hasattr(codegen, "pytree_info"):
        return None

    def process_inputs(args: Sequence[object]) -> list[object]:
        return list(codegen.process_inputs(*args))

    return process_inputs, codegen.process_outputs


def lazy_graph_module(root: dict[str, Any], graph: Graph, class_name: str) -> GraphModule:
    """Return a GraphModule whose Python code is generated at its first call, not now.

    Generating it is two thirds of the cost of a copy, and an Interpreter never needs it. Not for
    TorchScript, which cannot script the lazy class.
    """
    from torch.fx import _lazy_graph_module as lazy

    with lazy._use_lazy_graph_module(True):
        return lazy._make_graph_module(root, graph, class_name)


@contextlib.contextmanager
def record_replacements(gm: GraphModule) -> Generator[list[tuple[str, str]]]:
    """Record each `old.replace_all_uses_with(new)` on `gm` meanwhile, as pairs of node names."""
    found: list[tuple[str, str]] = []

    def hook(old: Node, new: str, user: Node) -> None:
        if (old.name, new) not in found:
            found.append((old.name, new))

    gm._register_replace_node_hook(hook)
    try:
        yield found
    finally:
        gm._unregister_replace_node_hook(hook)


def has_hooks(module: torch.nn.Module) -> bool:
    """Return whether calling a module does more than its `forward`, as `Module._call_impl` does."""
    own = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    common = (name for name in vars(torch.nn.modules.module) if name.startswith("_global_"))
    held = (getattr(torch.nn.modules.module, name) for name in common)
    is_hooked = any(isinstance(each, dict) and each for each in held)
    return is_hooked or any(getattr(module, name) for name in own)


def spec_text(spec: Any) -> str:
    """Return a nesting as JSON.

    Raises:
        NotImplementedError: A class in it has no serialized name.
    """
    _name_own_results()
    return _pytree().treespec_dumps(spec)


def spec_of(text: str) -> Any:
    """Return the nesting of a text of `spec_text`.

    Raises:
        Exception: A class in it is not registered in this process, or it is malformed.
    """
    _name_own_results()
    return _pytree().treespec_loads(text)


def _nothing(context: object) -> None:
    """Return the context of a class that has none."""


@functools.cache
def _name_own_results() -> None:
    """Name the classes of torch's own results (`torch.sort`), which torch leaves without."""
    for name, found in vars(torch.return_types).items():
        if isinstance(found, type) and found in _pytree().SUPPORTED_NODES:
            known = f"torch.return_types.{name}"
            if known not in _pytree().SERIALIZED_TYPE_TO_PYTHON_TYPE:
                node = _pytree()._SerializeNodeDef(found, known, _nothing, _nothing)
                _pytree().SUPPORTED_SERIALIZED_TYPES[found] = node
                _pytree().SERIALIZED_TYPE_TO_PYTHON_TYPE[known] = found


def places_of(spec: Any) -> list[str]:
    """Return where each leaf stands in nested values: `['loss']`; a lone one stands nowhere."""
    leaves, _ = _pytree().tree_flatten_with_path(tree_unflatten([0] * spec.num_leaves, spec))
    return [_pytree().keystr(path) for path, _ in leaves]


def keywords_of(spec: Any) -> list[str]:
    """Return the keywords of a call from the nesting of `(args, kwargs)`."""
    children = spec.children() if hasattr(spec, "children") else spec.children_specs
    return list(children[1].context)


def convention_of(graph: Graph) -> str:
    """Return how a graph wants its inputs and gives its outputs, if not one by one; else nothing.

    In torch: `PyTreeCodeGen.pytree_info` of exported graphs.
    """
    info = getattr(graph._codegen, "pytree_info", None)
    if info is None:
        return type(graph._codegen).__name__.removesuffix("CodeGen")
    return f"{info.orig_args} {info.in_spec} {info.out_spec}"


def is_registered(module: torch.nn.Module, name: str) -> bool:
    """Return whether an attribute is a parameter or buffer of a module, not just a tensor there."""
    return name in module._parameters or name in module._buffers


def storage_of(value: torch.Tensor) -> int:
    """Return the address of the object that holds a tensor's memory, also of a fake one."""
    return value.untyped_storage()._cdata
