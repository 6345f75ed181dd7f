"""The content of a tensor as the shortest recipe with which a script can rebuild it.

Four kinds, the simplest first; `build_content` rebuilds the same bits:

1. `zeros`: zeros except for a few runs of one number each: `ones` or `x[3, 4] = 101` is one run;
2. `arange`, 3. `randn:SEED`: a filling except for a few runs of zeros;
4. `data`: anything else. A script needs the numbers themselves.

    [0, 0, 7, 7, 0, 1]   is   zeros, ContentRun(2, 4, 7.0), ContentRun(5, 6, 1.0)

Indices count elements in row-major order, expanded dimensions once. Strides, devices and gradients
are not part of the content; quantized and sparse tensors have none.
"""

import functools
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ctk.compiler.fx.clone import raw_bytes, same_bits
from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.repro_templates.graph.values import placed
from ctk.toolkit.case.formats.fillings import RECIPE_SEEDS, core_of, make_filling

Number = bool | int | float | complex

RUNS = 16
"""The most runs that count as few."""

BLOCKS = 32
"""The most blocks of one level that are listed (`Content.blocks`)."""

BRANCHES = 4
"""Into how many blocks a block is divided on the next level."""

_WHOLE = 1024
"""Up to here whole numbers are simpler than others."""

_DATA = "data"
_KINDS = ("zeros", "arange", "randn", _DATA)
_PREFIX = 4096
"""Elements that are compared before a whole `randn` is made."""


@dataclass(frozen=True, slots=True)
class ContentRun:
    """Elements from `start` to before `stop` that hold one number, of the tensor's dtype."""

    start: int
    stop: int
    value: Number


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a tensor.

    Attributes:
        nonzeros: The number of elements with a bit that is set (-0.0 has one).
        roughness: Of `data`: 0 if all are -1, 0 or 1; 1 if all are small whole numbers; 2 if all
            are finite; else 3.
        blocks: For each level, the blocks with a non-zero; None if there are more than `BLOCKS`.
            Level n cuts the elements into `BRANCHES ** (n + 1)` blocks (`block_range`); a block of
            the last level has one element.
    """

    kind: str
    runs: tuple[ContentRun, ...] = ()
    nonzeros: int = 0
    roughness: int = 0
    blocks: tuple[tuple[int, ...] | None, ...] = ()

    @property
    def is_recipe(self) -> bool:
        """Whether a script can build it without a data file."""
        return self.kind != _DATA

    @property
    def rank(self) -> tuple[int, ...]:
        """The order of contents, the simplest first.

        Kind, non-zeros, runs, roughness (or seed), and distance from the front.
        """
        kind, _, seed = self.kind.partition(":")
        rough = self.roughness + int(seed or 0) + sum(rank_of(run.value) for run in self.runs)
        places = sum(run.start for run in self.runs)
        return _KINDS.index(kind), self.nonzeros, len(self.runs), rough, places


NOTHING = Content("zeros")
"""The content of a value without elements."""


@dataclass(slots=True)
class ContentCache:
    """A cache of contents by the identity of tensors, which must live and not be written to."""

    known: dict[int, tuple[weakref.ref[torch.Tensor], int, Content]] = field(
        default_factory=dict[int, tuple[weakref.ref[torch.Tensor], int, Content]]
    )

    def of(self, value: object) -> Content:
        """Return the content of a value; `NOTHING` unless it is a tensor with numbers."""
        if not isinstance(value, torch.Tensor):
            return NOTHING
        version = -1 if value.is_inference() else value._version
        found, seen, content = self.known.get(id(value), (None, -1, NOTHING))
        if found is not None and found() is value and seen == version:
            return content
        content = content_of(value)
        if version >= 0:  # an inference tensor has no version
            number, known = id(value), self.known
            ref = weakref.ref(value, lambda _: known.pop(number, None) and None)
            known[number] = (ref, version, content)
        return content


def content_of(tensor: torch.Tensor) -> Content:
    """Return the content of a tensor, which is only read."""
    is_plain = type(tensor) in PLAIN_CLASSES and tensor.layout == torch.strided
    has_numbers = is_plain and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)
    if not has_numbers or not tensor.numel():
        return NOTHING
    core = core_of(tensor.detach().resolve_conj().resolve_neg()).cpu().contiguous()
    is_set = _any(_bits(core) != 0)
    nonzeros, blocks = int(is_set.sum()), _list_blocks(is_set)
    runs = _runs(core)
    if runs is not None:
        return Content("zeros", runs, nonzeros, blocks=blocks)
    kind, holes = _find_filling(core, is_set) or (_DATA, ())
    roughness = _roughness(core) if kind == _DATA else 0
    return Content(kind, holes, nonzeros, roughness, blocks)


def short_content(tensor: torch.Tensor) -> Content | None:
    """Return the content of a plain tensor if it is zeros except for a few runs, or `arange`."""
    if not tensor.numel():
        return None
    core = core_of(tensor.detach()).cpu().contiguous()
    runs = _runs(core)
    if runs is not None:
        return Content("zeros", runs)
    is_range = same_bits(core, make_filling("arange", (core.numel(),), core.dtype).view(core.shape))
    return Content("arange") if is_range else None


def build_content(content: Content, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return the contiguous CPU tensor that a recipe describes (`Content.is_recipe`)."""
    result = make_filling(content.kind, shape, dtype)
    return placed(result, {range(run.start, run.stop): run.value for run in content.runs})


