"""The fake (meta) implementations of operators as passes of the stage `dispatch`: `meta.OPERATOR`.

They give the compiler shapes, types and strides ahead of the values. Each operator has one pass,
`dispatch/meta.aten.copysign.Tensor`. Vetoed, the operator's real kernel runs instead, on stand-ins
of the operands, so that the predicted types are the real ones.

A custom operator is a pass as a whole, `operator/mylib::scale`: its kernel may differ from its
schema as well (`toolkit/execution/declared_operators.py`).

They leave no record: their results are on the nodes of every graph (`meta["val"]`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ctk.compiler.observe import PassId
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.fake.fake_kernels import fake_kernels_watched
from ctk.compiler.torch_compat.fx.custom_kernels import is_custom, operator_name

Operator = Callable[..., object]


def fake_kernel_id(operator: Operator) -> PassId:
    """Return the id of an operator's fake implementation; of a custom operator, the operator's."""
    if is_custom(operator):
        return PassId("operator", operator_name(operator))
    return PassId("dispatch", f"meta.{operator}")


@dataclass(slots=True)
class FakeKernels:
    """The fake implementations of one compile."""

    numbering: Numbering
    _allowed: dict[Operator, bool] = field(default_factory=dict[Operator, bool])

    def hook(self) -> AbstractContextManager[None]:
        """Ask about each operator in this thread until the region ends; needs the compile lock."""
        return fake_kernels_watched(self._allow)

    def _allow(self, operator: Operator) -> bool:
        if operator not in self._allowed:
            self._allowed[operator] = self.numbering.allow_pass(fake_kernel_id(operator))
        return self._allowed[operator]
