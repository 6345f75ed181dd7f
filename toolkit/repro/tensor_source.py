"""Write a tensor or scalar as Python source that rebuilds the same bits.

In order of preference: a fill (`torch.zeros`), a literal (up to 64 elements), a recipe
(`torch.arange`, seeded `randn`), a recipe or zeros with a few other numbers
(`placed(torch.zeros((19, 19)), {(3, 4): 101.0})`), else `stored(...)`, which reads the data file
beside the script. Every choice is verified by building the value and comparing bits.

Tensor subclasses, sparse and quantized layouts are refused (`CaseError`). Storage offsets are kept
only for inputs that share a storage.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ctk.compiler.errors import NotHeld
from ctk.compiler.fx.clone import extent, overlaps, same_bits
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.formats.fillings import RECIPE_SEEDS, make_filling
from ctk.toolkit.case.formats.tensor_content import (
    ContentRun,
    build_content,
    content_of,
    index_of,
    number_of,
    text_of,
)

LITERAL_ELEMENTS = 64
"""The largest tensor that is written out as numbers."""

_WIDTH = 92
_FILLED = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.complex128, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
_COUNTED = (torch.float32, torch.float64, torch.int32, torch.int64)
_EXACT = 1 << 24
"""Numbers that `torch.arange` counts exactly in each dtype of `_COUNTED`."""


@dataclass(slots=True)
class Sources:
    """The data file of one script, and the helper functions that its sources call.

    Attributes:
        helpers: Names of the helper functions that the script must define (`randn`, `placed`,
            `stored`, `strided`, `inference`), and `shared` if inputs share memory.
        default_dtype: Of `torch.tensor([0.5])` in the script.
    """

    data: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    helpers: set[str] = field(default_factory=set[str])
    default_dtype: torch.dtype = torch.float32
    seeds: Sequence[int] = RECIPE_SEEDS


def dict_source(entries: Mapping[str, str]) -> str:
    """Return a dict of sources by name, one entry per line."""
    lines = "".join(f'"{name}": {text},\n' for name, text in entries.items())
    return f"{{\n{textwrap.indent(lines, '    ')}}}" if entries else "{}"


def scalar_source(value: object, name: str) -> str:
    """Return the source of a number, string, None, dtype, device or SymInt (its hint).

    Raises:
        CaseError: The value is of another type.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        value = fake.symbol_and_hint(value)[1]
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return repr(value)
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    raise NotHeld(
        f"input {name} is a {type(value).__name__}: a repro can hold tensors, numbers, strings "
        "and None; make it a constant of the program, or save the case without it"
    )


def tensor_source(tensor: torch.Tensor, name: str, sources: Sources) -> str:
    """Return the source of a tensor: values, dtype, device, layout, `requires_grad`, Parameter.

    The layout is its strides, and the offset in memory at which it begins.

    Raises:
        CaseError: The tensor is a subclass, sparse or quantized.
    """
    _check_supported(tensor, name)
    plain = tensor.detach().resolve_neg()
    plain = plain.conj() if plain.is_conj() else plain
    source = _strided_source(plain, name, sources)
    if tensor.is_conj():
        source = f"{source}.conj()"
    return _finish(source, tensor, sources)


def literal_source(tensor: torch.Tensor) -> str:
    """Return the source of a small CPU tensor as one literal with strides; overlaps are kept."""
    flat = tensor.as_strided((extent(tensor.shape, tensor.stride()),), (1,))
    numbers = re.sub(r"-?\b(?:nan|inf)\b", r'float("\g<0>")', ", ".join(_number_texts(flat)))
    source = f"torch.tensor([{numbers}], dtype={tensor.dtype})"
    return f"{source}.as_strided({tuple(tensor.shape)}, {tensor.stride()})"


