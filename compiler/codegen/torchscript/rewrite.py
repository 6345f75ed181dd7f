"""Rewrite a copy of an aten-level graph for `torch.jit.script`, in the order of `REWRITES`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.torchscript.arguments import adapt_arguments, adapt_symbols
from ctk.compiler.codegen.torchscript.fusing import why_unfused
from ctk.compiler.codegen.torchscript.overloads import (
    count_overloads,
    overload_nodes,
    strip_overloads,
    take_scalar_overloads,
)
from ctk.compiler.codegen.torchscript.refuse import refusal, refuse_unsupported, why_not_shared
from ctk.compiler.codegen.torchscript.signature import ScriptSignature, type_signature
from ctk.compiler.codegen.torchscript.signs import NUMBERS, ONE, keep_signs, signed_zeros
from ctk.compiler.fx.operator_facts import UNDECLARED_VIEWS
from ctk.compiler.fx.walk import fetch, free_name
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

Written = Literal["input", "value"]

_COPY_DEFAULTS = {
    "dtype": None,
    "layout": None,
    "device": None,
    "pin_memory": None,
    "non_blocking": False,
    "copy": True,
    "memory_format": None,
}


def drop_dead_code(graph: Graph) -> None:
    """Erase pure nodes that nothing reads. TorchScript would, and the overloads are counted before.

    Random ops and writes stay: they have effects besides their results.
    """
    graph.eliminate_dead_code()


def to_copy_to_to(graph: Graph) -> None:
    """aten._to_copy(x, **options) -> aten.to.dtype_layout(x, **options, copy=True).

    TorchScript optimises and differentiates `aten.to`. `_to_copy` always copies, hence `copy=True`.
    Every option is written out, which leaves TorchScript only this overload (numerics: exact).
    """
    for node in overload_nodes(graph):
        if operators.qualified_name_of(node.target) == "aten::_to_copy.default":
            node.target = torch.ops.aten.to.dtype_layout
            node.kwargs = {**_COPY_DEFAULTS, **node.kwargs}


def declare_views(graph: Graph) -> None:
    """Replace views whose schema does not declare it: _unsafe_view(x, size) -> view(x, size).

    Likewise unsafe_split and unsafe_chunk, which differ for autograd only. TorchScript trusts the
    schema about shared memory: of two equal tensors whose `_unsafe_view`s are returned it would
    make one, and both results would share its memory.
    """
    for node in graph.nodes:
        if node.target in UNDECLARED_VIEWS:
            node.target = UNDECLARED_VIEWS[node.target]


def keep_addmm_whole(graph: Graph) -> set[str]:
    """aten.addmm(c, a, b) -> aten.addmm(c, a, b, alpha=ctk_unit); return the hidden numbers.

    TorchScript splits an addmm whose alpha and beta are known to be 1 into `mm` and `add`, which in
    bfloat16 rounds the product before the sum. It does not split one with an unknown alpha
    (numerics: exact).
    """
    calls = [node for node in overload_nodes(graph) if _is_plain_addmm(node)]
    for node in calls:
        with graph.inserting_before(node):
            node.kwargs = {**node.kwargs, "alpha": graph.get_attr(ONE)}
    return {ONE} if calls else set()


def _is_plain_addmm(node: Node) -> bool:
    if operators.qualified_name_of(node.target) != "aten::addmm.default":
        return False
    return all(node.kwargs.get(name, 1) in (1, 1.0) for name in ("alpha", "beta"))


def bind_constants(gm: GraphModule, graph: Graph) -> Mapping[str, object]:
    """Point each `get_attr` node at a flat name and return the values, shared with `gm`.

    Flat names (`layer.weight` -> `constant_layer_weight`) spare TorchScript the module hierarchy;
    unused attributes are left out. A name that two constants would share gets a number.

    Raises:
        CodegenUnsupported: A nested graph, a tensor without numbers, or an object that TorchScript
            has no type for.
    """
    values: dict[str, object] = {}
    flat_names: dict[str, str] = {}
    for node in graph.find_nodes(op="get_attr"):
        value = fetch(gm, node.target)
        if isinstance(value, torch.nn.Module):
            raise refusal(node, "a nested graph")
        if fake.is_fake(value):
            raise refusal(node, "a constant that is a fake tensor: it has no numbers")
        if not isinstance(value, (torch.Tensor, bool, int, float)):
            raise refusal(node, f"a constant of type {type(value).__name__}")
        # The prefix avoids clashes with attributes of Module.
        flat = "constant_" + str(node.target).replace(".", "_")
        name = flat_names.setdefault(str(node.target), free_name(flat, flat, values))
        values[name] = value
        node.target = name
    return values


REWRITES: tuple[Callable[[Graph], None], ...] = (
    refuse_unsupported,
    drop_dead_code,
    to_copy_to_to,
    declare_views,
    take_scalar_overloads,
    adapt_arguments,
    adapt_symbols,
)
"""The rewrites of a graph before its overloads are stripped."""


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """A graph in the form that `torch.jit.script` takes.

    Attributes:
        overloads: The overloads that TorchScript must choose, with how often each is called.
        unknown: Names of constants whose values are hidden from TorchScript.
        writes: The targets of writes: inputs, or computed values (a graph that is not functional).
        unfused: The reason to keep TorchScript's fuser off; None if it may fuse.
    """

    module: GraphModule
    signature: ScriptSignature
    overloads: Counter[str]
    unknown: frozenset[str]
    writes: frozenset[Written]
    unfused: str | None = None


def rewrite_for_torchscript(gm: GraphModule, example_inputs: Sequence[object]) -> ScriptGraph:
    """Return `gm` as a `ScriptGraph`; `gm` is left unchanged.

    Raises:
        CodegenUnsupported: TorchScript cannot take the graph; names the node.
    """
    graph = _copy(gm.graph)
    unfused, shared = why_unfused(graph, example_inputs), why_not_shared(graph)
    for rewrite in REWRITES:
        rewrite(graph)
    signature = type_signature(gm, graph, example_inputs)
    constants = dict(bind_constants(gm, graph))
    if shared is not None:
        raise shared
    numbers = {name: NUMBERS[name] for name in keep_addmm_whole(graph) | keep_signs(graph)}
    unknown = {*signed_zeros(constants), *numbers}
    overloads = count_overloads(graph)
    writes = frozenset[Written](
        kind for node in overload_nodes(graph) for kind in _written_by(node)
    )
    strip_overloads(graph)
    graph.lint()
    module = GraphModule(constants | numbers, graph)
    return ScriptGraph(module, signature, overloads, frozenset(unknown), writes, unfused)


def _written_by(node: Node) -> Iterator[Written]:
    for at, name in operators.written_arguments_of(node.target):
        written = node.args[at] if at < len(node.args) else node.kwargs[name]
        is_input = isinstance(written, Node) and written.op == "placeholder"
        yield "input" if is_input else "value"


def _copy(graph: Graph) -> Graph:
    copy = Graph()
    values: dict[Node, Node] = {}
    for node in graph.nodes:
        values[node] = new = copy.node_copy(node, lambda old: values[old])
        new.type = None  # Dynamo's annotations are not TorchScript's
    return copy
