import operator

import pytest
import torch

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime.functions import function_of, name_of
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.torch_compat.fx import functions

aten = torch.ops.aten


@pytest.mark.parametrize(
    "function",
    [
        *(aten.mm.default, aten.random.to, torch.ops.prims.convert_element_type.default),
        *(torch.mm, torch.sym_max, operator.getitem, max, fitted, required),
        *(torch.Tensor.storage_offset, torch.ops.higher_order.cond),
    ],
    ids=lambda function: function.__name__,
)
def test_a_function_comes_back_by_its_name(function):
    assert function_of(name_of(function)) is function


@pytest.mark.parametrize(
    "function", [lambda: 0, print, torch.relu, torch.ops.higher_order.associative_scan]
)
def test_what_has_no_name_is_refused(function):
    with pytest.raises(ArtifactError, match="cannot be stored"):
        name_of(function)


@pytest.mark.parametrize(
    "name", ["", "os.system", "aten.mm", "aten.mm.nothing", "nobodys.op.default", "a.b.c.d", "eval"]
)
def test_an_operator_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(ArtifactError, match="is not registered in this process"):
        function_of(name)


def test_a_module_with_any_attribute_has_a_name_or_none():
    """`torch.ops` makes a namespace of each attribute, `__qualname__` included."""
    assert isinstance(functions.name_of(torch.ops), str | None)
