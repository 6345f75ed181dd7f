"""The fake (meta) implementations of operators as passes of the stage `dispatch`: `meta.OPERATOR`.

They tell the compiler shapes, types and strides of values before there are any. Each operator's is
a pass, `dispatch/meta.aten.copysign.Tensor`: vetoed, the operator's real kernel is asked instead,
on stand-ins of its operands. So a compile can be had in which what was told is what is given.

They leave no record: what they told is written on the nodes of every graph (`meta["val"]`).
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ctk.compiler.observe import PassId
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.fake.fake_kernels import fake_kernels_watched

Operator = Callable[..., object]


def fake_kernel_id(operator: Operator) -> PassId:
    """Return the id under which an operator's fake implementation is asked about."""
    return PassId("dispatch", f"meta.{operator}")


@dataclass(slots=True)
class FakeKernels:
    """What one compile is told of values before there are any.

    Attributes:
        numbering: Is asked whether an operator's fake implementation may answer; once.
    """

    numbering: Numbering
    _allowed: dict[Operator, bool] = field(default_factory=dict[Operator, bool])

    @contextmanager
    def hooked(self) -> Generator[None]:
        """Ask about each operator in this thread until the region ends; holds the compile lock."""
        with fake_kernels_watched(self._allow):
            yield

    def _allow(self, operator: Operator) -> bool:
        if operator not in self._allowed:
            self._allowed[operator] = self.numbering.allow_pass(fake_kernel_id(operator))
        return self._allowed[operator]
