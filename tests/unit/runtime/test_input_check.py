"""Inputs that are checked together: the fast way and the slow one give the same."""

import pytest
import torch

from ctk.compiler.runtime import input_check
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.runtime.input_check import input_fits
from ctk.compiler.runtime.python_code import PythonCode
from ctk.compiler.runtime.steps import Call, Ref, Schedule, Size
from ctk.compiler.sizes.index import as_index, symbol

sin, resize = torch.ops.aten.sin.default, torch.ops.aten.resize_.default
SIZE, STRIDE = (as_index(2), as_index(3)), (as_index(3), as_index(1))


def fit(name):
    return Call(f"{name}_fitted", fitted, (Ref(name), SIZE, STRIDE, torch.float32))


def require(name):
    return Call(f"{name}_required", required, (Ref(name), SIZE, STRIDE))


def code_of(*steps):
    names = ("x", "y")
    return PythonCode(
        Schedule(names, steps, tuple(Ref(s.name) for s in steps)), "forward", {}, "tensor"
    )


def test_tensors_that_fit_are_checked_together():
    code = code_of(fit("x"), require("y"))
    check = code.function.__globals__
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert not check["_ctk_fits"](x, y)
    for _ in range(2):
        found = code.function([x, y])
        assert found[0] is x
        assert found[1] is y
        assert check["_ctk_fits"](x, y)


def test_other_layouts_are_copied_or_refused_as_before():
    code = code_of(fit("x"), require("y"))
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    code.function([x, y])
    turned, lazy = torch.rand(3, 2).t(), torch._neg_view(x)
    for other in (turned, lazy, x.double()):
        found, _ = code.function([other, y])
        assert torch.equal(found, other.float())
        assert found.stride() == (3, 1)
        assert not found.is_neg()
    for wrong, message in ((torch.ones(3, 3), "size"), (turned, "strides"), (lazy, "negative")):
        with pytest.raises(ValueError, match=message):
            code.function([x, wrong])
    with pytest.raises(ValueError, match="was compiled for a tensor of size"):
        code.function([torch.ones(2, 4), y])
    assert code.function([x, y])[0] is x


def test_strides_of_single_elements_do_not_matter():
    size, stride = (as_index(1), as_index(3)), (as_index(3), as_index(1))
    code = code_of(Call("a", fitted, (Ref("x"), size, stride, torch.float32)))
    for x in (torch.ones(1, 3), torch.ones(1, 3).as_strided((1, 3), (7, 1))):
        assert code.function([x, None])[0] is x


def test_many_kinds_of_tensors_end_the_checks():
    code = code_of(fit("x"), fit("y"))
    y = torch.ones(2, 3)
    for n in range(20):
        x = torch.nn.Parameter(torch.ones(2, 3), requires_grad=n % 4 < 2)
        x = x if n % 2 else x.detach().requires_grad_(n % 4 == 0)
        assert code.function([x, y])[0] is x
    assert code.function.__globals__["_ctk_fits"] is input_check._never


def test_sizes_that_vary_and_layouts_that_may_change_are_checked_one_by_one():
    later = (Call("r", resize, (Ref("y"), [2, 3])), fit("y"))
    s0 = symbol("s0")
    varies = Call("v", fitted, (Ref("x"), (s0, as_index(3)), STRIDE, torch.float32))
    schedule = Schedule(("x", "y"), (fit("x"), *later, Size("s0", "x", 0), varies), ())
    assert list(input_fits(schedule)) == ["x_fitted"]
    code = code_of(fit("x"), *later)
    x, y = torch.ones(2, 3), torch.ones(6)
    for _ in range(2):
        assert code.function([x, y.clone()])[2].shape == (2, 3)
