"""Edits of values: fillings, fewer non-zeros, simpler numbers; NaN become torch's own."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ctk.compiler.fx.clone import overlaps, raw_bytes
from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.compiler.fx.walk import attributes, graphs_by_path, input_names
from ctk.repro_templates.graph.values import placed
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.fillings import core_of, fill_tensor, rewrite_tensor
from ctk.toolkit.case.formats.tensor_content import Number, index_of, text_of
from ctk.toolkit.case.roles import HELD
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.graph_changes import with_constants, with_inputs


@dataclass(frozen=True, slots=True)
class SetValues:
    """Give tensors other values: pairs (name, name of a filling in `fillings.FILLINGS`)."""

    pairs: tuple[tuple[str, str], ...]

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensors = tensors_of(case)
        return with_values(case, {name: fill_tensor(tensors[name], f) for name, f in self.pairs})

    def says(self) -> str:
        return ", ".join(f"{name} = {filling}" for name, filling in self.pairs)


@dataclass(frozen=True, slots=True)
class KeepLargest:
    """Keep so many elements of each tensor, NaN and the largest first; the others become zero."""

    names: tuple[str, ...]
    count: int

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensors = tensors_of(case)
        return with_values(case, {n: _rewritten(tensors[n], self._keep) for n in self.names})

    def _keep(self, flat: torch.Tensor) -> torch.Tensor:
        kept = largest_places(flat, self.count)
        result = torch.zeros_like(flat)
        _elements(result)[kept] = _elements(flat)[kept]
        return result

    def says(self) -> str:
        many = "element" if self.count == 1 else f"{self.count} elements"
        return f"{', '.join(self.names)}: all but the largest {many} = 0"


@dataclass(frozen=True, slots=True)
class ZeroElements:
    """Set elements to zero: pairs (start, stop) of places in the order of `shape`."""

    name: str
    shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return with_values(case, {self.name: _rewritten(tensors_of(case)[self.name], self._zero)})

    def _zero(self, flat: torch.Tensor) -> torch.Tensor:
        for start, stop in self.spans:
            flat[start:stop] = 0
        return flat

    def says(self) -> str:
        places = (f"{self.name}{_place(self.shape, *span)}" for span in self.spans)
        return f"{', '.join(places)} = 0"


@dataclass(frozen=True, slots=True)
class SetNumber:
    """Set a run of elements to another number (`content.Run`)."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    before: Number
    value: Number

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return with_values(case, {self.name: _rewritten(tensors_of(case)[self.name], self._set)})

    def _set(self, flat: torch.Tensor) -> torch.Tensor:
        return placed(flat, {range(self.start, self.stop): self.value})

    def says(self) -> str:
        place = _place(self.shape, self.start, self.stop)
        return f"{self.name}{place}: {short(self.before)} -> {short(self.value)}"


@dataclass(frozen=True, slots=True)
class MoveElement:
    """Move one element, which is not zero, to the front in some dimensions."""

    name: str
    shape: tuple[int, ...]
    place: int
    dims: tuple[int, ...]

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensor = tensors_of(case)[self.name]
        if raw_bytes(core_of(tensor.detach())[self._target()]).any():
            return None
        return with_values(case, {self.name: _rewritten(tensor, self._move)})

    def _move(self, flat: torch.Tensor) -> torch.Tensor:
        flat.view(self.shape)[self._target()] = flat[self.place].clone()
        flat[self.place] = 0
        return flat

    def _target(self) -> tuple[int, ...]:
        index = index_of(self.place, self.shape)
        return tuple(0 if dim in self.dims else i for dim, i in enumerate(index))

    def says(self) -> str:
        place = _place(self.shape, self.place, self.place + 1)
        return f"{self.name}{place} moved to {self.name}[{', '.join(map(str, self._target()))}]"


