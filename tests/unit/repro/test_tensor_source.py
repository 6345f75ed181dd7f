"""Values as source text: what is written must evaluate to the same bits, strides and flags."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import same_bits
from ctk.repro_templates.graph.values import placed, randn, strided
from ctk.toolkit.repro.tensor_source import Sources, scalar_source, tensor_source


def evaluate(source: str, sources: Sources) -> torch.Tensor:
    """Evaluate a source as a script would."""

    def stored(data: object, name: str, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        assert sources.data[name].dtype == dtype
        return sources.data[name].clone().reshape(size)

    names = {
        "torch": torch, "inf": math.inf, "nan": math.nan,
        "randn": lambda size, **kw: randn(size, **kw), "strided": strided, "stored": stored,
        "placed": placed, "DATA": None,
        "inference": lambda build: torch.inference_mode()(build)(),
    }  # fmt: skip
    value = eval(source, names)
    assert isinstance(value, torch.Tensor)
    return value


def round_trip(tensor: torch.Tensor) -> tuple[torch.Tensor, str]:
    sources = Sources()
    source = tensor_source(tensor, "x", sources)
    back = evaluate(source, sources)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.stride() == tensor.stride()
    assert back.storage_offset() == (tensor.storage_offset() if tensor.numel() else 0)
    assert back.requires_grad == tensor.requires_grad
    assert type(back) is type(tensor)
    assert back.is_leaf
    flat = back.detach().contiguous()
    expected = tensor.detach().contiguous()
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        assert torch.equal(flat.isnan(), expected.isnan())
        flat, expected = flat.nan_to_num(123.0), expected.nan_to_num(123.0)
    assert same_bits(flat, expected)
    return back, source


FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(allow_nan=True), min_size=1, max_size=9))
def test_any_float_round_trips(dtype: torch.dtype, values: list[float]) -> None:
    round_trip(torch.tensor(values, dtype=torch.float64).to(dtype))


def test_floats_are_written_short() -> None:
    _, source = round_trip(torch.tensor([0.1, -2.5, 1e-7]))
    assert source == "torch.tensor([0.1, -2.5, 1e-07])"


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16], ids=str
)
def test_small_dtypes_have_recipes_too(dtype: torch.dtype) -> None:
    few = torch.zeros(100, dtype=dtype)
    few[5] = 3
    for tensor in (torch.arange(100).to(dtype), few):
        assert "stored" not in round_trip(tensor)[1]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(3, 4), "torch.zeros((3, 4), dtype=torch.float32)"),
        (torch.ones(8, dtype=torch.int64), "torch.ones((8,), dtype=torch.int64)"),
        (
            torch.full((5,), -0.5, dtype=torch.bfloat16),
            "torch.full((5,), -0.5, dtype=torch.bfloat16)",
        ),
        (torch.full((5,), -0.0), "torch.full((5,), -0.0, dtype=torch.float32)"),
        (torch.arange(100), "torch.arange(100, dtype=torch.int64).reshape((100,))"),
        (torch.tensor(3), "torch.tensor(3)"),
        (torch.tensor([True, False]), "torch.tensor([True, False])"),
        (torch.tensor([1, 2], dtype=torch.int8), "torch.tensor([1, 2], dtype=torch.int8)"),
        (torch.empty(0, 3), "torch.empty((0, 3), dtype=torch.float32)"),
        (randn((10, 10), seed=3), "randn((10, 10), seed=3)"),
        (randn((10, 10), seed=3).bfloat16(), "randn((10, 10), seed=3, dtype=torch.bfloat16)"),
    ],
)
def test_sources_of_plain_values(tensor: torch.Tensor, expected: str) -> None:
    _, source = round_trip(tensor)
    assert source == expected


def test_one_wrong_bit_prevents_a_recipe() -> None:
    tensor = randn((10, 10), seed=3)
    tensor[9, 9] += 1e-6
    sources = Sources()
    assert tensor_source(tensor, "x", sources).startswith("stored(")
    assert torch.equal(sources.data["x"], tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(24.0)[::2],
        torch.arange(3.0).expand(4, 3),
        torch.arange(6.0).as_strided((3, 3), (1, 1)),
        torch.empty(0, 3).t(),
        torch.nn.Parameter(torch.tensor([1.5])),
        torch.nn.Parameter(torch.tensor([1.5]), requires_grad=False),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t().requires_grad_(),
        torch.tensor([1 + 2j, complex(math.inf, -0.0)]),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn),
        torch.tensor(2.5, dtype=torch.float64),
    ],
    ids=lambda t: f"{tuple(t.shape)}{t.stride()}{t.dtype}",
)
def test_layout_and_flags_round_trip(tensor: torch.Tensor) -> None:
    if tensor.dtype == torch.float8_e4m3fn:
        back = evaluate(source := tensor_source(tensor, "x", sources := Sources()), sources)
        assert same_bits(back, tensor), source
        return
    back, _ = round_trip(tensor)
    assert back.is_conj() == tensor.is_conj()


def test_inference_tensor_stays_one() -> None:
    with torch.inference_mode():
        tensor = torch.ones(2)
    sources = Sources()
    assert evaluate(tensor_source(tensor, "x", sources), sources).is_inference()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, "3"), (None, "None"), (True, "True"), (math.inf, "inf"), (0.1, "0.1"), ("a", "'a'"),
     (1 + 2j, "complex(1.0, 2.0)"), (torch.float16, "torch.float16"),
     (torch.device("cpu"), "torch.device(type='cpu')")],
)  # fmt: skip
def test_scalars(value: object, expected: str) -> None:
    assert scalar_source(value, "x") == expected


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(CaseError, match="input x is a object"):
        scalar_source(object(), "x")
    with pytest.raises(CaseError, match=r"input x has layout torch\.sparse_coo"):
        tensor_source(torch.ones(2).to_sparse(), "x", Sources())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(30.0).view(5, 6)[2:],
        torch.randn(9, 6)[3:, ::2],
        torch.randn(9, 6)[3:].mT,
        torch.randn(40).as_strided((3, 4), (2, 1), 7),
        torch.randn(7, 6)[5:6].expand(4, 6),
        torch.randn(9, dtype=torch.bfloat16)[1:9].requires_grad_(),
        torch.nn.Parameter(torch.randn(9)[4:]),
        torch.randn(9, dtype=torch.complex64)[4:].conj(),
        torch.randn(9)[9:],
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)} at {tensor.storage_offset()}",
)
def test_a_part_of_a_tensor_begins_where_it_did(tensor: torch.Tensor) -> None:
    round_trip(tensor)
