"""Walk a case's graph in eager, node by node, and tell what each value was.

The reducer needs two things that no other run gives: what kind of value each node has (without
keeping the values), and the value of some nodes *at the moment before another node runs*, because
an in-place op in between changes it. A program whose exception is its outcome goes on behind the
raising node with zeros of the form that fake tensors tell: there too a candidate must know what it
cuts. Where that exception breaks a GPU for its process, the nodes are run on the CPU instead, with
copies: this process must be able to go on. It does not judge: the oracle compares, in its own runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch.fx import Interpreter, Node
from torch.fx.node import map_aggregate

from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.torch_compat import fake
from ctk.compiler.torch_compat.graphs import tree_leaves, tree_map
from ctk.compiler.torch_compat.process_state import (
    is_in_transform,
    outside_transforms,
    process_state_kept,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.run.modes import applied
from ctk.toolkit.run.private_copy import private_copy


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor value; `shape` and `stride` count elements.

    Attributes:
        in_transform: It lives in a level of `vmap`, `grad` and their siblings only.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    in_transform: bool = False

    def is_like(self, other: object) -> bool:
        """Return whether the other is a tensor of the same shape, dtype and device."""
        if not isinstance(other, TensorInfo):
            return False
        mine = (self.shape, self.dtype, self.device)
        return mine == (other.shape, other.dtype, other.device)


def describe(value: object) -> object:
    """Return a value with `TensorInfo` in place of its tensors; tuples and lists become tuples."""
    if isinstance(value, torch.Tensor):
        shape, stride = tuple(value.shape), tuple(value.stride())
        device, is_inside = str(value.device), is_in_transform(value)
        return TensorInfo(shape, stride, value.dtype, device, value.requires_grad, is_inside)
    if isinstance(value, (tuple, list)):
        return tuple(describe(item) for item in value)
    return value


def node_infos(case: Case) -> dict[str, object]:
    """Return the description of every node's value in an eager run of the case, by node name."""
    infos: dict[str, object] = {}

    def after(node: Node, env: Mapping[Node, object]) -> None:
        infos[node.name] = describe(env[node])

    _walk(case, after=after)
    return infos


def values_before(case: Case, wanted: Mapping[str, str]) -> dict[str, object]:
    """Return detached copies of values as they are right before a given user of theirs runs.

    Args:
        case: Run once in eager, under its modes.
        wanted: For each node whose value is wanted, its user before which it is read.

    Returns:
        Values by node name. Tensors keep their strides and `requires_grad`, and are leaves.
    """
    values: dict[str, object] = {}

    def before(node: Node, env: Mapping[Node, object]) -> None:
        for value in node.all_input_nodes:
            if wanted.get(value.name) == node.name:
                with outside_transforms():
                    values[value.name] = _clone_value(env[value])

    _walk(case, before=before)
    return values


def _clone_value(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return cast("torch.Tensor", clone_value(value)).requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return tuple(_clone_value(item) for item in value)
    return value


def _ignore(node: Node, env: Mapping[Node, object]) -> None:
    """Do nothing at a node."""


def _run_node(interpreter: Interpreter, node: Node, *, on_cpu: bool) -> object:
    try:
        return _run_on_cpu(interpreter, node) if on_cpu else interpreter.run_node(node)
    except Exception:
        try:
            return _stand_in(interpreter, node)
        except Exception:  # fake tensors do not know either
            pass
        raise


def _run_on_cpu(interpreter: Interpreter, node: Node) -> object:
    """Run a node with copies of its operands on the CPU; return its value where theirs were."""
    if node.op not in ("call_function", "call_method"):
        return interpreter.run_node(node)
    given: Any = interpreter.fetch_args_kwargs_from_env(node)
    operands = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]
    args, kwargs = tree_map(_to_cpu, given)
    value = getattr(interpreter, node.op)(node.target, args, kwargs)
    copies = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    if mutated_arguments(node):
        for operand, copy in zip(operands, copies, strict=True):
            if copy is not operand:
                operand.detach().copy_(copy.detach())
    gpu = next((each.device for each in operands if each.device.type != "cpu"), None)
    return value if gpu is None else tree_map(partial(_moved, device=gpu), value)


def _to_cpu(value: object) -> object:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return _moved(value, device=torch.device("cpu"))


def _moved(value: object, *, device: torch.device) -> object:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _stand_in(interpreter: Interpreter, node: Node) -> object:
    """Return zeros in place of what a node that raises would give."""
    mode = fake.new_fake_mode()

    def faked(value: Any) -> Any:
        return fake.to_fake(value, mode)

    given: Any = interpreter.fetch_args_kwargs_from_env(node)
    args, kwargs = (map_aggregate(values, faked) for values in given)
    with fake.fake_compute(mode):
        value = getattr(interpreter, node.op)(node.target, args, kwargs)
    return map_aggregate(value, _zeros)


def _zeros(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    size, stride = tuple(value.shape), value.stride()
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).zero_()


def _walk(
    case: Case,
    *,
    before: Callable[[Node, Mapping[Node, object]], None] = _ignore,
    after: Callable[[Node, Mapping[Node, object]], None] = _ignore,
) -> None:
    """Run the case once; on private copies if the graph changes any of its values."""
    graph, inputs = case.graph, case.inputs
    if any(node.op == "call_module" or mutated_arguments(node) for node in graph.graph.nodes):
        graph, inputs = private_copy(graph, inputs)
    on_cpu = case.signature is not None and case.signature.breaks_eager
    interpreter = Interpreter(graph)
    interpreter.args_iter = iter(inputs)
    with applied(case.modes), process_state_kept():
        for node in graph.graph.nodes:
            before(node, interpreter.env)
            interpreter.env[node] = _run_node(interpreter, node, on_cpu=on_cpu)
            after(node, interpreter.env)
            for unused in interpreter.user_to_last_uses.get(node, ()):
                del interpreter.env[unused]
