"""A backend whose wrappers went through JSON, and all that a program shows of a compiled call."""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ctk.compiler.dispatch.autograd import Stages, dispatch
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.fx import graphs


def boxed_graph(graph: GraphModule, _: object) -> graphs.Boxed:
    """Return a traced graph as a compiled one, run node by node."""
    interpreter = Interpreter(graph)

    def call(inputs: list[Any]) -> Any:
        held = list(inputs)
        inputs.clear()
        return interpreter.run(*held)

    return graphs.boxed(call)


class Rebuilt:
    """Compile with AOTAutograd's wrappers: its own, or those rebuilt from what `json` wrote."""

    def __init__(self, *, again: bool) -> None:
        self.again = again
        self.texts: list[str] = []

    def __call__(self, gm: GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
        made: dict[str, graphs.Boxed] = {}

        def keep(name: str) -> Callable[..., graphs.Boxed]:
            return lambda graph, inputs: made.setdefault(name, boxed_graph(graph, inputs))

        stages = Stages(lambda *_: None, keep("forward"), keep("backward"), keep("forward"))
        if not self.again:
            return dispatch(gm, inputs, stages)
        with aot_runtime.capture(gm, inputs) as recorded:
            dispatch(gm, inputs, stages)
        self.texts.append(json.dumps(recorded.as_json(gm)))
        backward = made.get("backward")
        run = aot_runtime.rebuild(
            json.loads(self.texts[-1]), gm, forward=made["forward"], backward=backward
        )
        return torch.compiler.disable(run)


def shown(outputs: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return what a program can see of outputs and inputs after a call, without their numbers."""
    values = [*graphs.tree_leaves(outputs), *graphs.tree_leaves(inputs)]
    facts: list[Any] = [_facts(each) for each in values]
    for one, other in itertools.combinations(values, 2):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            shared = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
            facts.append((one is other, shared, one._base is other, other._base is one))
    return facts


def _facts(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, value
    layout = (value.shape, value.stride(), value.storage_offset(), value.dtype)
    grads = (value.requires_grad, value.is_leaf, value.grad_fn is None, value.is_inference())
    return *layout, *grads, value._is_view(), None if value.is_inference() else value._version


def numbers(outputs: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the tensors of outputs and inputs, and the gradients of inputs that are leaves."""
    values = [each for each in graphs.tree_leaves((outputs, inputs)) if torch.is_tensor(each)]
    grads = [each.grad for each in values if each.is_leaf and each.requires_grad]
    return [None if each is None else each.detach().clone() for each in (*values, *grads)]
