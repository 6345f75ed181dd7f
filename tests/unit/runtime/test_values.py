import json
import math

import pytest
import torch

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime.steps import Ref
from ctk.compiler.runtime.values import size_json, size_of, value_json, value_of
from ctk.compiler.sizes.index import as_index, larger, smaller, symbol

S, T = symbol("s0"), symbol("s1")


def through_json(value):
    return value_of(json.loads(json.dumps(value_json(value))))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 0, -(2**70), 2**64, "", "text", 1.5, 1e-310, 2.0),
        *(complex(0.0, -1.5), [1, (2, [3.0])], (), {"a": (1,)}, slice(None, 3, -1)),
        *(torch.bfloat16, torch.device("cpu"), torch.device("cuda", 1), torch.strided),
        *(torch.channels_last, Ref("add.1"), S * 8 + 1, [Ref("x"), T // 2]),
    ],
    ids=str,
)
def test_a_value_and_its_type_come_back(value):
    found = through_json(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan])
def test_each_float_comes_back_with_its_sign(value):
    found = through_json(value)
    assert type(found) is float
    assert repr(found) == repr(value)
    assert repr(through_json(complex(value, -0.0))) == repr(complex(value, -0.0))


def test_a_bool_stays_one_and_a_size_of_torch_becomes_a_tuple():
    assert through_json([True, 1]) == [True, 1]
    assert [type(each) for each in through_json([True, 1])] == [bool, int]
    assert type(through_json(torch.Size([2, 3]))) is tuple


@pytest.mark.parametrize(
    "size",
    [
        *(as_index(0), as_index(-3), S, S * T * -2 + T * 5 - 7, (S + 3) // 4, (S * T) % 7),
        *((S // T + 1) * 2, larger(S, T * 2), smaller(S - T, as_index(4)), (S % 3) // 2),
    ],
    ids=str,
)
def test_a_size_comes_back(size):
    assert size_of(json.loads(json.dumps(size_json(size)))) == size


@pytest.mark.parametrize("value", [object(), {1: 2}, torch.ones(1), {"a": {1, 2}}])
def test_what_has_no_form_is_refused_with_what_it_is(value):
    with pytest.raises(ArtifactError, match="stored"):
        value_json(value)


@pytest.mark.parametrize(
    "data",
    [
        *({}, {"a": 1, "b": 2}, {"unknown": 1}, {"dtype": "Tensor"}, {"dtype": "nothing"}),
        *({"size": "__import__('os')"}, {"size": "s0**2"}, {"size": "s0 // 0"}, {"size": "s0("}),
        *({"size": "-" * 10**5 + "1"}, {"size": 3}, {"float": "x"}, {"float": None}),
        *({"device": "nowhere"}, {"tuple": 1}, {"dict": [[1]]}, {"slice": [1, 2, 3, 4]}),
        *({"complex": ["1"]}, {"value": "x; import os"}, {"value": 1}, {"value": ""}),
        {"layout": "float32"},
    ],
    ids=lambda data: str(data)[:40],
)
def test_what_is_malformed_is_refused_clearly(data):
    with pytest.raises(ArtifactError):
        value_of(data)


@pytest.mark.parametrize("data", [True, 1.5, "s0", None, [], {"float": "nan"}])
def test_a_size_is_nothing_else(data):
    with pytest.raises(ArtifactError, match="malformed"):
        size_of(data)
