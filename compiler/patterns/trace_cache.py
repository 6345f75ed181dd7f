"""Traces of a rule by the types of its operands: equal layers of a model are traced once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch.fx import Node

from ctk.compiler.fx.types import tensor_of, type_text, value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import tracing

CACHE_SIZE = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of a trace.

    Attributes:
        mode: The id of the fake mode of the symbolic sizes, which the entry keeps alive.
        scalars: Constants as text: 1 is not 1.0.
    """

    mode: int | None
    types: tuple[str, ...]
    scalars: tuple[str, ...]
    ambient: tuple[bool, ...]


class TraceCache(Generic[T]):
    """Values made for the types and strides of operands, for constants and settings of torch."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[T, object]] = {}  # each with the fake mode of its operands

    def get(self, operands: Sequence[Node], scalars: Sequence[object], make: Callable[[], T]) -> T:
        """Return the value for these operands, made now if it is not kept.

        Of values with symbols only those of the compile at hand are kept.
        """
        mode = fake.mode_of([value_of(node) for node in operands])
        key = _key(operands, scalars, mode)
        if key not in self._kept:
            made = make()
            for old in [old for old in self._kept if old.mode not in (None, key.mode)]:
                self._kept.pop(old, None)
            if len(self._kept) >= CACHE_SIZE:
                self._kept.clear()
            self._kept[key] = made, mode
        return self._kept[key][0]


def _key(operands: Sequence[Node], scalars: Sequence[object], mode: object) -> _Key:
    tensors = [tensor_of(node) for node in operands]
    sizes = [(*tensor.shape, *tensor.stride()) for tensor in tensors if tensor is not None]
    is_symbolic = any(fake.is_symbolic(size) for each in sizes for size in each)
    return _Key(
        id(mode) if is_symbolic else None,
        (*(type_text(tensor, device=True) for tensor in tensors), str(sizes)),
        tuple(map(repr, scalars)),
        tracing.ambient(),
    )
