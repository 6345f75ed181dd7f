import operator

import pytest
import torch

from ctk.compiler.runtime.python_code import PythonCode, last_uses
from ctk.compiler.runtime.steps import Allocation, Call, Launch, Ref, Schedule, Size
from ctk.compiler.sizes.index import as_index, larger, symbol

S = symbol("s0")
CPU = torch.device("cpu")
sin, add = torch.ops.aten.sin.default, torch.ops.aten.add.Tensor


def ran(schedule, *inputs, constants=None, kernels=()):
    code = PythonCode(schedule, "forward", constants or {}, "tensor")
    code.bind(kernels)
    given = [*inputs]
    result = code.function(given)
    assert given == []
    return result


def test_an_input_may_be_called_as_a_size_is():
    steps = (Size("s0", "s0", 0), Call("y", sin, (Ref("s0"),)))
    result = (Ref("y"), S * 2, Ref("s0"))
    x = torch.ones(3)
    y, size, same = ran(Schedule(("s0",), steps, result), x)
    assert size == 6
    assert same is x
    assert torch.equal(y, x.sin())


def test_no_two_values_have_one_variable():
    names = ("lambda", "lambda_", "a.b", "a__b", "max", "_ctk_empty")
    steps = tuple(Call(f"r{n}", sin, (Ref(name),)) for n, name in enumerate(names))
    result = (*(Ref(f"r{n}") for n in range(len(names))), larger(S, as_index(2)))
    inputs = [torch.full((2,), float(n)) for n in range(len(names))]
    schedule = Schedule(names, (Size("s0", "max", 0), *steps), result)
    *found, size = ran(schedule, *inputs)
    assert size == 2
    assert all(torch.equal(a, b.sin()) for a, b in zip(found, inputs, strict=True))


@pytest.mark.parametrize("number", [0.0, -0.0, float("inf"), float("nan"), 1j, 2**70, True])
def test_numbers_are_printed_as_they_are(number):
    ((found,),) = ran(Schedule((), (), ([number],)))
    assert repr(found) == repr(number)
    assert type(found) is type(number)


def test_other_arguments_are_printed_as_they_are():
    given = ({"key": (1, "a'b")}, slice(None, 2), torch.float16, torch.device("cpu"), None, ())
    assert ran(Schedule((), (), given)) == given


def test_memory_is_new_or_that_of_another_and_kernels_fill_it():
    sizes = (S, as_index(2))
    strides = (as_index(2), as_index(1))
    steps = (
        Size("s0", "x", 0),
        Allocation("a", torch.float32, sizes, strides, CPU),
        Launch(0, ("a", "x"), ("s0",)),
        Allocation("b", torch.int32, sizes, strides, CPU, "a"),
        Launch(1, ("b",), ()),
    )
    seen = []

    def first(out, read, size):
        seen.append((out.data_ptr(), size))
        out.copy_(read + 1)

    def second(out):
        seen.append((out.data_ptr(), None))
        out.fill_(7)

    (found,) = ran(Schedule(("x",), steps, (Ref("b"),)), torch.zeros(3, 2), kernels=[first, second])
    assert torch.equal(found, torch.full((3, 2), 7, dtype=torch.int32))
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] == 3


def test_a_value_is_dropped_after_its_last_use():
    steps = (
        Call("pair", torch.ops.aten.sort.default, (Ref("x"),)),
        Call("first", operator.getitem, (Ref("pair"), 0)),
        Call("unread", sin, (Ref("w"),)),
        Call("y", add, (Ref("first"), Ref("w"))),
    )
    schedule = Schedule(("x", "unused"), steps, (Ref("y"),), {"w": "weight"})
    assert last_uses(schedule) == {
        -1: ["unused"], 0: ["x"], 1: ["pair"], 2: ["unread"], 3: ["first"],
    }  # fmt: skip
    weight = torch.ones(2)
    (y,) = ran(schedule, torch.tensor([2.0, 1.0]), None, constants={"weight": weight})
    assert y.tolist() == [2.0, 3.0]


def test_a_part_takes_its_inputs_one_by_one_and_sizes_that_it_is_told():
    schedule = Schedule(("x",), (Call("y", add, (Ref("x"), S)),), Ref("y"))
    code = PythonCode(schedule, "part", {}, "tensor", is_boxed=False, symbols=["s0"])
    assert code.function(torch.ones(1), 4).item() == 5


def test_memory_on_a_gpu_is_made_while_that_is_the_current_device():
    sizes, on = (as_index(2),), torch.device("cuda:1")
    steps = (Allocation("a", torch.float32, sizes, (as_index(1),), on), Launch(0, ("a",), ()))
    code = PythonCode(Schedule(("x",), steps, (Ref("a"),)), "forward", {}, "tensor")
    current, seen, scope = [0], [], code.function.__globals__

    def on_device(index, run, inputs):
        seen.append(index)
        current[0] = index
        return run(inputs)

    def empty(size, stride, dtype):
        assert current == [1]
        return torch.empty_strided(size, stride, dtype=dtype)

    made_by = next(name for name in scope if name.startswith("_ctk_empty"))
    scope |= {"_ctk_on_device": on_device, "_ctk_current_device": lambda: current[0]}
    scope[made_by] = empty
    code.bind([lambda a: a.fill_(7)])
    for _ in range(2):
        (found,) = code.function([torch.ones(1)])
        assert found.tolist() == [7, 7]
    assert seen == [1]


def test_memory_on_several_gpus_names_each_device():
    places = [torch.device("cuda:0"), torch.device("cuda:1")]
    steps = tuple(
        Allocation(f"a{n}", torch.float32, (as_index(2),), (as_index(1),), on)
        for n, on in enumerate(places)
    )
    code = PythonCode(Schedule((), steps, ()), "forward", {}, "tensor")
    assert "current_device" not in code.text
    assert "_ctk_cuda_0)" in code.text
    assert "_ctk_cuda_1)" in code.text