ROUNDINGS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole numbers": torch.round,
    "signs": torch.sgn,
}
"""Roundings of tensors with many values, from mild to strong."""


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Round all values of tensors: `ROUNDINGS`."""

    names: tuple[str, ...]
    rounding: str

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensors = tensors_of(case)
        return with_values(case, {n: _rewritten(tensors[n], self._round) for n in self.names})

    def _round(self, flat: torch.Tensor) -> torch.Tensor:
        return ROUNDINGS[self.rounding](flat.to(_wide(flat))).to(flat.dtype)

    def says(self) -> str:
        return f"{', '.join(self.names)}: values rounded to {self.rounding}"


def tensors_of(case: Case) -> dict[str, torch.Tensor]:
    """Return the tensors among the inputs of a case, then the constants of its graphs, by name."""
    pairs = zip(input_names(case.graph), case.inputs, strict=True)
    found = {name: value for name, value in pairs if isinstance(value, torch.Tensor)}
    for path, graph in graphs_by_path(case.graph).items():
        for target, held in attributes(graph).items():
            if isinstance(held, torch.Tensor):
                found[HELD + (f"{path}.{target}" if path else target)] = held
    return found


def changeable(case: Case) -> dict[str, torch.Tensor]:
    """Return the tensors whose values can change: plain ones with memory of their own."""
    tensors = {n: t for n, t in tensors_of(case).items() if type(t) in PLAIN_CLASSES}
    strided = {n: t for n, t in tensors.items() if is_strided(t) and t.numel()}
    own = {n: t for n, t in strided.items() if not (t.is_meta or t.is_quantized)}
    addresses = [each.untyped_storage().data_ptr() for each in own.values()]
    return {
        name: value
        for name, value in own.items()
        if addresses.count(value.untyped_storage().data_ptr()) == 1 and not _is_woven(value)
    }


def is_strided(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor lie in one memory, at the strides of its shape."""
    return tensor.layout == torch.strided and not tensor.is_nested


def core_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor without the repetitions of expanded dimensions."""
    return tuple(core_of(tensor).shape)


def largest_places(flat: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the largest elements, NaN before all, in order; ties: the first."""
    sizes = torch.nan_to_num(
        flat.to(_wide(flat)).abs(), nan=math.inf, posinf=torch.finfo(torch.float64).max
    )
    return sizes.sort(descending=True, stable=True).indices[:count].sort().values


def with_values(case: Case, values: Mapping[str, object]) -> Case | None:
    """Return a case with other values of the same form for some tensors, by name."""
    inputs = {name: value for name, value in values.items() if not name.startswith(HELD)}
    held = {n.removeprefix(HELD): value for n, value in values.items() if n.startswith(HELD)}
    result = with_inputs(case, inputs) if inputs else case
    if held and (result := with_constants(result, held)) is None:
        return None
    names = [name.removeprefix(HELD) for name in values]
    return dataclasses.replace(result, synthetic=tuple(dict.fromkeys([*case.synthetic, *names])))


def short(value: Number) -> str:
    """Return a number as people write it: 101 for 101.0."""
    if type(value) is float and value and value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    return text_of(value)


def _rewritten(value: torch.Tensor, write: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    def elements(core: torch.Tensor) -> torch.Tensor:
        flat = write(core.contiguous().reshape(-1).clone())
        if flat.is_floating_point() or flat.is_complex():
            nan = torch.tensor(math.nan, dtype=flat.dtype, device=flat.device)
            flat = torch.where(flat.to(_wide(flat)).isnan(), nan, flat)
        return flat.reshape(core.shape)

    return rewrite_tensor(value, elements)


def _elements(flat: torch.Tensor) -> torch.Tensor:
    """Return a view of elements in a dtype that can be indexed, of the same size."""
    return flat.view(_INDEXED[flat.itemsize]) if flat.itemsize in _INDEXED else flat


_INDEXED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _wide(flat: torch.Tensor) -> torch.dtype:
    """Return a dtype that holds the numbers of a tensor and has every operator."""
    return torch.complex128 if flat.is_complex() else torch.float64


def _is_woven(tensor: torch.Tensor) -> bool:
    core = core_of(tensor)
    return overlaps(core.shape, core.stride())


def _place(shape: tuple[int, ...], start: int, stop: int) -> str:
    if stop - start == torch.Size(shape).numel():
        return ""
    if stop - start > 1:
        return f" elements {start} to {stop - 1}"
    return f"[{', '.join(map(str, index_of(start, shape)))}]"
