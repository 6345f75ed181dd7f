"""The reference interpreter: eager's values, and errors for what no kernel may do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.interpret_kernel import InterpretError, OutOfRange, run_kernel
from ctk.compiler.lowering.interpret_memory import Memory, unwritten
from ctk.compiler.lowering.interpret_ops import OPERATIONS, compute, convert
from ctk.compiler.lowering.ir import (
    Const,
    Guarded,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Reduce,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.vocabulary import ARITY
from ctk.compiler.passes.joint.philox import philox
from ctk.compiler.sizes.index import Index, Indirect, Var, as_index, of_atom

aten = torch.ops.aten
LOOP = Var("i", as_index(4))
AT = of_atom(LOOP)
CPU = torch.device("cpu")


def kernel(*statements: Statement, inner: tuple[Var, ...] = ()) -> Kernel:
    return Kernel("k", (LOOP,), (Sweep(inner, statements),), ("node",), CPU)


def store(value: Value, at: Index = AT, **options: Any) -> Store:
    return Store("y", at, value, origin="node", **options)


def load(at: Index) -> Load:
    return Load("x", at, torch.float32)


def run(made: Kernel, **options: Any) -> Tensor:
    memory = {"x": Memory(torch.arange(4.0)), "y": unwritten(4, torch.float32)}
    run_kernel(made, memory, {}, **options)
    return memory["y"].tensor


def same_as_eager(f: Callable[..., Any], *inputs: Tensor) -> None:
    for mode in ("fake", "symbolic"):
        gm = make_fx(f, tracing_mode=mode)(*inputs)
        expected = tree_leaves(gm(*inputs))
        program = lower(gm)
        found = tree_leaves(run_program(gm, program, inputs, check=True))
        wide = tree_leaves(run_program(gm, program, inputs, precision="float64"))
        for each, exact, value in zip(found, wide, expected, strict=True):
            torch.testing.assert_close(each, value)
            torch.testing.assert_close(exact, value, check_dtype=False)
            assert exact.dtype == torch.float64 or not value.dtype.is_floating_point


def test_every_operation_has_a_meaning() -> None:
    assert set(ARITY) == OPERATIONS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_softmax_and_layer_norm(dtype: torch.dtype) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.softmax(x + w, -1).t(), *aten.native_layer_norm(x, [w.shape[0]], w, w, 1e-5)

    same_as_eager(f, torch.randn(5, 7).to(dtype), torch.randn(7).to(dtype))


def test_a_library_call_and_a_size_that_it_decides() -> None:
    same_as_eager(lambda x: ((x.t() @ x + 1).relu().mean(), x.nonzero() + 1), torch.randn(5, 7))


def test_no_elements() -> None:
    same_as_eager(lambda x: (x.sum(0), x.sum(1), x.exp()), torch.zeros(0, 3))


def test_rounds_to_bfloat16_as_torch() -> None:
    values = torch.randn(1000) * torch.randn(1000).exp2()
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 3.39e38, 1e-45])
    values = torch.cat([values, special])
    expected = values.bfloat16().float()
    found = torch.from_numpy(convert(values.numpy(), torch.bfloat16))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_draws_the_words_of_philox() -> None:
    seed = torch.tensor([1 << 40, 5, -3])
    at = torch.tensor([7, 1 << 33, 0])
    high = seed >> 32 & 0xFFFFFFFF
    words = philox((at & 0xFFFFFFFF, at >> 32, 0 * at, 0 * at), (seed & 0xFFFFFFFF, high))
    for lane in range(4):
        args = [seed.numpy(), at.numpy(), torch.full((3,), lane).numpy()]
        assert compute("philox", args, torch.int64).tolist() == words[lane].tolist()


def test_loads_within_a_guard_are_made_only_where_it_holds() -> None:
    inside = Op("lt", (Position(AT), Const(2, torch.int64)), torch.bool)
    value = Guarded(inside, load(AT + 2), Const(9.0, torch.float32))
    assert run(kernel(store(value)), check=True).tolist() == [2, 3, 9, 9]
    with pytest.raises(OutOfRange, match=r"kernel k, node node: reads x at 4.*4 elements.*i=2"):
        run(kernel(store(load(AT + 2))))


def test_a_gather_outside_of_its_dimension() -> None:
    index = Index((((Indirect(Position(AT - 1), as_index(4)),), 1),))
    with pytest.raises(IndexError, match="gathers by a computed number at -1"):
        run(kernel(store(load(index))))


def test_races() -> None:
    with pytest.raises(InterpretError, match=r"a race at y\[0\].*node writes it"):
        run(kernel(store(load(AT), AT // 2)), check=True)
    with pytest.raises(InterpretError, match="race"):  # reads what another iteration writes
        run(kernel(Store("x", AT, load(-AT + 3), origin="node")), check=True)
    run(kernel(Store("x", AT // 2, load(AT), mode="max")))
    summed = kernel(Store("x", AT // 2, Const(1.0, torch.float32), mode="add"))
    run(summed, check=True)


def test_memory_that_nobody_has_written() -> None:
    with pytest.raises(InterpretError, match=r"node node: reads y\[0\].*never written"):
        run(kernel(store(Load("y", AT, torch.float32))), check=True)


def test_a_local_before_its_reduction() -> None:
    reduce = Reduce(("s",), "sum", load(AT), (torch.float32,))
    with pytest.raises(InterpretError, match="reads s before"):
        run(kernel(reduce, store(Local("s", torch.float32)), inner=(Var("r", as_index(2)),)))


def test_operands_of_two_types() -> None:
    wrong = Op("add", (load(AT), Const(1, torch.int64)), torch.float32, "node")
    with pytest.raises(InterpretError, match=r"node node: add of torch.float32, torch.int64"):
        run(kernel(store(wrong)))
