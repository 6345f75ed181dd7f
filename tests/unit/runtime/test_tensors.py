import pytest
import torch

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime.tensors import store_tensors, tensors_of


def again(tensors):
    table, blobs = store_tensors(tensors, "w/")
    return tensors_of(table, {name: bytearray(blob) for name, blob in blobs.items()}), blobs


def test_each_memory_is_kept_once_and_views_share_it():
    base = torch.arange(12, dtype=torch.float32).view(3, 4)
    given = {"base": base, "t": base.t(), "row": base[1], "bits": base.view(torch.int32)[:, 1]}
    found, blobs = again(given)
    assert len(blobs) == 1
    for name, each in given.items():
        assert torch.equal(found[name], each)
        assert (found[name].stride(), found[name].dtype) == (each.stride(), each.dtype)
    found["base"][1, 2] = -1
    assert found["t"][2, 1] == found["row"][2] == -1


def test_memory_need_not_be_a_multiple_of_an_element():
    memory = torch.arange(7, dtype=torch.uint8)
    found, _ = again({"bytes": memory, "short": memory[:6].view(torch.int16)})
    assert torch.equal(found["short"], memory[:6].view(torch.int16))
    assert torch.equal(found["bytes"], memory)


@pytest.mark.parametrize(
    "tensor",
    [
        *(torch.empty(0, 3), torch.tensor(1.5), torch.ones(2, dtype=torch.bool)),
        *(torch.tensor([float("nan"), -0.0]), torch.ones(1).expand(4), torch.ones(2).bfloat16()),
        torch.ones(2, requires_grad=True),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}",
)
def test_every_kind_of_tensor_comes_back(tensor):
    found = again({"a": tensor})[0]["a"]
    assert (found.shape, found.stride(), found.dtype) == (
        tensor.shape, tensor.stride(), tensor.dtype,
    )  # fmt: skip
    assert repr(found.tolist()) == repr(tensor.tolist())
    assert not found.requires_grad


def test_lazy_tensors_are_kept_as_their_values_and_do_not_take_each_others_place():
    given = {str(n): torch.full((64,), complex(n, n)).conj() for n in range(20)}
    given["neg"] = given["3"].imag
    found, _ = again(given)
    assert all(torch.equal(found[name], each) for name, each in given.items())


@pytest.mark.parametrize(
    "tensor", [torch.ones(2).to_sparse(), torch.empty(2, device="meta")], ids=["sparse", "meta"]
)
def test_what_has_no_memory_of_its_own_is_refused_by_name(tensor):
    with pytest.raises(ArtifactError, match="the tensor odd is a Tensor"):
        store_tensors({"odd": tensor}, "w/")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("blob", "none"), ("blob", []), ("dtype", "Tensor"), ("shape", [5]), ("shape", [-1])),
        *(("strides", [9]), ("strides", [1, 1]), ("offset", 9), ("offset", -1), ("offset", None)),
        *(("device", "nowhere"), ("device", 3), ("shape", [2**62]), ("strides", [2**63])),
    ],
    ids=str,
)
def test_a_table_that_does_not_fit_is_refused(key, value):
    table, blobs = store_tensors({"a": torch.ones(4)}, "w/")
    table["a"][key] = value
    with pytest.raises(ArtifactError, match="the stored tensor a cannot be made"):
        tensors_of(table, {name: bytearray(blob) for name, blob in blobs.items()})


@pytest.mark.parametrize("table", [{"a": None}, {"a": []}, {"a": {}}])
def test_a_row_of_another_form_is_refused(table):
    with pytest.raises(ArtifactError):
        tensors_of(table, {})
