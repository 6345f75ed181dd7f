"""A matrix product: its padded form, and the time that another form saves.

    x[33, 65] @ y[65, 31], half             a kernel reads rows of 16 bytes: 8 numbers
    (pad(x)[33, 72] @ pad(y)[72, 32])[:, :31]

Along the sum zeros meet zeros only, so nothing is added but 0; columns and rows beyond are cut off.
One function builds the nodes of a graph and makes the calls that are timed. `tune_products` times
the product of another library.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
ROW_NBYTES = 16
"""Leading dimensions of operands should be a multiple of this, so that kernels read vectors."""

ROUNDS, ROUND_SECONDS = 7, 2e-3

Emit = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Makes a call of an operator: a node of a graph, or the call itself."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor or a summand of a product, with hints for symbolic sizes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_transposed(self) -> bool:
        """Return whether its columns lie together in memory, not its rows."""
        return len(self.shape) > 1 and self.strides[-2] == 1 != self.strides[-1]

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))}.{'x'.join(map(str, self.strides))}"


def operand_of(tensor: torch.Tensor) -> Operand | None:
    """Return a tensor's layout, with hints for symbols; None without a hint."""
    shape, strides = map(_replace_symbols, (tensor.shape, tensor.stride()))
    return Operand(shape, strides) if shape is not None and strides is not None else None


def _replace_symbols(sizes: torch.Size | tuple[int, ...]) -> tuple[int, ...] | None:
    found = [fake.symbol_and_hint(size)[1] if fake.is_symbolic(size) else size for size in sizes]
    hints = tuple(each for each in found if isinstance(each, int))
    return hints if len(hints) == len(found) else None


