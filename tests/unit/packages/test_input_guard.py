import pytest
import torch

from ctk.compiler.errors import ArtifactError, InputError
from ctk.compiler.packages.input_guard import (
    Condition,
    Dimension,
    FixedInput,
    InputGuard,
    NumberInput,
    TensorInput,
    guard_json,
    guard_of,
)
from ctk.compiler.sizes.index import as_index, symbol

S, T = symbol("s1"), symbol("s10")
CPU = torch.device("cpu")


def tensor_input(name, *sizes, dtype=torch.float32, written=False):
    shape = tuple(map(as_index, sizes))
    strides = [as_index(1)]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorInput(name, dtype, CPU, shape, tuple(strides[: len(shape)]), written)


def guard(*inputs, conditions=(), s=(1, 8), t=(0, None)):
    names = {"s1": Dimension("x.size(0)", *s), "s10": Dimension("s1_rows", *t)}
    return InputGuard(inputs, names, conditions)


def refusal(made, *values):
    with pytest.raises(InputError) as refused:
        guard_of(guard_json(made)).admit(values)
    return str(refused.value)


@pytest.mark.parametrize("fixed", [0.0, -0.0, float("nan"), 1, True, "a", None, 1j, -0j])
@pytest.mark.parametrize("given", [0.0, -0.0, float("nan"), 1, True, "a", None, 1j, -0j])
def test_a_fixed_value_is_that_value_with_its_type_and_sign(fixed, given):
    made = guard_of(guard_json(guard(FixedInput("k", fixed))))
    if repr(fixed) == repr(given):
        assert made.admit([given]) == []
    else:
        assert "k is" in refusal(made, given)
        assert "it is fixed" in refusal(made, given)


def test_what_is_no_such_tensor_is_refused_by_name():
    made = guard(tensor_input("x", S, 3))
    assert "x must be a torch.Tensor, and is [1]" in refusal(made, [1])
    assert "x is of torch.float64" in refusal(made, torch.ones(2, 3).double())
    assert "x is on meta" in refusal(made, torch.empty(2, 3, device="meta"))
    assert "layout torch.sparse_coo" in refusal(made, torch.ones(2, 3).to_sparse())
    assert "2 dimensions" in refusal(made, torch.ones(3))
    assert "x.size(1) is 4; the package was compiled for 3" in refusal(made, torch.ones(2, 4))
    assert "x.size(0) is 9; the package was compiled for 1 to 8" in refusal(made, torch.ones(9, 3))
    assert "x.size(0) is 0;" in refusal(made, torch.ones(0, 3))


def test_sizes_of_one_name_are_one_size_and_are_called_as_the_program_does():
    made = guard(tensor_input("x", S, 3), tensor_input("y", S * 2 + T), NumberInput("n", T))
    assert len(made.admit([torch.ones(2, 3), torch.ones(9), 5])) == 3
    told = refusal(made, torch.ones(2, 3), torch.ones(8), 5)
    assert told.startswith("y.size(0) is 8; it must be ")
    assert "x.size(0)*2" in told
    assert "s1_rows" in told
    assert "x.size(0)_rows" not in told
    assert "n must be an int, and is True" in refusal(made, torch.ones(2, 3), torch.ones(9), True)


def test_a_condition_that_does_not_hold_is_said_with_its_numbers():
    made = guard(tensor_input("x", S), conditions=(Condition(S, "<", as_index(4)),))
    assert made.admit([torch.ones(3)])
    assert "x.size(0) < 4, and here 5 < 4 does not hold" in refusal(made, torch.ones(5))


def test_strides_are_made_to_fit_but_for_what_is_written():
    x = torch.arange(6.0).view(3, 2).t()
    (found,) = guard(tensor_input("x", 2, 3)).admit([x])
    assert found.stride() == (3, 1)
    assert torch.equal(found, x)
    made = guard(tensor_input("x", 2, 3, written=True))
    assert "pass a tensor of these strides" in refusal(made, x)
    negative = torch.full((2, 3), 1 + 2j).conj().imag
    assert torch.equal(guard(tensor_input("x", 2, 3)).admit([negative])[0], negative)


def test_what_is_written_shares_no_memory():
    made = guard(tensor_input("x", 4, written=True), tensor_input("y", 4), tensor_input("z", 4))
    a, b = torch.ones(8), torch.ones(4)
    assert made.admit([a[:4], a[4:], b])
    assert made.admit([b, a[:4], a[2:6]])
    assert "x and y share memory" in refusal(made, b, b, a[:4])
    assert "x and z share memory" in refusal(made, a[:4], b, a[3:7])
    made = guard(
        tensor_input("x", 4, 2),
        TensorInput(
            "y", torch.float32, CPU, (as_index(4), as_index(2)), (as_index(4), as_index(1)), True
        ),
    )
    columns = torch.ones(4, 4)
    assert made.admit([columns[:, :2], columns[:, 2:]])
    assert "y and x share memory" in refusal(made, columns[:, :2], columns[:, 1:3])


def test_a_size_that_no_input_tells_is_found_when_a_guard_is_made():
    assert guard(tensor_input("x", S * T)).unknown_sizes() == ["s1", "s10"]
    assert guard(tensor_input("x", S * T), NumberInput("n", S)).unknown_sizes() == []
    assert guard(NumberInput("n", S * 2 + T)).unknown_sizes() == ["s1", "s10"]
    with pytest.raises(ArtifactError, match="malformed"):
        guard_of(guard_json(guard(tensor_input("x", S * T))))


@pytest.mark.parametrize(
    "data",
    [
        *({}, {"inputs": []}, None, [], {"inputs": [{}], "dimensions": {}, "conditions": []}),
        {"inputs": [], "dimensions": {"s1": {}}, "conditions": []},
        {"inputs": [], "dimensions": {}, "conditions": [[1, "is", 1]]},
        {"inputs": [], "dimensions": {}, "conditions": [[1]]},
    ],
    ids=str,
)
def test_a_malformed_guard_is_refused(data):
    with pytest.raises(ArtifactError):
        guard_of(data)
