"""What plain functions of a graph share: finding calls, and putting others in their place."""

import torch

aten = torch.ops.aten


def calls(graph, target):
    return [node for node in graph.nodes if node.op == "call_function" and node.target is target]


def type_of(value):
    """Return the type of an operand that is a node of one tensor, else None."""
    found = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None


def put(graph, node, target, *args, **kwargs):
    with graph.inserting_before(node):
        new = graph.call_function(target, args, kwargs)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def is_call(value, target):
    return isinstance(value, torch.fx.Node) and value.target is target


def is_float(value):
    found = type_of(value)
    return found is not None and found.is_floating_point()


def look_alike(*values):
    """Return whether operands are tensors of one dtype, shape and layout."""
    types = [type_of(each) for each in values]
    kinds = [(t.dtype, t.shape, t.stride()) for t in types if t is not None]
    return len(kinds) == len(values) and all(kind == kinds[0] for kind in kinds)


def is_pure(graph):
    """Return whether no call of a graph writes to an operand."""
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    return not any(getattr(each, "_schema", None) and each._schema.is_mutable for each in targets)
