"""The input guard of an entry point: refuse a call for which the code was not compiled.

Every tensor has its type, its device, its rank and its sizes; a size that may vary is within its
range, and equal wherever it has the same name. A message names the argument as the program does. A
tensor with other strides is copied; but a tensor that the graph writes to must have the compiled
strides, and may share memory with no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ctk.compiler.errors import MALFORMED, ArtifactError, InputError
from ctk.compiler.fx.clone import extent
from ctk.compiler.records import (
    FLAG,
    INTEGER,
    TEXT,
    Codec,
    Json,
    Malformed,
    mapping,
    optional,
    record,
    renamed,
    row,
    sequence,
    union,
)
from ctk.compiler.runtime.helpers import fitted
from ctk.compiler.runtime.values import DEVICE, DTYPE, SIZE, VALUE
from ctk.compiler.sizes.index import Index, Symbol
from ctk.compiler.sizes.size_guards import number_of, symbols_of
from ctk.compiler.torch_compat.process import strided_tensors


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor that is passed in."""

    name: str
    dtype: torch.dtype
    device: torch.device
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class NumberInput:
    """An integer that is passed in, and may vary."""

    name: str
    size: Index


@dataclass(frozen=True, slots=True)
class FixedInput:
    """A value that was fixed when the graph was traced: not an input of the code."""

    name: str
    value: Any


Input = TensorInput | NumberInput | FixedInput


