"""Where Dynamo found the tensors of a graph, their static addresses, guards on their identity."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_STEP = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")


def placeholder_source(node: Node) -> str | None:
    """Return Dynamo's source of a graph input (`L['self']._buffers['b']`), if it is recorded."""
    return _name(getattr(node.meta.get("grapharg"), "source", None))


def name_in_module(node: Node) -> str | None:
    """Return the name that a graph input has in the module that holds it (`encoder.weight`)."""
    steps = _STEP.findall(placeholder_source(node) or "")
    return ".".join(steps) or None


def names_in_module(gm: GraphModule) -> Mapping[str, str]:
    """Return the names in the user's module of the attributes of Dynamo's graph.

    They are known only if the module itself is compiled.
    """
    return gm.meta.get("dynamo_flat_name_to_original_fqn", {})


def is_static(node: Node) -> bool:
    """Return whether Dynamo marks a graph input as static: a module holds it."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def attribute_sources(gm: GraphModule) -> dict[str, str]:
    """Return where Dynamo found the attributes of its graph, by name; none for a copy."""
    sources: dict[str, Any] = getattr(gm, "_param_name_to_source", None) or {}
    named = {target: _name(source) for target, source in sources.items()}
    return {target: name for target, name in named.items() if name is not None}


def static_type(tensor: Tensor) -> Literal["guarded", "unguarded"] | None:
    """Return the mark of `mark_static_address`; Dynamo calls it for tensors of modules."""
    found = getattr(tensor, "_dynamo_static_input_type", None)
    return found if found in ("guarded", "unguarded") else None


def _name(source: Any) -> str | None:
    """Return the name of a source: a method in torch 2.11, an attribute in 2.13."""
    name = getattr(source, "name", None)
    name = name() if callable(name) else name
    return name if isinstance(name, str) else None


def copy_sources(gm: GraphModule, copy: GraphModule) -> None:
    """Record on a copy of Dynamo's graph where Dynamo found its inputs and attributes.

    AOTAutograd names them in guards: on inputs that are one tensor, or that share memory.
    """
    held = getattr(gm, "_param_name_to_source", None)
    nodes = gm.graph.find_nodes(op="placeholder")
    if held is None or not all(hasattr(node, "_dynamo_source") for node in nodes):
        return
    new: Any = copy
    new._param_name_to_source = dict(held)
    for node, same in zip(nodes, copy.graph.find_nodes(op="placeholder"), strict=True):
        same._dynamo_source = node._dynamo_source


def name_new_attributes(gm: GraphModule) -> None:
    """Give the tensors that passes added to a graph a source, which AOTAutograd requires."""
    known = getattr(gm, "_param_name_to_source", None)
    if known is not None:
        constant: Any = importlib.import_module("torch._dynamo.source").ConstantSource
        held = [*gm.named_parameters(remove_duplicate=False)]
        held += [*gm.named_buffers(remove_duplicate=False)]
        for name, _ in held:
            known.setdefault(name, constant(f"ctk.{name}"))


def present(gm: GraphModule, static: Mapping[str, str]) -> None:
    """Mark the inputs and attributes with static addresses on a graph, as Dynamo does.

    Args:
        gm: Outside of Dynamo; its metadata changes.
        static: "guarded" or "unguarded", by placeholder.

    Source: `_try_get_metadata_from_dynamo` of AOTAutograd reads the marks.
    """
    sources: Any = importlib.import_module("torch._dynamo.source")
    held = [*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False)]
    graph: Any = gm
    graph._param_name_to_source = {name: sources.ConstantSource(f"self.{name}") for name, _ in held}
    gm.meta.setdefault("dynamo_compile_id", None)
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta["tensor_dict"] = {}
        if node.name in static:
            node.meta["tensor_dict"] = {"_dynamo_static_input_type": static[node.name]}
        node._dynamo_source = sources.ConstantSource(node.name)


def guard_identity(node: Node, *, only: bool = False) -> None:
    """Make Dynamo recompile if a graph input is another object.

    Args:
        node: Placeholder of the graph of a running backend. Outside of Dynamo nothing is guarded.

    After the backend Dynamo makes its guards from `TracingContext.guards_context.dynamo_guards`.
    """
    context = torch._guards.TracingContext.try_get()
    source = getattr(node.meta.get("grapharg"), "source", None)
    if context is None or source is None:
        return
    builder: Any = importlib.import_module("torch._dynamo.guards").GuardBuilder
    guards: Any = context.guards_context.dynamo_guards
    for guard in list(guards.inner) if only else ():
        if _is_from(guard.originating_source, source):
            guards.inner.discard(guard)
    guards.add(source.make_guard(builder.ID_MATCH))


def _is_from(source: Any, base: object) -> bool:
    """Return whether a source is `base` or a part of it, at any depth (unlike torch 2.11)."""
    while source is not None and source != base:
        source = getattr(source, "base", None)
    return source is not None
