"""Run a case's graph in eager, node by node, and describe each value.

Values are copied *at the moment before another node runs*, because an in-place op in between
changes them. Behind a raising node the run continues with zeros of the form that fake tensors give.
If the exception breaks a GPU for its process, the nodes run on the CPU, on copies.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_aggregate

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map
from ctk.compiler.torch_compat.process.process_state import (
    is_in_transform,
    outside_transforms,
    process_state_kept,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.triton_kernels import check_launch
from ctk.toolkit.execution.limited_rounds import limit_rounds
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.execution.private_copy import private_copy

Before = Callable[[Node, Mapping[Node, object]], None]
"""Called with each node before it runs, and the values that later nodes read."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The form of a tensor value; `shape` and `stride` count elements.

    `in_transform`: it lives in a level of `vmap`, `grad` and their siblings only.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    in_transform: bool = False

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def is_like(self, other: object) -> bool:
        """Return whether the other is a tensor of the same shape, dtype and device."""
        if not isinstance(other, TensorInfo):
            return False
        mine = (self.shape, self.dtype, self.device)
        return mine == (other.shape, other.dtype, other.device)


def describe(value: object) -> object:
    """Return a value with `TensorInfo` in place of its tensors; tuples and lists become tuples."""
    if isinstance(value, torch.Tensor):
        shape, stride = _shape_of(value)
        device, is_inside = str(value.device), is_in_transform(value)
        return TensorInfo(shape, stride, value.dtype, device, value.requires_grad, is_inside)
    if isinstance(value, (tuple, list)):
        return tuple(describe(item) for item in value)
    return value


def _shape_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides; a sparse tensor has no strides, a nested one no shape either."""
    if tensor.is_nested and tensor.layout == torch.strided:
        return (tensor.numel(),), ()
    is_strided = tensor.layout in (torch.strided, torch.jagged)
    return tuple(tensor.shape), tuple(tensor.stride()) if is_strided else ()


def node_infos(case: Case) -> tuple[dict[str, object], frozenset[str]]:
    """Return the form of each node's value in eager, by node name, and the nodes that raised."""
    run = _walk(case)
    return run.infos, frozenset(node.name for node in run.raised)


def values_before(case: Case, wanted: Mapping[str, str]) -> dict[str, object]:
    """Return detached copies of values as they are right before a given reader of theirs runs.

    Args:
        wanted: For each wanted value, by node name, the reader before which it is copied.

    Returns:
        Values by node name. Tensors keep their layout and `requires_grad`, and are leaves.
    """
    values: dict[str, object] = {}

    def before(node: Node, env: Mapping[Node, object]) -> None:
        for value in node.all_input_nodes:
            if wanted.get(value.name) == node.name:
                with outside_transforms():
                    (values[value.name],) = clone_inputs([env[value]])

    _walk(case, before)
    return values


class _Run(Interpreter):
    """One run of a graph, node by node.

    Attributes:
        on_cpu: The nodes run on the CPU, with copies of their operands.
        raised: Nodes whose value is replaced by zeros.
        infos: The form of each value, by node name.
    """

    def __init__(self, graph: GraphModule, before: Before, *, on_cpu: bool) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self.on_cpu, self._graph, self._before = on_cpu, graph, before
        self.raised: list[Node] = []
        self.infos: dict[str, object] = {}

    def run_node(self, n: Node) -> object:
        """Run a node, and describe its value."""
        self._before(n, self.env)
        value = next(self.args_iter) if n.op == "placeholder" else self._value(n)
        self.infos[n.name] = describe(value)
        return value

    def _value(self, node: Node) -> object:
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        try:
            run = self._run_on_cpu if self.on_cpu else partial(call_node, self._graph)
            return run(node, args, kwargs)
        except Exception:
            try:
                value = self._stand_in(node, args, kwargs)
            except Exception:  # fake tensors do not know either
                pass
            else:
                self.raised.append(node)
                return value
            raise

    def _run_on_cpu(self, node: Node, args: Any, kwargs: Any) -> object:
        """Run a node with copies of its operands on the CPU; return its value on their device."""
        if node.op not in ("call_function", "call_method"):
            return call_node(self._graph, node, args, kwargs)
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        args, kwargs = tree_map(_to_cpu, (args, kwargs))
        value = call_node(self._graph, node, args, kwargs)
        copies = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if mutated_arguments(node):
            for operand, copy in zip(operands, copies, strict=True):
                if copy is not operand:
                    operand.detach().copy_(copy.detach())
        gpu = next((each.device for each in operands if each.device.type != "cpu"), None)
        return value if gpu is None else tree_map(partial(_move_to, device=gpu), value)

    def _stand_in(self, node: Node, args: Any, kwargs: Any) -> object:
        mode = fake.new_fake_mode()

        def faked(value: Any) -> Any:
            return fake.to_fake(value, mode)

        args, kwargs = map_aggregate((args, kwargs), faked)
        with fake.without_log(), fake.fake_compute(mode):
            value = call_node(self._graph, node, args, kwargs)
        return map_aggregate(value, _zeros)


def call_node(gm: GraphModule, node: Node, args: Any, kwargs: Any) -> Any:
    """Return the value of a node for some operands; of `get_attr`, the attribute."""
    match node.op:
        case "call_function":
            check_launch(node, kwargs)
            target: Any = node.target
        case "call_method":
            target, args = getattr(args[0], str(node.target)), args[1:]
        case "get_attr":
            return fetch(gm, node.target)
        case "output":
            return args[0]
        case _:
            target = fetch(gm, node.target)
    return target(*args, **kwargs)


def _to_cpu(value: object) -> object:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return _move_to(value, device=torch.device("cpu"))


def _move_to(value: object, *, device: torch.device) -> object:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _zeros(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    size, stride = tuple(value.shape), value.stride()
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).zero_()


def _walk(case: Case, before: Before = lambda node, env: None) -> _Run:
    """Run the case once; on private copies if the graph changes any of its values."""
    graph, inputs = case.graph, case.inputs
    if any(node.op == "call_module" or mutated_arguments(node) for node in graph.graph.nodes):
        graph, inputs = private_copy(graph, inputs)
    on_cpu = case.signature is not None and case.signature.breaks_eager
    run = _Run(graph, before, on_cpu=on_cpu)
    with apply_modes(case.modes), process_state_kept(), limit_rounds(graph):
        run.run(*inputs, enable_io_processing=False)
    return run
