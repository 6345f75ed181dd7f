"""Take a tensor of a class of its own apart into plain tensors, and build it from others.

TwoTensor(a, b)           a, b                  (`__tensor_flatten__`, `__tensor_unflatten__`)
a DTensor                 its local tensor      (its mesh and placements stay in the value)
t.as_subclass(Tagged)     t                     (the class only marks its tensors)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from torch.nn import Buffer, Parameter

PLAIN_CLASSES = (Tensor, Parameter, Buffer)


@dataclass(frozen=True, slots=True)
class Parts:
    """A value and its plain tensors.

    Attributes:
        inner: The parts of a tensor of a class of its own, by the names of the class; None for
            any other value. Other parts (the mesh of a DTensor) stay in the value.
    """

    value: Any
    inner: Mapping[str, "Parts"] | None = None

    def plain(self) -> Iterator[tuple[tuple[str, ...], Tensor]]:
        """Yield the plain tensors with their paths: `("a",)` and `("b",)` of a TwoTensor."""
        if isinstance(self.value, Tensor) and self.inner is None:
            yield (), self.value
        for name, part in (self.inner or {}).items():
            for path, tensor in part.plain():
                yield (name, *path), tensor

    def rebuild(self, tensors: Iterator[Tensor]) -> object:
        """Return a value of the same form with other tensors.

        A tensor of a class that only marks becomes plain: Dynamo has traced its effects.
        """
        if self.inner is None:
            return next(tensors) if isinstance(self.value, Tensor) else self.value
        cls = cast("Any", type(self.value))
        if not hasattr(cls, "__tensor_flatten__"):
            return next(tensors)
        names, context = self.value.__tensor_flatten__()
        parts = {name: getattr(self.value, name) for name in names}
        parts |= {name: inner.rebuild(tensors) for name, inner in self.inner.items()}
        return cls.__tensor_unflatten__(parts, context, self.value.size(), self.value.stride())


def parts_of(value: object) -> Parts:
    """Take a value apart."""
    if not isinstance(value, Tensor) or type(value) in PLAIN_CLASSES:
        return Parts(value)
    if not hasattr(value, "__tensor_flatten__"):  # the class only marks its tensors
        return Parts(value, {"": Parts(value.as_subclass(Tensor))})
    names, _ = cast("Any", value).__tensor_flatten__()
    parts = {name: getattr(value, name) for name in names}
    return Parts(
        value, {name: parts_of(part) for name, part in parts.items() if isinstance(part, Tensor)}
    )
