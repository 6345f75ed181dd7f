"""Tensors as arrays and JSON: bits, strides and aliases come back; recipes are repeatable."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.recipes import Uniform, measure_recipe, synthesize
from ctk.toolkit.case.formats.safetensors_file import load_arrays, save_arrays
from ctk.toolkit.case.formats.schema import convert, decode, encode, write_document
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.formats.tensors import keep_all, pack_tensors, unpack_tensors
from tests.helpers.case_zoo import capture


def keep_none(_name: str, _tensor: Tensor, _count: int) -> bool:
    return False


def round_trip(named: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    packed = pack_tensors(named, keep=keep_all)
    save_arrays(folder / "x.safetensors", packed.arrays)
    index = decode(TensorIndex, write_document(packed.index), where="test")
    return unpack_tensors(index, load_arrays(folder / "x.safetensors"))


def bits(tensor: Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    fresh = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
    return fresh.reshape(-1).view(torch.uint8).numpy().tobytes()


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    long = torch.arange(20.0)
    return {
        "plain": torch.randn(3, 4),
        "transposed": torch.randn(3, 4).t(),
        "expanded": torch.randn(3, 1).expand(3, 4),
        "expanded_scalar": torch.tensor(2.5).expand(2, 3),
        "every_third": torch.randn(20)[::3],
        "offset": long[5:9],
        "overlapping": torch.randn(10).unfold(0, 3, 1),
        "channels_last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 3),
        "empty_strided": torch.empty_strided((0, 3), (7, 2)),
        "stride_0_of_size_1": torch.arange(9).to(torch.uint16).as_strided((1,), (0,), 4),
        "bool": torch.tensor([True, False]),
        "int64_bounds": torch.tensor([2**63 - 1, -(2**63)]),
        "uint16": torch.arange(5).to(torch.uint16),
        "uint32_scalar": torch.tensor(7, dtype=torch.uint32),
        "uint64": torch.tensor([2**64 - 1], dtype=torch.uint64),
        "bfloat16": torch.randn(5).bfloat16(),
        "float16": torch.randn(5).half(),
        "float8_e4m3fn": torch.randn(4).to(torch.float8_e4m3fn),
        "float8_e5m2": torch.randn(2, 3).to(torch.float8_e5m2).t(),
        "float8_e8m0fnu": torch.rand(4).to(torch.float8_e8m0fnu),
        "complex64": torch.randn(3, dtype=torch.complex64),
        "complex128": torch.randn(2, 2, dtype=torch.complex128).t(),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "negative": torch.randn(3, dtype=torch.complex64).conj().imag,
        "special": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45]),
        "leaf": torch.randn(3, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "frozen": torch.nn.Parameter(torch.arange(3), requires_grad=False),
    }


@pytest.mark.parametrize("name", list(tensors()))
def test_a_tensor_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    tensor = tensors()[name]
    back = round_trip({name: tensor}, tmp_path)[name]
    assert bits(back) == bits(tensor)
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert back.storage_offset() == tensor.storage_offset() or name == "negative"
    assert type(back) is type(tensor)
    assert back.requires_grad == tensor.requires_grad
    assert back.is_leaf
    assert back.is_conj() == tensor.is_conj()


def test_inference_tensors_stay_inference_tensors(tmp_path: Path) -> None:
    with torch.inference_mode():
        tensor = torch.ones(3)
    assert round_trip({"x": tensor}, tmp_path)["x"].is_inference()


def test_the_same_tensor_twice_is_one_object(tmp_path: Path) -> None:
    tensor = torch.randn(3)
    back = round_trip({"a": tensor, "b": tensor}, tmp_path)
    assert back["a"] is back["b"]


def test_views_of_one_storage_alias_again(tmp_path: Path) -> None:
    base = torch.randn(100)
    named = {"base": base, "middle": base[20:40].view(4, 5), "end": base[30:]}
    back = round_trip(named, tmp_path)
    back["middle"][2, 0] = 7.0
    assert back["base"][30] == 7.0
    assert back["end"][0] == 7.0
    assert back["middle"].storage_offset() == 20


def test_views_of_other_dtypes_alias_again(tmp_path: Path) -> None:
    base = torch.randn(6, dtype=torch.complex64)
    back = round_trip({"base": base, "real": torch.view_as_real(base)}, tmp_path)
    back["real"][2, 1] = 9.0
    assert back["base"][2].imag == 9.0


def test_memory_outside_a_single_view_is_not_written() -> None:
    secret = torch.full((1000,), 4711.0)
    secret[::100] = 1.0
    packed = pack_tensors({"x": secret[::100]}, keep=keep_all)
    assert b"4711" not in write_document(packed.index).encode() and not packed.arrays
    secret[::100] = torch.arange(10.0).sin()
    packed = pack_tensors({"x": secret[::100]}, keep=keep_all)
    assert packed.arrays["x"].numel() == 10
    assert not (packed.arrays["x"] == 4711.0).any()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.empty(2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        torch.ones(2).as_subclass(type("Mine", (Tensor,), {})),
    ],
    ids=["sparse", "meta", "nested", "subclass"],
)
def test_what_cannot_be_kept_is_named(tensor: Tensor) -> None:
    with pytest.raises(CaseError, match=r"'weight'.*plain strided"):
        pack_tensors({"weight": tensor}, keep=keep_all)


def test_fake_tensors_become_synthetic_by_their_hints() -> None:
    (case,) = capture(lambda x: x * x.shape[0], torch.ones(5, 3), dynamic=True)
    fake = list(case.graph.graph.nodes)[-3].meta["example_value"]
    assert not isinstance(fake.shape[0], int)
    packed = pack_tensors({"x": fake}, keep=keep_all)
    back = unpack_tensors(packed.index, packed.arrays)["x"]
    assert (back.shape, back.stride()) == ((5, 3), (3, 1))
    assert packed.index.storages["x"].values == "synthetic"


# --- recipes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(tensors()))
@pytest.mark.parametrize("measure", [True, False])
def test_synthetic_values_are_the_same_on_each_load(name: str, measure: bool) -> None:
    tensor = tensors()[name]
    packed = pack_tensors({name: tensor}, keep=keep_none, measure=measure)
    index = decode(TensorIndex, write_document(packed.index), where="test")
    torch.manual_seed(1)
    first = unpack_tensors(index, {})[name]
    torch.manual_seed(2)
    second = unpack_tensors(index, {})[name]
    assert not packed.arrays
    assert bits(first) == bits(second)
    assert (first.dtype, first.stride()) == (tensor.dtype, tensor.stride())
    assert first.requires_grad == tensor.requires_grad


def test_synthetic_bits_are_those_of_the_format() -> None:
    """Golden: other bits would change every case that was ever written."""
    recipe = measure_recipe(torch.tensor([-1.0, 0.0, 0.5, 3.0, float("nan")]), seed=7)
    values = synthesize(recipe, 6, torch.float32, "x")
    shown = [value.hex() for value in values.tolist()]
    assert shown == [
        "nan",
        "0x1.20df8a0000000p-2",
        "0x1.2b67980000000p+1",
        "0x1.8000000000000p+1",
        "-0x1.f651c20000000p-3",
        "0x1.04d6580000000p+0",
    ]
    integers = synthesize(measure_recipe(torch.tensor([-5, 90]), seed=7), 4, torch.int64, "x")
    assert integers.tolist() == [10, -1, 20, 81]


def test_synthetic_floats_follow_the_statistics() -> None:
    torch.manual_seed(0)
    values = torch.randn(50_000) * 3 + 10
    values[:7], values[7:9], values[9] = float("nan"), float("inf"), -float("inf")
    made = synthesize(measure_recipe(values, seed=3), 50_000, torch.float32, "x")
    finite = made[made.isfinite()]
    assert (int(made.isnan().sum()), int(made.isposinf().sum()), int(made.isneginf().sum())) == (
        7,
        2,
        1,
    )
    assert abs(float(finite.mean()) - 10) < 0.1
    assert abs(float(finite.std()) - 3) < 0.1
    assert finite.min() >= values[values.isfinite()].min()
    assert finite.max() <= values[values.isfinite()].max()


def test_synthetic_integers_stay_within_the_bounds() -> None:
    indices = torch.randint(3, 17, (1000,))
    made = synthesize(measure_recipe(indices, seed=3), 5000, torch.int64, "x")
    assert int(made.min()) == 3
    assert int(made.max()) == 16


def test_synthetic_views_alias_and_are_finite() -> None:
    base = torch.randn(64, dtype=torch.complex64)
    named = {"base": base, "real": torch.view_as_real(base), "same": base}
    packed = pack_tensors(named, keep=keep_none)
    back = unpack_tensors(packed.index, {})
    assert back["same"] is back["base"]
    assert back["real"].isfinite().all()
    assert back["real"].data_ptr() == back["base"].data_ptr()


def test_a_constant_tensor_has_a_constant_recipe() -> None:
    made = synthesize(measure_recipe(torch.ones(100), seed=0), 100, torch.float32, "x")
    assert (made == 1.0).all()


DAMAGE: list[tuple[str, str, object]] = [
    ("entries", "shape", [3, 400]),
    ("entries", "shape", [-1, 4]),
    ("entries", "shape", [3]),
    ("entries", "shape", "3"),
    ("entries", "shape", [3.0, 4]),
    ("entries", "stride", [10**30, 1]),
    ("entries", "offset", -4),
    ("entries", "offset", 10**6),
    ("entries", "dtype", "load"),
    ("entries", "dtype", "float64"),
    ("entries", "device", "nowhere"),
    ("entries", "device", "cuda:77"),
    ("entries", "storage", "y"),
    ("entries", "same_as", "x"),
    ("entries", "requires_grad", 1),
    ("entries", "parameter", "yes"),
    ("entries", "conj", None),
    ("storages", "dtype", "int64"),
    ("storages", "shape", [10**12, 4]),
    ("storages", "shape", [4, 4]),
    ("storages", "values", "synthetic"),
    ("storages", "values", "somewhere"),
    ("storages", "first", None),
]


@pytest.mark.parametrize(("part", "key", "value"), DAMAGE, ids=str)
def test_damaged_json_is_a_case_error(part: str, key: str, value: object) -> None:
    packed = pack_tensors({"x": torch.randn(3, 4)}, keep=keep_all)
    data = encode(packed.index)
    data[part]["x"][key] = value
    with pytest.raises(CaseError, match=r"\bx\b"):
        unpack_tensors(convert(TensorIndex, data, where="test"), packed.arrays)


def test_a_second_name_of_no_tensor_is_a_case_error() -> None:
    packed = pack_tensors({"x": torch.ones(2)}, keep=keep_all)
    index = dataclasses.replace(packed.index, same={"y": "z"})
    with pytest.raises(CaseError, match="y: no tensor 'z'"):
        unpack_tensors(index, packed.arrays)


def test_sums_of_the_largest_floats_make_a_recipe_that_json_can_hold() -> None:
    values = torch.full((4,), torch.finfo(torch.float64).max, dtype=torch.float64)
    packed = pack_tensors({"x": values}, keep=keep_none)
    index = decode(TensorIndex, write_document(packed.index), where="test")
    assert unpack_tensors(index, {})["x"].isfinite().all()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "exec"},
        {"seed": "1"},
        {"mean": "x"},
        {"mean": {"float": "exec"}},
        {"deviation": None},
        {"nan": 100},
        {"nan": -1},
        {"kind": "uniform"},
        {"kind": "bernoulli"},
    ],
    ids=str,
)
def test_a_damaged_recipe_is_a_case_error(changes: dict[str, object]) -> None:
    packed = pack_tensors({"weight": torch.ones(4)}, keep=keep_none)
    data = encode(packed.index)
    data["storages"]["weight"]["recipe"] |= changes
    with pytest.raises(CaseError, match="weight"):
        unpack_tensors(convert(TensorIndex, data, where="test"), {})


@pytest.mark.parametrize(("low", "high"), [(4, 3), (0, 2**70)])
def test_bounds_of_no_integers_are_a_case_error(low: int, high: int) -> None:
    with pytest.raises(CaseError, match=r"weight: .* are not bounds of integers"):
        synthesize(Uniform(0, low, high), 4, torch.int64, "weight")


def test_a_file_that_is_no_safetensors_file_is_a_case_error(tmp_path: Path) -> None:
    save_arrays(tmp_path / "x.safetensors", {"x": torch.ones(100)})
    whole = (tmp_path / "x.safetensors").read_bytes()
    for size in (0, 4, 30, len(whole) - 1):
        (tmp_path / "cut.safetensors").write_bytes(whole[:size])
        with pytest.raises(CaseError, match=r"cut\.safetensors"):
            load_arrays(tmp_path / "cut.safetensors")