def view_source(
    tensor: torch.Tensor, storage: torch.Tensor, storage_name: str, sources: Sources
) -> str:
    """Return the source of a tensor that is a view of a flat tensor.

    Args:
        tensor: The view, perhaps of another dtype.
        storage: One-dimensional, from the first byte of the shared storage on.
    """
    base = storage_name if tensor.dtype == storage.dtype else f"{storage_name}.view({tensor.dtype})"
    place = f"{tuple(tensor.shape)}, {tensor.stride()}, {tensor.storage_offset()}"
    return _finish(f"{base}.as_strided({place})", tensor, sources)


def _check_supported(tensor: torch.Tensor, name: str) -> None:
    kinds = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if type(tensor) not in kinds:
        raise NotHeld(
            f"input {name} is a {type(tensor).__name__}, a subclass of Tensor: a repro cannot "
            "rebuild it; capture the program below the subclass"
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise NotHeld(
            f"input {name} has layout {tensor.layout}: a repro can only hold strided tensors"
        )


def _finish(source: str, tensor: torch.Tensor, sources: Sources) -> str:
    if isinstance(tensor, torch.nn.Parameter):
        flag = "" if tensor.requires_grad else ", requires_grad=False"
        source = f"torch.nn.Parameter({source}{flag})"
    elif tensor.requires_grad:
        source = f"{source}.requires_grad_()"
    if tensor.is_inference():
        sources.helpers.add("inference")
        source = f"inference(lambda: {source})"
    return source


def _strided_source(tensor: torch.Tensor, name: str, sources: Sources) -> str:
    plain = torch.empty(tensor.shape, dtype=torch.bool, device="cpu")
    size, stride = tuple(tensor.shape), tensor.stride()
    offset = tensor.storage_offset() if tensor.numel() else 0
    if stride == plain.stride() and not offset:
        return _values(tensor, name, sources)
    if not tensor.numel():
        device = "" if tensor.device.type == "cpu" else f", device={str(tensor.device)!r}"
        return f"torch.empty_strided({size}, {stride}, dtype={tensor.dtype}{device})"
    if overlaps(size, stride):
        flat = tensor.as_strided((extent(size, stride),), (1,))
        source, at = _strided_source(flat, name, sources), f", {offset}" if offset else ""
        return f"{source}.as_strided({size}, {stride}{at})"
    sources.helpers.add("strided")
    at = f", {offset}" if offset else ""
    return f"strided({_values(tensor, name, sources)}, {stride}{at})"


def _values(tensor: torch.Tensor, name: str, sources: Sources) -> str:
    """Return the source of the values of a tensor, contiguous on its device."""
    source = _cpu_values(tensor.contiguous().cpu(), name, sources)
    is_on_cpu = tensor.device.type == "cpu"
    return source if is_on_cpu else f"{source}.to({str(tensor.device)!r})"


def _cpu_values(tensor: torch.Tensor, name: str, sources: Sources) -> str:
    if not tensor.numel():
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    for candidate in (_fill, _literal, _filling, _recipe):
        if source := candidate(tensor, sources):
            return source
    sources.helpers.add("stored")
    sources.data[name] = tensor
    return f'stored(DATA, "{name}", {tuple(tensor.shape)}, {tensor.dtype})'


def _fill(tensor: torch.Tensor, sources: Sources) -> str | None:
    if tensor.numel() <= 4 or tensor.dtype not in _FILLED:
        return None
    first = tensor.reshape(-1)[0]
    if not same_bits(tensor, first.expand(tensor.shape).contiguous()):
        return None
    text = _number_texts(first.reshape(1))[0]
    size = tuple(tensor.shape)
    if text in ("0.0", "0", "False", "complex(0.0, 0.0)"):
        return f"torch.zeros({size}, dtype={tensor.dtype})"
    if text in ("1.0", "1", "True"):
        return f"torch.ones({size}, dtype={tensor.dtype})"
    return f"torch.full({size}, {text}, dtype={tensor.dtype})"


def _literal(tensor: torch.Tensor, sources: Sources) -> str | None:
    if tensor.numel() > LITERAL_ELEMENTS:
        return None
    numbers = torch.tensor(tensor.tolist(), dtype=tensor.dtype, device="cpu")
    if not same_bits(tensor, numbers):  # a NaN of unusual bits
        return None
    texts = _number_texts(tensor.reshape(-1))
    shape = tuple(tensor.shape)
    inferred = (torch.int64, torch.bool, sources.default_dtype)
    dtype = "" if tensor.dtype in inferred else f", dtype={tensor.dtype}"
    source = f"torch.tensor({_nest(texts, shape)}{dtype})"
    if len(source) <= _WIDTH:
        return source
    return f"torch.tensor(\n{textwrap.indent(_nest_lines(texts, shape), '    ')}{dtype or ','}\n)"


def _filling(tensor: torch.Tensor, sources: Sources) -> str | None:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return None
    seeds = sources.seeds if tensor.is_floating_point() else ()
    for kind in ("arange", *(f"randn:{seed}" for seed in seeds)):
        if same_bits(tensor, make_filling(kind, tuple(tensor.shape), tensor.dtype)):
            return _filling_source(kind, tensor, sources)
    return None


def _filling_source(kind: str, tensor: torch.Tensor, sources: Sources) -> str:
    """Return the source of `make_filling`, of the shape and dtype of a tensor."""
    size, dtype, count = tuple(tensor.shape), tensor.dtype, tensor.numel()
    if kind == "zeros":
        return f"torch.zeros({size}, dtype={dtype})"
    if kind == "arange":
        is_exact = dtype in _COUNTED and count <= _EXACT
        numbers = f"{count}, dtype={dtype})" if is_exact else f"{count}).to({dtype})"
        return f"torch.arange({numbers}.reshape({size})"
    sources.helpers.add("randn")
    named = "" if dtype == torch.float32 else f", dtype={dtype}"
    return f"randn({size}, seed={kind.partition(':')[2]}{named})"


def _recipe(tensor: torch.Tensor, sources: Sources) -> str | None:
    content, form = content_of(tensor), (tuple(tensor.shape), tensor.dtype)
    if not content.is_recipe or not same_bits(tensor, build_content(content, *form)):
        return None
    source = _filling_source(content.kind, tensor, sources)
    if not content.runs:
        return source
    sources.helpers.add("placed")
    numbers = _number_texts(tensor.reshape(-1)[[run.start for run in content.runs]])
    places = [_place(run, tensor.shape) for run in content.runs]
    pieces = [f"{place}: {number}" for place, number in zip(places, numbers, strict=True)]
    line = f"placed({source}, {{{', '.join(pieces)}}})"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"        {piece},\n" for piece in pieces)
    return f"placed(\n    {source},\n    {{\n{inner}    }},\n)"


