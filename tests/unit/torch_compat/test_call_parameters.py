"""What arguments calls take: schemas of operators and methods, signatures of functions."""

import operator

import pytest
import torch
import torch.nn.functional as F

from ctk.compiler.torch_compat.fx.arguments import Parameter, parameters_of

APPROXIMATE = Parameter("approximate", "str", True, "none", False)


@pytest.mark.parametrize(
    ("op", "target", "name", "expected"),
    [
        ("call_function", F.gelu, "approximate", APPROXIMATE),
        ("call_function", torch.ops.aten.gelu.default, "approximate", APPROXIMATE),
        ("call_function", torch.ops.aten.gelu, "approximate", APPROXIMATE),
        ("call_function", torch.add, "alpha", Parameter("alpha", "number", True, 1, False)),
        ("call_method", "sum", "keepdim", Parameter("keepdim", "bool", True, False, True)),
        ("call_function", F.softmax, "dim", Parameter("dim", "", True, None, True)),
        ("call_function", F.leaky_relu, "negative_slope",
         Parameter("negative_slope", "", True, 0.01, True)),
    ],
)  # fmt: skip
def test_an_argument(op: str, target: object, name: str, expected: Parameter) -> None:
    found = [each for overload in parameters_of(op, target) for each in overload]
    assert expected in [each for each in found if each.name == name]


@pytest.mark.parametrize(
    ("op", "target"),
    [("call_function", operator.add), ("call_function", len), ("call_method", "no_such_method")],
)
def test_nothing_is_known(op: str, target: object) -> None:
    assert parameters_of(op, target) == ()
