"""Faults planted into Inductor above its lowerings: passes, partition, decompositions and fake
implementations.

As in `inductor_faults`; a culprit is given with its stage.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from tests.helpers.inductor_faults import Fault, aten, matrix

_LIES: list[bool] = []


@torch.library.custom_op("planted::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return (x * 0.5).t().contiguous().t()


@halved.register_fake
def _(x: Tensor) -> Tensor:
    made = x.new_empty(x.shape[::-1]).t()
    return x.new_empty(x.shape) if _LIES else made


class _Lying:
    """Let the fake implementation of `planted::halved` tell strides that it does not give."""

    def __enter__(self) -> None:
        _LIES.append(True)

    def __exit__(self, *_: object) -> None:
        _LIES.clear()


def _swap(graph: Graph, operator: Any, other: Any) -> None:
    for node in graph.find_nodes(op="call_function", target=operator):
        node.target = other


def _after(
    owner: str, name: str, operator: Any, other: Any
) -> Callable[[], AbstractContextManager[object]]:
    """Let a function on graphs also put `other` in place of `operator`."""
    import importlib

    def plant() -> AbstractContextManager[object]:
        module = importlib.import_module(owner)
        original = getattr(module, name)

        def wrong(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            changed = result[0] if isinstance(result, tuple) else graph
            _swap(changed.graph if isinstance(changed, GraphModule) else changed, operator, other)
            return result

        return mock.patch.object(module, name, wrong)

    return plant


def _decomposed(operator: Any, wrong: Callable[..., Any]) -> AbstractContextManager[object]:
    from torch._inductor.decomposition import decompositions

    original = decompositions[operator]

    def planted(*args: Any, **kwargs: Any) -> Any:
        return wrong(original(*args, **kwargs))

    return mock.patch.dict(decompositions, {operator: planted})


def waves(x: Tensor) -> Tensor:
    return x.sin() * 2.0 + x


def squashed(x: Tensor) -> Tensor:
    return (x * 1.5).tanh() + x.sum(-1, keepdim=True)


def soft(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x * 2.0) + x


def pulled(x: Tensor) -> Tensor:
    return torch.nn.functional.hardswish(x).sum(-1) * 2.0


def flat(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x * 2.0).view(-1)


def flat_in_two_ways(x: Tensor) -> Tensor:
    return torch.nn.functional.hardswish(torch.nn.functional.softplus(x)).view(-1) + 1.0


def flat_gradient(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x).view(-1)


def _turned(value: Tensor) -> Tensor:
    return value.t().contiguous().t()


def halved_and_shown(x: Tensor) -> tuple[Tensor, Tensor]:
    return halved(x.sin()), x.cos()


FAULTS = (
    Fault(
        "a joint pass computes another wave", waves, (matrix(),),
        _after("torch._inductor.fx_passes.joint_graph", "constant_fold_uniform_value",
               aten.sin.default, aten.cos.default),
        "joint/constant_fold_uniform_value", quick=True,
    ),
    Fault(
        "a post-grad pass computes another curve", squashed, (matrix(),),
        _after("torch._inductor.fx_passes.post_grad", "reorder_for_locality",
               aten.tanh.default, aten.sigmoid.default),
        "forward/reorder_for_locality",
    ),
    Fault(
        "a sort of nodes computes another sum", squashed, (matrix(),),
        _after("torch._inductor.fx_passes.post_grad", "stable_topological_sort",
               aten.sum.dim_IntList, aten.amax.default),
        "forward/stable_sort",
    ),
    Fault(
        "a post-grad pass of the backward graph", waves, (matrix(grad=True),),
        _after("torch._inductor.fx_passes.post_grad", "stable_topological_sort",
               aten.cos.default, aten.exp.default),
        "backward/stable_sort",
    ),
    Fault(
        "the partition computes another wave", waves, (matrix(grad=True),),
        _after("torch._inductor.compile_fx", "min_cut_rematerialization_partition",
               aten.sin.default, aten.exp.default),
        "joint/partition",
    ),
    Fault(
        "a decomposition is doubled", soft, (matrix(),),
        lambda: _decomposed(aten.softplus.default, lambda value: value * 2.0),
        "dispatch/decompose.aten.softplus.default",
    ),
    Fault(
        "a decomposition is shifted", pulled, (matrix(),),
        lambda: _decomposed(aten.hardswish.default, lambda value: value + 0.5),
        "dispatch/decompose.aten.hardswish.default",
    ),
    Fault(
        "a decomposition with another layout", flat, (matrix(),),
        lambda: _decomposed(aten.softplus.default, _turned),
        "dispatch/decompose.aten.softplus.default", quick=True,
    ),
    Fault(
        "one of two decompositions with another layout", flat_in_two_ways, (matrix(),),
        lambda: _decomposed(aten.hardswish.default, _turned),
        "dispatch/decompose.aten.hardswish.default",
    ),
    Fault(
        "a decomposition with another layout and a gradient", flat_gradient,
        (matrix(grad=True),),
        lambda: _decomposed(aten.softplus.default, _turned),
        "dispatch/decompose.aten.softplus.default",
    ),
    Fault(
        "strides are told that are not given", halved_and_shown, (matrix(),),
        _Lying,
        "operator/planted::halved", "halved_default",
    ),
)  # fmt: skip
