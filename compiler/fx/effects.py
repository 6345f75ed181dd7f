"""Effects: nodes of a captured graph that do more than return a value.

Two kinds: a *mutator* changes one of its arguments in place; a *marker* changes the state of the
program around it (grad mode, autocast, an assertion, a profiler range) and has no tensor for a
value. Neither may be dropped as dead code. Random operators are not effects here: without one the
program is another one, and every candidate is compared with its own eager run.
"""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Literal

from torch.fx import Node

from ctk.compiler.fx.walk import flat
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu.triton_kernels import MUTATING_WRAPPER

_IN_PLACE = frozenset(
    {
        operator.setitem, operator.delitem, operator.iadd, operator.isub, operator.imul,
        operator.imatmul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
        operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
    }
)  # fmt: skip
_IN_PLACE_DUNDERS = frozenset(
    {
        "__setitem__", "__delitem__", "__iadd__", "__isub__", "__imul__", "__imatmul__",
        "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__",
        "__ilshift__", "__irshift__",
    }
)  # fmt: skip


def mutated_arguments(node: Node) -> tuple[Node, ...]:
    """Return the nodes whose values this node changes in place, in order of its arguments."""
    if node.op == "call_method":
        return _first(node) if _is_in_place_name(str(node.target)) else ()
    if node.op != "call_function" or not callable(node.target):
        return ()
    how = _how_it_writes(node.target)
    if how == "schema":
        return _find_written(node)
    if how == "first":
        return _first(node)
    if how == "kernel":
        return _nodes(node.kwargs.get("kwargs"))
    if not node.kwargs and True not in node.args:
        return ()
    out = node.kwargs.get("out")
    found = _nodes(out) if out is not None else ()
    return (*found, *(_first(node) if _asks_in_place(node, node.target) else ()))


def returned_argument(node: Node) -> Node | None:
    """Return the argument that a call in place returns; None if its result is another tensor."""
    written = mutated_arguments(node)
    declared = operators.declared_by(node.target)
    is_returned = declared is None or declared.returns_written
    return written[0] if len(written) == 1 and is_returned else None


@functools.cache
def _how_it_writes(
    target: Callable[..., object],
) -> Literal["schema", "kernel", "first", "options"]:
    """Return the source of a function's written arguments: schema, name, or options of the call.

    A Triton kernel of the program may write to each of its arguments.
    """
    if operators.kind_of(target) == "higher_order" and str(target) == MUTATING_WRAPPER:
        return "kernel"
    if operators.kind_of(target) == "overload":
        return "schema"
    if target in _IN_PLACE or _is_in_place_name(getattr(target, "__name__", "")):
        return "first"
    return "options"


def is_marker(node: Node, value: object) -> bool:
    """Return whether a node only changes the state of the program around it."""
    if node.op != "call_function" or mutated_arguments(node):
        return False
    return value is None or (not _holds_data(value) and node.is_impure(impure_random=False))


def _holds_data(value: object) -> bool:
    if isinstance(value, tuple):
        return any(_holds_data(item) for item in value)
    return hasattr(value, "dtype")


def _is_in_place_name(name: str) -> bool:
    return name in _IN_PLACE_DUNDERS or (name.endswith("_") and not name.endswith("__"))


def _first(node: Node) -> tuple[Node, ...]:
    return _nodes(node.args[0]) if node.args else ()


def _nodes(argument: object) -> tuple[Node, ...]:
    return tuple(leaf for leaf in flat(argument) if isinstance(leaf, Node))


def _find_written(node: Node) -> tuple[Node, ...]:
    written = operators.written_arguments_of(node.target)
    given = [node.args[i] if i < len(node.args) else node.kwargs.get(name) for i, name in written]
    return _nodes(given)


def _asks_in_place(node: Node, target: Callable[..., object]) -> bool:
    """Return whether a call such as `relu(x, True)` passes `inplace=True`."""
    if "inplace" in node.kwargs:
        return node.kwargs["inplace"] is True
    if not any(argument is True for argument in node.args):
        return False
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # a builtin has no signature; it takes no `inplace` either
        return False
    return bound.arguments.get("inplace") is True


def is_barred(first: Node, last: Node) -> bool:
    """Return whether the value of `first` may change if it is computed at `last` instead.

    A node between the two writes, sets a mode (grad, autocast), or might do so: a higher-order
    operator, a module, a function of the program.
    """
    node = first.next
    while node is not last:
        if node.op == "root" or not is_calm(node):  # the root: not in this order
            return True
        node = node.next
    return False


def is_calm(node: Node) -> bool:
    """Return whether a node only computes: it writes nothing, sets no mode, runs no other graph."""
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op == "call_module" or mutated_arguments(node):
        return False
    if node.op == "call_method":
        return True
    target = node.target
    if operators.kind_of(target) == "higher_order" or operators.is_switch(target):
        return False
    module = str(getattr(target, "__module__", None) or "torch")  # builtins of torch have none
    return module.partition(".")[0] in ("torch", "_operator", "operator", "math", "builtins")
