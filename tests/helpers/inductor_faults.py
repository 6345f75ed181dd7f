"""Faults planted into Inductor below its passes, each with a small program that meets it.

A fault is a patch of Inductor for the time of a test; `culprit` is what a bisection must name.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong piece of Inductor.

    Attributes:
        name: Id of the test.
        program: Meets it.
        inputs: Of the program.
        plant: Makes Inductor wrong for a region.
        culprit: What must be found and confirmed, without its stage if that is `lowered`.
        node: A node that must be among those of the culprit; "" for any.
        quick: Whether it is one of the few that always run.
    """

    name: str
    program: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    plant: Callable[[], AbstractContextManager[object]]
    culprit: str
    node: str = ""
    quick: bool = False

    @property
    def where(self) -> str:
        return self.culprit if "/" in self.culprit else f"lowered/{self.culprit}"


def lowered(operator: Any, wrong: Callable[..., Any]) -> AbstractContextManager[object]:
    """Register another lowering: `wrong(original, *args, **kwargs)`."""
    from torch._inductor import lowering

    original = lowering.lowerings[operator]

    def planted(*args: Any, **kwargs: Any) -> Any:
        return wrong(original, *args, **kwargs)

    return mock.patch.dict(lowering.lowerings, {operator: planted})


def _other(operator: Any) -> Callable[..., Any]:
    """Return a lowering that is that of another operator."""

    def wrong(original: Any, *args: Any, **kwargs: Any) -> Any:
        from torch._inductor import lowering

        return lowering.lowerings[operator](*args, **kwargs)

    return wrong


def _raises(original: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("planted: cannot lower this")


def _reversed_cat(original: Any, tensors: Any, dim: int = 0) -> Any:
    return original(list(reversed(tensors)), dim)


def _uncorrected(original: Any, x: Any, axis: Any = None, **kwargs: Any) -> Any:
    return original(x, axis, **{**kwargs, "correction": 5})


def _codegen(**wrong: Callable[..., Any]) -> AbstractContextManager[object]:
    """Change what is written for an operation, in vectors and in scalars."""
    from contextlib import ExitStack

    from torch._inductor.codegen import cpp

    stack = ExitStack()
    for owner in (cpp.CppOverrides, cpp.CppVecOverrides):
        for name, function in wrong.items():
            stack.enter_context(mock.patch.object(owner, name, staticmethod(function)))
    return stack


def _wrong_vector_stores() -> AbstractContextManager[object]:
    """Write one more than was computed, in vectorized code only."""
    from torch._inductor.codegen.cpp import CppVecKernel

    original = vars(CppVecKernel)["_get_store_line"]

    def store(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        one = "decltype(" + str(value) + ")(1)"
        return original(self, f"({value} + {one})", *args, **kwargs)

    return mock.patch.object(CppVecKernel, "_get_store_line", store)


def _fuses_anything() -> AbstractContextManager[object]:
    """Fuse a producer and a consumer, whatever else the consumer waits for."""
    from torch._inductor.scheduler import Scheduler

    return mock.patch.object(Scheduler, "can_fuse_vertical", lambda *_, **__: True)


def _fuses_backwards() -> AbstractContextManager[object]:
    """Put what a fused node reads behind it."""
    from torch._inductor.scheduler import FusedSchedulerNode

    original = vars(FusedSchedulerNode)["fuse"].__func__

    def fuse(cls: Any, first: Any, second: Any) -> Any:
        return original(cls, second, first)

    return mock.patch.object(FusedSchedulerNode, "fuse", classmethod(fuse))


def _writes_over_what_it_reads() -> AbstractContextManager[object]:
    from torch._inductor.scheduler import SchedulerNode

    return mock.patch.object(SchedulerNode, "can_inplace", lambda *_: True)


def gated(x: Tensor) -> Tensor:
    return torch.exp(-x.abs()) * torch.sigmoid(x) + x


def largest(x: Tensor) -> Tensor:
    return (x * 2.0).amax(-1) + 1.0


def joined(x: Tensor) -> Tensor:
    return torch.cat([x * 2.0, x + 1.0], 1).tanh()


def normalized(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.var(-1, keepdim=True) + 0.1).sqrt()


def turned(x: Tensor) -> Tensor:
    return torch.flip(x, (0,)) * 2.0 + x


def absolute(x: Tensor) -> Tensor:
    return (x.abs() * 3.0).tanh()


def projected(x: Tensor) -> Tensor:
    return torch.relu(x @ x.t()) + 1.0


def used_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x.exp()
    return made @ made, made * 2.0 + 1.0


def weighted_and_turned(x: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(x, 1)
    return weights.flip(0) * 2.0, weights


def product_and_turned(x: Tensor) -> Tensor:
    return (x @ x).flip(0) + 1.0


def in_vectors(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x @ x).exp() @ x, (x + x.t()).sin()


def matrix(rows: int = 6, columns: int = 8, *, grad: bool = False) -> Tensor:
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    return values.requires_grad_(grad)


FAULTS = (
    Fault(
        "sigmoid is tanh", gated, (matrix(),),
        lambda: lowered(aten.sigmoid.default, _other(aten.tanh.default)),
        "lower.aten.sigmoid.default", "sigmoid", quick=True,
    ),
    Fault(
        "largest is smallest", largest, (matrix(),),
        lambda: lowered(aten.amax.default, _other(aten.amin.default)),
        "lower.aten.amax.default", "amax",
    ),
    Fault(
        "parts in another order", joined, (matrix(),),
        lambda: lowered(aten.cat.default, _reversed_cat),
        "lower.aten.cat.default", "cat",
    ),
    Fault(
        "variance with another correction", normalized, (matrix(),),
        lambda: lowered(aten.var.correction, _uncorrected),
        "lower.aten.var.correction", "var",
    ),
    Fault(
        "a lowering raises", turned, (matrix(),),
        lambda: lowered(torch.ops.prims.rev.default, _raises),
        "lower.prims.rev.default", "rev", quick=True,
    ),
    Fault(
        "backward of abs", absolute, (matrix(grad=True),),
        lambda: lowered(aten.sign.default, _other(aten.neg.default)),
        "lower.aten.sign.default", "sign",
    ),
    Fault(
        "relu is abs", projected, (matrix(8, 8),),
        lambda: lowered(aten.relu.default, _other(aten.abs.default)),
        "lower.aten.relu.default", "relu",
    ),
    Fault(
        "written as another function", gated, (matrix(),),
        lambda: _codegen(exp=lambda x: f"({x} * {x})"),
        "lower.aten.exp.default", "exp",
    ),
    Fault(
        "written with another sign", absolute, (matrix(),),
        lambda: _codegen(abs=lambda x: f"({x} + {x})"),
        "lower.aten.abs.default", "abs_1",
    ),
    Fault(
        "vectors are stored wrongly", in_vectors, (matrix(16, 16),),
        _wrong_vector_stores,
        "vectorization",
    ),
    Fault(
        "fused backwards", used_twice, (matrix(8, 8),),
        _fuses_backwards,
        "fusion", quick=True,
    ),
    Fault(
        "fused into a circle", weighted_and_turned, (matrix(8, 8),),
        _fuses_anything,
        "fusion",
    ),
    Fault(
        "written over what is read later", product_and_turned, (matrix(8, 8),),
        _writes_over_what_it_reads,
        "inplace_buffers",
    ),
)  # fmt: skip
