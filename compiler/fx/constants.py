"""Values of a graph that are known before it runs: attributes, and pure results of attributes."""

from functools import cache
from typing import cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.properties import base_of, is_pure, mutated_bases
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.inductor import onednn


class Constants:
    """The constant nodes of a graph, and their values (computed on demand, each once)."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._values: dict[Node, torch.Tensor] = {}
        self._known: dict[Node, bool] = {}
        self._written = mutated_bases(module.graph)
        self._storages = {
            value.untyped_storage().data_ptr()
            for node in self._written
            if node.op == "get_attr" and isinstance(value := self._attribute(node), torch.Tensor)
        }
        for node in module.graph.nodes:
            self._known[node] = self._is_constant(node)

    def _is_constant(self, node: Node) -> bool:
        if node.op == "get_attr":
            return self._is_kept(self._attribute(node))
        if (
            node.op != "call_function"
            or operators.declared_by(node.target) is None
            or not is_pure(node)
            or base_of(node) in self._written
            or onednn.packs(node.target)  # packed results cannot be stored
        ):
            return False
        tensor = tensor_of(node)
        if tensor is None or any(fake.is_symbolic(size) for size in tensor.shape):
            return False
        return all(self._known.get(operand, False) for operand in node.all_input_nodes)

    def _is_kept(self, value: object) -> bool:
        """Return whether an attribute is a tensor that no node of the graph writes to."""
        if not isinstance(value, torch.Tensor):
            return False
        return not self._storages or value.untyped_storage().data_ptr() not in self._storages

    def is_known(self, node: Node) -> bool:
        return self._known.get(node, False)

    def value(self, node: Node) -> torch.Tensor:
        if node not in self._values:
            with fake.real_compute():
                self._values[node] = self._compute(node)
        return self._values[node]

    def _compute(self, node: Node) -> torch.Tensor:
        if node.op == "get_attr":
            return self._attribute(node)  # type: ignore[return-value]  # _is_constant has checked
        args = map_arg(node.args, self.value)
        kwargs = map_arg(node.kwargs, self.value)
        result = node.target(*args, **kwargs)  # type: ignore[operator]  # an overload
        return cast("torch.Tensor", clone_value(result))  # with its strides, which users rely on

    def _attribute(self, node: Node) -> object:
        return fetch(self._module, node.target)


def constant_value(node: Node) -> torch.Tensor:
    """Return the value of a node for which `is_constant` holds."""
    module = node.graph.owning_module
    assert module is not None

    @cache
    def compute(each: Node) -> torch.Tensor:
        if each.op == "get_attr":
            return cast("torch.Tensor", fetch(module, each.target))
        args, kwargs = map_arg(each.args, compute), map_arg(each.kwargs, compute)
        return cast("torch.Tensor", each.target(*args, **kwargs))  # type: ignore[operator]  # an overload

    with fake.real_compute():
        return compute(node)