def block_range(block: int, level: int, count: int) -> range:
    """Return the elements of a block, of `count` elements in all."""
    size = _block_size(level, count)
    return range(block * size, min(count, (block + 1) * size))


def block_count(level: int, count: int) -> int:
    """Return how many blocks a level has, of `count` elements in all."""
    return -(-count // _block_size(level, count))


def _block_size(level: int, count: int) -> int:
    return BRANCHES ** max(0, levels(count) - 1 - level)


def levels(count: int) -> int:
    """Return how many levels of blocks there are for so many elements."""
    return max(1, math.ceil(math.log(count, BRANCHES) - 1e-9)) if count else 0


def index_of(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of the element at a place: (1, 2) for 6 in a tensor of 3 rows of 4."""
    index: list[int] = []
    for size in reversed(shape):
        place, position = divmod(place, size)
        index.append(position)
    return tuple(reversed(index))


def rank_of(value: Number) -> int:
    """Return the rank of a number by simplicity: 0, 1, -1, 2, ... 1000, 0.5, 1e9, inf, nan.

    1. Whole numbers up to 1024 by magnitude, then -0.0.
    2. Others by the digits that they need, then by their power of ten.
    3. Infinities, then NaN.
    """
    if isinstance(value, complex):
        return rank_of(value.real) + rank_of(value.imag)
    if isinstance(value, float) and not math.isfinite(value):
        return 10**7 + (2 if math.isnan(value) else int(value < 0))
    if value == 0:
        return 2 * _WHOLE + 2 if math.copysign(1.0, value) < 0 else 0
    if abs(value) <= _WHOLE and value == int(value):
        return 2 * abs(int(value)) + (value < 0)
    digits, exponent = digits_of(value)
    return 10_000 * len(digits) + 16 * abs(exponent) + int(digits[0]) + (value < 0)


def text_of(value: Number) -> str:
    """Return a number as Python writes it; NaN with its sign, because processors make both."""
    if isinstance(value, complex):
        imaginary = text_of(value.imag)
        plus = "" if imaginary.startswith("-") else "+"
        return f"({text_of(value.real)}{plus}{imaginary}j)"
    if isinstance(value, float) and math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    return repr(value)


def number_from(text: str, dtype: torch.dtype) -> Number:
    """Return the number of a text of `text_of`; raise `ValueError` if this dtype has none such."""
    if dtype == torch.bool:
        if text not in ("True", "False"):
            raise ValueError(text)
        return text == "True"
    if dtype.is_complex:
        return complex(text)
    return float(text) if dtype.is_floating_point else int(text)


def number_of(one: torch.Tensor) -> Number:
    """Return the number of a tensor of one element, with the fewest digits: 0.1 of a float32."""
    value: Number = one.item()
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if abs(value) <= _WHOLE and value.is_integer():
        return value
    for count in range(17):
        short = float(f"{value:.{count}e}")
        if torch.tensor(short, dtype=one.dtype, device="cpu").item() == value:
            return short
    return value


def digits_of(value: float) -> tuple[str, int]:
    """Return the digits that a number needs, and its power of ten: `37`, -2 for 0.037."""
    texts = (f"{abs(value):.{count}e}" for count in range(17))
    shortest = next((text for text in texts if float(text) == abs(value)), f"{abs(value):.16e}")
    mantissa, _, exponent = shortest.partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


# --- recognising ----------------------------------------------------------------------------------


def _bits(core: torch.Tensor) -> torch.Tensor:
    """Return elements as integers: `[n]`, or `[n, 2]` for numbers of 16 bytes."""
    raw = raw_bytes(core)
    sized = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(core.itemsize, torch.int64)
    bits = raw.view(sized)
    return bits if len(bits) == core.numel() else bits.view(core.numel(), -1)


def _any(flags: torch.Tensor) -> torch.Tensor:
    return flags if flags.dim() == 1 else flags.any(dim=1)


def _list_blocks(is_set: torch.Tensor) -> tuple[tuple[int, ...] | None, ...]:
    """Return `Content.blocks`; each level is made from the one below."""
    levels_of_blocks: list[tuple[int, ...] | None] = []
    for _ in range(levels(is_set.numel())):
        is_few = int(is_set.sum()) <= BLOCKS
        levels_of_blocks.append(tuple(is_set.nonzero().reshape(-1).tolist()) if is_few else None)
        padded = torch.nn.functional.pad(is_set, (0, -is_set.numel() % BRANCHES))
        is_set = functools.reduce(torch.logical_or, padded.view(-1, BRANCHES).unbind(1))
    return tuple(reversed(levels_of_blocks))


def _runs(core: torch.Tensor) -> tuple[ContentRun, ...] | None:
    """Return the runs of non-zeros if they are few and Python can express their numbers."""
    bits = _bits(core)
    is_new = _any(bits[1:] != bits[:-1])
    if int(is_new.sum()) > 2 * RUNS:
        return None
    starts = [0, *(is_new.nonzero().reshape(-1) + 1).tolist()]
    stops = [*starts[1:], len(bits)]
    is_set = _any(bits[torch.tensor(starts, device="cpu")] != 0).tolist()
    flat = core.reshape(-1)
    runs = tuple(
        ContentRun(start, stop, number_of(flat[start]))
        for start, stop, has_value in zip(starts, stops, is_set, strict=True)
        if has_value
    )
    return runs if len(runs) <= RUNS and _rebuilds(flat, runs) else None


def _rebuilds(flat: torch.Tensor, runs: tuple[ContentRun, ...]) -> bool:
    """Return whether Python's numbers rebuild the same bits: NaNs with a payload do not."""
    firsts = torch.stack([flat[run.start] for run in runs]) if runs else flat[:0]
    again = torch.zeros(len(runs), dtype=flat.dtype, device="cpu")
    texts = [text_of(run.value) for run in runs]
    again = placed(again, {(i,): number_from(text, flat.dtype) for i, text in enumerate(texts)})
    return same_bits(firsts, again)


def _find_filling(
    core: torch.Tensor, is_set: torch.Tensor
) -> tuple[str, tuple[ContentRun, ...]] | None:
    """Return the filling of a tensor and its runs of zeros, if these are few."""
    if core.is_complex() or core.dtype == torch.bool:
        return None
    bounds = _edges(is_set)
    if bounds is None:
        return None
    zero, shape = 0.0 if core.is_floating_point() else 0, tuple(core.shape)
    holes = tuple(ContentRun(start, stop, zero) for start, stop in bounds)
    seeds = [f"randn:{seed}" for seed in RECIPE_SEEDS] if core.is_floating_point() else []
    for kind in ("arange", *seeds):
        content = Content(kind, holes)
        if _may_be(kind, core) and same_bits(core, build_content(content, shape, core.dtype)):
            is_natural = kind == "arange" and holes[:1] == (ContentRun(0, 1, zero),)
            return kind, holes[1:] if is_natural else holes
    return None


def _edges(is_set: torch.Tensor) -> list[tuple[int, int]] | None:
    """Return the bounds of the runs of zeros; None if they are many."""
    changes = (is_set[1:] != is_set[:-1]).nonzero().reshape(-1) + 1
    if len(changes) > 2 * RUNS:
        return None
    starts = [0, *changes.tolist()]
    pairs = zip(starts, [*starts[1:], len(is_set)], strict=True)
    holes = [(start, stop) for start, stop in pairs if not is_set[start]]
    return holes if len(holes) <= RUNS else None


def _may_be(kind: str, core: torch.Tensor) -> bool:
    """Return whether the first numbers fit a filling, without building all of it."""
    if not kind.startswith("randn") or core.numel() <= _PREFIX:
        return True
    flat = core.reshape(-1)[:_PREFIX]
    start = make_filling(kind, (_PREFIX,), core.dtype)
    return bool(((flat == start) | (flat == 0)).all())


def _roughness(core: torch.Tensor) -> int:
    parts = torch.view_as_real(core) if core.is_complex() else core
    values = parts.to(torch.float64)
    if not bool(values.isfinite().all()):
        return 3
    if bool((values.trunc() != values).any()):
        return 2
    largest = float(values.abs().max())
    return 0 if largest <= 1 else 1 if largest <= _WHOLE else 2