@dataclass(frozen=True, slots=True)
class Product:
    """A call of `mm`, `bmm` or `addmm`, and the padding of its dimensions.

    Attributes:
        target: The operator.
        device: Device of the operands.
        dtype: Dtype of all operands.
        operands: In the order of the call: the summand, if any, and both factors.
        missing: Padding of the rows, of the sum, of the columns.
        is_copied: Whether the result is made dense again, because its strides are observable.
    """

    target: Any
    device: torch.device
    dtype: torch.dtype
    operands: tuple[Operand, ...]
    missing: tuple[int, int, int] = (0, 0, 0)
    is_copied: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, sum and columns."""
        first, second = self.operands[-2:]
        return first.shape[-2], first.shape[-1], second.shape[-1]

    @property
    def flops(self) -> int:
        rows, inner, columns = self.sizes
        batch = self.operands[-2].shape[0] if len(self.operands[-2].shape) > 2 else 1
        return 2 * batch * rows * inner * columns

    @property
    def key(self) -> str:
        """Return the key of its speed as one word: an entry of the option `decisions`."""
        place = self.device.type
        if place == "cuda":
            place = torch.cuda.get_device_name(self.device).replace(" ", "_")
        precision = torch.get_float32_matmul_precision() if self.dtype == torch.float32 else ""
        name = self.target._schema.name.removeprefix("aten::")
        dtype = str(self.dtype).removeprefix("torch.")
        parts = (place, name, dtype, precision, *self.operands, "copied" * self.is_copied)
        return "/".join(text for part in parts if (text := str(part)))


def lacks(product: Product, is_known: Sequence[bool]) -> tuple[int, int, int]:
    """Return the padding of the rows, the sum and the columns.

    Rows are contiguous, so that they are padded only if the first factor is copied anyway or
    transposed. A size of one is a vector, and is not padded.

    Args:
        product: The call; its `missing` is not read.
        is_known: For each of the three, whether it is a number.
    """
    unit = ROW_NBYTES // product.dtype.itemsize
    rows, inner, columns = (
        -size % unit if known and size > 1 else 0
        for size, known in zip(product.sizes, is_known, strict=True)
    )
    return (rows if inner or product.operands[-2].is_transposed else 0), inner, columns


def pad(product: Product, operands: Sequence[Any], options: Mapping[str, Any], emit: Emit) -> Any:
    """Make the padded call of a product: of nodes, or of tensors.

    Args:
        product: The product with its padding.
        operands: As in the call.
        options: Its keyword arguments (`beta`, `alpha`).
        emit: Makes each call.
    """
    rows, inner, columns = product.missing
    *added, first, second = zip(operands, product.operands, strict=True)
    calls = [
        *(_pad(emit, *each, _missing_of_added(each[1], rows, columns)) for each in added),
        _pad(emit, *first, (rows, inner)),
        _pad(emit, *second, (inner, columns)),
    ]
    result = emit(product.target, tuple(calls), options)
    for dim, missing, size in ((-2, rows, product.sizes[0]), (-1, columns, product.sizes[2])):
        if missing:
            result = emit(aten.slice.Tensor, (result, dim, 0, size), {})
    if product.is_copied:
        dense = {"memory_format": torch.contiguous_format}
        result = emit(aten.clone.default, (result,), dense)
    return result


def _missing_of_added(operand: Operand, rows: int, columns: int) -> tuple[int, int]:
    """Pad the summand of a product, except its broadcast dimensions."""
    sizes = (1, 1, *operand.shape)[-2:]
    return (rows if sizes[0] != 1 else 0, columns if sizes[1] != 1 else 0)


def _pad(emit: Emit, value: Any, operand: Operand, missing: tuple[int, int]) -> Any:
    """Add rows and columns of zeros; a transposed tensor stays transposed."""
    above, beside = missing
    if not above and not beside:
        return value
    pad = aten.constant_pad_nd.default
    if not operand.is_transposed:
        return emit(pad, (value, [0, beside, 0, above] if above else [0, beside]), {})
    turned = emit(aten.transpose.int, (value, -2, -1), {})
    return emit(aten.transpose.int, (emit(pad, (turned, [0, above, 0, beside]), {}), -2, -1), {})


_MEASURED: dict[str, dict[str, float]] = {}
"""Speed-ups of this process by pass and product: measured once, so decisions are consistent."""


def measurements(owner: str) -> Mapping[str, float]:
    """Return the speed-ups that a pass measured in this process, by the key of a product."""
    return dict(_MEASURED.get(owner, {}))


def speedup(
    owner: str, product: Product, other: Callable[..., Any], seconds: float = ROUND_SECONDS
) -> float:
    """Return how many times as fast another form of a product is.

    Measured on operands of the same sizes, strides, dtype and device, once per process. Numbers are
    drawn from a generator of its own. 0 where there is no memory for it.

    Args:
        owner: The pass that chooses between the forms.
        product: The product.
        other: Computes it from the operands of the call.
        seconds: Time of one round of calls; a slow call takes longer.
    """
    known = _MEASURED.setdefault(owner, {})
    if product.key not in known:
        device_type = product.device.type
        with fake.real_compute(), torch.no_grad(), torch.autocast(device_type, enabled=False):
            known[product.key] = _measure(product, other, seconds)
    return known[product.key]


def _measure(product: Product, other: Callable[..., Any], seconds: float) -> float:
    """Time both in turns, so that a machine that slows down slows down both; noise only adds."""
    try:
        operands = [_make(operand, product) for operand in product.operands]
        runs = (lambda: product.target(*operands), lambda: other(*operands))
        for run in runs:  # kernels are chosen and loaded at the first call
            _seconds(run, 2, product.device)
        once = _seconds(runs[0], 1, product.device)
        count = max(1, round(seconds / max(once, 1e-7)))
        pairs = [[_seconds(run, count, product.device) for run in runs] for _ in range(ROUNDS)]
    except torch.OutOfMemoryError:
        return 0.0
    plain, changed = map(min, zip(*pairs, strict=True))
    return plain / changed


def _make(operand: Operand, product: Product) -> torch.Tensor:
    """Return a tensor of an operand's layout."""
    pairs = zip(operand.shape, operand.strides, strict=True)
    count = 1 + sum((size - 1) * stride for size, stride in pairs)
    generator = torch.Generator(product.device).manual_seed(0)
    memory = torch.empty(count, dtype=product.dtype, device=product.device)
    memory.uniform_(-1, 1, generator=generator)
    return memory.as_strided(operand.shape, operand.strides)


def _seconds(run: Callable[[], object], count: int, device: torch.device) -> float:
    """Return the time of a number of calls, until the device is done."""
    finish = torch.get_device_module(device).synchronize
    finish()
    started = time.perf_counter()
    for _ in range(count):
        run()
    finish()
    return time.perf_counter() - started
