"""The one reader of recorded values, and the one printer of types."""

import torch
from torch import fx

from ctk.compiler.fx.types import same_type, type_text, value_of


def test_a_renewed_value_comes_before_the_one_that_dynamo_left():
    node = fx.Graph().placeholder("x")
    assert value_of(node) is None
    node.meta["example_value"] = torch.empty(2)
    assert value_of(node) is node.meta["example_value"]
    node.meta["val"] = torch.empty(3)
    assert value_of(node) is node.meta["val"]
    assert value_of(3) == 3


def test_types_as_text():
    tensor = torch.empty(2, 3, dtype=torch.bfloat16)
    assert type_text(tensor) == "bfloat16[2, 3]"
    assert type_text((tensor, [1]), device=True) == "(bfloat16[2, 3] on cpu, (int))"
    assert type_text(None) == "NoneType"


def test_same_type_is_about_kind_dtype_and_shape():
    assert same_type(torch.empty(2, 3), torch.empty(3, 2).t())
    assert not same_type(torch.empty(2), torch.empty(2, dtype=torch.float64))
    assert same_type((1, 2.0), [3, 4.0])
    assert not same_type((1, 2.0), (1, 2))