def _place(run: ContentRun, shape: Sequence[int]) -> str:
    """Return the index of one element, or the range of several in row-major order."""
    if run.stop - run.start > 1:
        return f"range({run.start}, {run.stop})"
    return str(index_of(run.start, shape))


def _number_texts(flat: torch.Tensor) -> list[str]:
    """Return each element as the shortest decimal that gives the same value in its dtype."""
    if flat.dtype.is_complex:
        parts = _number_texts(torch.view_as_real(flat).reshape(-1))
        return [f"complex({re}, {im})" for re, im in zip(parts[::2], parts[1::2], strict=True)]
    return [text_of(number_of(value)) for value in flat]


def _nest(texts: Sequence[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    step = len(texts) // shape[0]
    rows = (_nest(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
    return f"[{', '.join(rows)}]"


def _nest_lines(texts: Sequence[str], shape: tuple[int, ...]) -> str:
    """Write nested lists with one row per line, as a formatter would."""
    line = _nest(texts, shape)
    if len(line) <= _WIDTH - 20:
        return line
    if len(shape) == 1:
        inner = textwrap.fill(
            ", ".join(texts), _WIDTH - 20, break_long_words=False, break_on_hyphens=False
        )
    else:
        step = len(texts) // shape[0]
        rows = (texts[i * step : (i + 1) * step] for i in range(shape[0]))
        inner = ",\n".join(_nest_lines(row, shape[1:]) for row in rows)
    return f"[\n{textwrap.indent(inner, '    ')},\n]"