@dataclass(frozen=True, slots=True)
class Dimension:
    """A size that may vary.

    Attributes:
        name: Its name in the program; else its position: `x.size(0)`.
        high: The largest; None for any.
    """

    name: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the sizes of a call."""

    left: Index
    relation: str
    right: Index

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


_Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]

_KEPT = 256


@dataclass(frozen=True, slots=True)
class InputGuard:
    """The checks of a call of an entry point.

    Attributes:
        inputs: In the order in which they are flattened.
        dimensions: The sizes that vary, by symbol.
    """

    inputs: tuple[Input, ...]
    dimensions: Mapping[str, Dimension]
    conditions: tuple[Condition, ...] = ()
    _known: dict[tuple[int, ...], list[_Layout]] = field(
        default_factory=dict[tuple[int, ...], "list[_Layout]"],
        init=False, repr=False, compare=False,
    )  # fmt: skip

    def admit(self, values: Sequence[Any]) -> list[Any]:
        """Return the values that the code takes, in order.

        Raises:
            InputError: A value does not fit; the message names it and shows it.
        """
        sizes: dict[str, int] = {}
        for each, value in zip(self.inputs, values, strict=True):
            self._learn(each, value, sizes)
        if len(sizes) < len(self.dimensions):
            self._solve(values, sizes)
        taken: list[Any] = []
        layouts = self._layouts(sizes)
        for each, value, layout in zip(self.inputs, values, layouts, strict=True):
            if isinstance(each, TensorInput):
                taken.append(self._tensor(each, value, layout, sizes))
            elif isinstance(each, NumberInput):
                self._refuse_size(each.name, each.size, value, sizes)
                taken.append(value)
            elif not _same(each.value, value):
                raise InputError(
                    f"{each.name} is {_show(value)}, and was {_show(each.value)} when the "
                    "package was compiled: it is fixed. Compile one for each value that is needed"
                )
        if self._writes:
            self._refuse_shared(values)
        return taken

    def _layouts(self, sizes: Mapping[str, int]) -> list[_Layout]:
        """Return the shape and the strides of each tensor; recent sizes are cached."""
        key = tuple(sizes.values())
        if key not in self._known:
            self._refuse_sizes(sizes)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = [
                (_numbers(each.shape, sizes), _numbers(each.strides, sizes))
                if isinstance(each, TensorInput)
                else ((), ())
                for each in self.inputs
            ]
        return self._known[key]

    def unknown_sizes(self) -> list[str]:
        """Return the symbols of sizes that no input determines."""
        tensors = [each for each in self.inputs if isinstance(each, TensorInput)]
        sizes = [size for each in self.inputs for _, size in places_of(each)]
        strides = [stride for tensor in tensors for stride in tensor.strides]
        sides = [
            side for condition in self.conditions for side in (condition.left, condition.right)
        ]
        known = {name for name in map(symbol_name, sizes) if name is not None}
        for size in (size for tensor in tensors for size in tensor.shape):  # as `_solve` does
            names = _symbols([size])
            known |= names if len(names - known) == 1 else set()
        return sorted(_symbols([*sizes, *strides, *sides]) - known)

    @property
    def _writes(self) -> bool:
        return any(isinstance(each, TensorInput) and each.is_written for each in self.inputs)

    def _refuse_shared(self, values: Sequence[Any]) -> None:
        pairs = zip(self.inputs, values, strict=True)
        tensors = [(each, value) for each, value in pairs if isinstance(each, TensorInput)]
        for number, (written, value) in enumerate(tensors):
            others = tensors if written.is_written else ()
            for place, (other, another) in enumerate(others):
                if place != number and share_memory(value, another):
                    raise InputError(
                        f"{written.name} and {other.name} share memory, and the graph writes to "
                        f"{written.name}: it was compiled for tensors that are apart. Pass a copy "
                        "of one of them"
                    )

    def _learn(self, each: Input, value: Any, sizes: dict[str, int]) -> None:
        """Refuse another kind of value, and note the sizes that it determines."""
        if isinstance(each, NumberInput):
            if type(value) is not int:
                raise InputError(f"{each.name} must be an int, and is {_show(value)}")
            pairs = [(each.size, value)]
        elif isinstance(each, TensorInput):
            self._refuse_other(each, value)
            pairs = list(zip(each.shape, value.shape, strict=True))
        else:
            return
        for size, found in pairs:
            name = symbol_name(size)
            if name is not None:
                sizes.setdefault(name, found)

    def _solve(self, values: Sequence[Any], sizes: dict[str, int]) -> None:
        """Find sizes that occur only in expressions: of `2*n` rows, n."""
        for each, value in zip(self.inputs, values, strict=True):
            shape = each.shape if isinstance(each, TensorInput) else ()
            for axis, size in enumerate(shape):
                unknown = _symbols([size]) - sizes.keys()
                if len(unknown) != 1:
                    continue
                (name,) = unknown
                start, next_ = (number_of(size, {**sizes, name: n}) for n in (0, 1))
                found = value.shape[axis]
                sizes[name], left = divmod(found - start, (next_ - start) or 1)
                if left:
                    raise InputError(
                        f"{each.name}.size({axis}) is {found}; it must be {self.size_text(size)}"
                    )

    def _refuse_other(self, each: TensorInput, value: Any) -> None:
        """Refuse a value that is not a tensor, or has another type, device or rank."""
        if type(value) not in (Tensor, torch.nn.Parameter):
            raise InputError(f"{each.name} must be a torch.Tensor, and is {_show(value)}")
        if value.dtype is not each.dtype:
            raise InputError(
                f"{each.name} is of {value.dtype}; the package was compiled for {each.dtype}"
            )
        if value.device != each.device:
            raise InputError(
                f"{each.name} is on {value.device}; the package was compiled for {each.device}"
            )
        if value.layout is not torch.strided:
            raise InputError(f"{each.name} has the layout {value.layout}; it must be strided")
        if value.dim() != len(each.shape):
            raise InputError(
                f"{each.name} has shape {list(value.shape)}; the package was compiled for "
                f"{self.text(each.shape)}, {len(each.shape)} dimensions"
            )

    def _tensor(
        self, each: TensorInput, value: Tensor, layout: _Layout, sizes: Mapping[str, int]
    ) -> Tensor:
        """Return a tensor with the strides that the code was compiled for."""
        shape, strides = layout
        if value.shape != shape:
            for axis, (size, found) in enumerate(zip(each.shape, value.shape, strict=True)):
                self._refuse_size(f"{each.name}.size({axis})", size, found, sizes)
        is_lazy = value.is_neg() or value.is_conj()
        if not is_lazy and (
            value.stride() == strides or strided_tensors.fits(value, shape, strides)
        ):
            return value
        if each.is_written:
            raise InputError(
                f"{each.name} has strides {value.stride()}; the graph writes to it, and was "
                f"compiled for {strides}: pass a tensor of these strides"
            )
        return fitted(value.resolve_conj(), shape, strides, each.dtype)

    def _refuse_size(self, what: str, size: Index, found: Any, sizes: Mapping[str, int]) -> None:
        if number_of(size, sizes) == found:
            return
        if size.number is not None:
            raise InputError(f"{what} is {found}; the package was compiled for {size.number}")
        names = [symbol.name for symbol in symbols_of([size])]
        told = ", ".join(f"{self.dimensions[name].name} = {sizes[name]}" for name in names)
        raise InputError(
            f"{what} is {found}; it must be {self.size_text(size)}, and {told} by another argument"
        )

    def _refuse_sizes(self, sizes: Mapping[str, int]) -> None:
        for name, each in self.dimensions.items():
            found = sizes.get(name)
            if found is None:
                continue
            if found < each.low or (each.high is not None and found > each.high):
                where, size = self._place(name)
                low, high = (
                    "any" if n is None else number_of(size, {**sizes, name: n})
                    for n in (each.low, each.high)
                )
                raise InputError(
                    f"{where} is {number_of(size, sizes)}; the package was compiled for {low} to "
                    f"{high}"
                )
        for each in self.conditions:
            pair = number_of(each.left, sizes), number_of(each.right, sizes)
            if not RELATIONS[each.relation](*pair):
                left, right = map(self.size_text, (each.left, each.right))
                raise InputError(
                    f"the package was compiled for {left} {each.relation} {right}, and here "
                    f"{pair[0]} {each.relation} {pair[1]} does not hold"
                )

    def _place(self, name: str) -> tuple[str, Index]:
        """Return a position of a size, alone if possible, and the expression at that position."""
        found = [place for each in self.inputs for place in places_of(each)]
        told = [each for each in found if name in _symbols([each[1]])]
        return min(told, key=lambda each: symbol_name(each[1]) != name)

    def text(self, sizes: Sequence[Index]) -> str:
        """Return sizes with the user's names: `[batch, 16]`."""
        return f"[{', '.join(map(self.size_text, sizes))}]"

    def size_text(self, size: Index) -> str:
        """Return a size with the user's names."""
        if size.number is not None:
            return str(size.number)
        names = {symbol: each.name for symbol, each in self.dimensions.items()}
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(size))


RELATIONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def places_of(each: Input) -> list[tuple[str, Index]]:
    """Return the positions of the sizes of an input, `x.size(0)`, and the sizes."""
    if isinstance(each, FixedInput):
        return []
    if isinstance(each, NumberInput):
        return [(each.name, each.size)]
    return [(f"{each.name}.size({axis})", size) for axis, size in enumerate(each.shape)]


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors may share an element: two halves of a tensor do not."""
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    (a_start, a_end), (b_start, b_end) = map(_extent, (a, b))
    return a_start < b_end and b_start < a_end and strided_tensors.overlap(a, b)


def _extent(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + extent(tensor.shape, tensor.stride()) * tensor.element_size()


def symbol_name(size: Index) -> str | None:
    """Return the name of a size that is one symbol; else None."""
    match size.terms:
        case (((Symbol(name=name),), 1),):
            return name
        case _:
            return None


def _numbers(sizes: Sequence[Index], values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(number_of(size, values) for size in sizes)


def _symbols(sizes: Sequence[Index]) -> set[str]:
    return {symbol.name for symbol in symbols_of(sizes)}


def _same(fixed: Any, value: Any) -> bool:
    """Return whether a value equals a fixed one: the sign of a zero counts, NaN equals NaN."""
    if type(value) is not type(fixed):
        return False
    return repr(value) == repr(fixed) if isinstance(fixed, float | complex) else value == fixed


def _show(value: object) -> str:
    text = repr(value) if not isinstance(value, Tensor) else "a tensor"
    return text if len(text) < 60 else f"a {type(value).__name__}"


def guard_json(guard: InputGuard) -> Json:
    """Return an input guard as JSON.

    Raises:
        ArtifactError: A fixed value cannot be stored.
    """
    return _GUARD.write(guard)


def guard_of(data: Json) -> InputGuard:
    """Return the input guard of `guard_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    try:
        guard = _GUARD.read(data)
        if guard.unknown_sizes():
            raise Malformed("no input determines a size")
        return guard
    except MALFORMED as error:
        raise ArtifactError(f"the inputs of an entry point are malformed: {error!r}") from error


def _relation(text: Json) -> str:
    if text not in RELATIONS:
        raise Malformed(f"{text!r} is not a relation")
    return text


_TENSOR = record(
    TensorInput,
    {"kind": "tensor"},
    name=TEXT,
    dtype=DTYPE,
    device=DEVICE,
    shape=sequence(SIZE),
    strides=sequence(SIZE),
    is_written=renamed("written", FLAG),
)
_INPUT = union(
    lambda data: data["kind"],
    {
        "int": (NumberInput, record(NumberInput, {"kind": "int"}, name=TEXT, size=SIZE)),
        "fixed": (FixedInput, record(FixedInput, {"kind": "fixed"}, name=TEXT, value=VALUE)),
        "tensor": (TensorInput, _TENSOR),
    },
)
_GUARD = record(
    InputGuard,
    inputs=sequence(_INPUT),
    dimensions=mapping(record(Dimension, name=TEXT, low=INTEGER, high=optional(INTEGER))),
    conditions=sequence(row(Condition, left=SIZE, relation=Codec(str, _relation), right=SIZE)),
)
