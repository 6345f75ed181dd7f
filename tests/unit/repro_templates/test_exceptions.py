"""When two exceptions are one outcome: the same error seldom has the same words on both sides."""

import pytest
import torch

from ctk.repro_templates.graph.exceptions import Raised, alike, describe_error

SAME = {
    "kernel": (
        IndexError("index 9 is out of bounds for dimension 0 with size 4"),
        RuntimeError("kernel, /tmp/ab/cab.main.cpp:21, index out of bounds: 0 <= tmp2 < 4L"),
    ),
    "embedding": (
        IndexError("index out of range in self"),
        RuntimeError("index out of bounds: 0 <= tmp4 < 10"),
    ),
    "target": (
        IndexError("Target 7 is out of bounds."),
        RuntimeError("index out of bounds: 0 <= tmp4 < 10"),
    ),
    "device": (
        torch.AcceleratorError("CUDA error: device-side assert triggered\nmore"),
        torch.AcceleratorError("CUDA error: device-side assert triggered\nand more"),
    ),
    "interpreter": (
        RuntimeError("index out of range\n\nWhile executing %embedding : [num_users=1]\nmore"),
        IndexError("index out of range"),
    ),
    "matmul": (
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ValueError("a and b must have same reduction dim, but got [2, 3] X [4, 5]."),
    ),
    "view": (
        RuntimeError("view size is not compatible with input tensor's size and stride"),
        ValueError("Cannot view a tensor with shape torch.Size([4, 4]) and strides (1, 4)"),
    ),
    "one_hot": (
        RuntimeError("Class values must be smaller than num_classes."),
        RuntimeError("one_hot: Class values must be smaller than num_classes."),
    ),
    "division": (RuntimeError("ZeroDivisionError"), ZeroDivisionError("division by zero")),
    "no message": (KeyError(), KeyError()),
    "own words": (ValueError("bad batch 7"), ValueError("bad batch 8")),
}

OTHER = {
    "another check": (
        RuntimeError("all elements of input should be between 0 and 1"),
        torch.linalg.LinAlgError("linalg.inv: the input matrix is singular."),
    ),
    "a crash": (IndexError("index out of range in self"), ArithmeticError("kernel crashed")),
    "own words": (ValueError("bad batch"), ValueError("no model")),
    "no message": (KeyError(), AssertionError()),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_error_in_other_words(name):
    eager, compiled = SAME[name]
    assert alike(describe_error(eager), describe_error(compiled))


@pytest.mark.parametrize("name", OTHER)
def test_another_error(name):
    eager, compiled = OTHER[name]
    assert not alike(describe_error(eager), describe_error(compiled))


def test_what_a_compiler_raises_on_its_own_account_is_no_check_of_the_program():
    eager = describe_error(IndexError("index 9 is out of bounds for dimension 0"))
    assert not alike(
        eager, describe_error(AssertionError("index out of range in a pass"), compiling=True)
    )
    own = Raised("RuntimeError", "index out of range in self", is_check=False)
    assert not alike(eager, own)
    assert alike(describe_error(IndexError("index out of range in self")), own)


def test_a_fake_tensors_check_while_compiling_is_one_of_the_program():
    eager = describe_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2, 3, device="meta") @ torch.empty(4, 5, device="meta")
    assert alike(eager, describe_error(caught.value, compiling=True))


def test_dynamo_says_what_a_fake_tensor_raised():
    def program(a, b):
        return a @ b

    torch.compiler.reset()
    with pytest.raises(RuntimeError) as caught:
        torch.compile(program, backend="eager")(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(RuntimeError) as eager:
        program(torch.ones(2, 3), torch.ones(4, 5))
    assert describe_error(caught.value).name in ("RuntimeError", "ValueError")
    assert alike(describe_error(eager.value), describe_error(caught.value))


def of_a_raise(error):
    with pytest.raises(type(error)) as caught:
        raise error
    return describe_error(caught.value)


def test_what_the_programs_own_code_raises_keeps_its_type():
    own = of_a_raise(ValueError("no"))
    assert alike(own, of_a_raise(ValueError("no")))
    assert not alike(own, of_a_raise(KeyError("no")))
    assert alike(of_a_raise(AssertionError("no rows")), describe_error(RuntimeError("no rows")))
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2).view(3)
    assert not describe_error(caught.value).is_own


def test_torchscript_keeps_neither_type_nor_words():
    text = (
        "The following operation failed in the TorchScript interpreter.\n"
        "Traceback of TorchScript (most recent call last):\n  here\nRuntimeError: "
    )
    eager = describe_error(IndexError("Target 7 is out of bounds."))
    assert alike(eager, describe_error(RuntimeError(f"{text}\n")))
    assert alike(eager, describe_error(RuntimeError(f"{text}index out of range\n")))
    assert not alike(eager, describe_error(RuntimeError(f"{text}the matrix is singular\n")))


def test_a_message_that_cannot_be_read():
    class Unreadable(Exception):
        def __str__(self):
            raise ValueError

    assert "ValueError" in describe_error(Unreadable()).message
