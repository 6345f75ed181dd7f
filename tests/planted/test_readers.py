"""Faults of a lowering that show only in company: the guilty one of several that a fallback mends.

The case passes without the producer of a value and without its reader. Alone, on eager's operands,
only one of them is wrong.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ctk.toolkit.bisect import Search, find_culprit
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.program import capture_cases
from tests.helpers.inductor_faults import lowered, matrix
from tests.helpers.torch_bugs import TURNED_OPERAND, TorchBug

aten = torch.ops.aten
Plant = Callable[[], AbstractContextManager[object]]


def origin_of(value: Any) -> str:
    """Return the operator that computes a value which is not in memory; "" for one in memory."""
    from torch._inductor import ir

    inner = getattr(value, "data", None)
    while isinstance(inner, (ir.BaseView, ir.StorageBox)):
        inner = inner.data
    if not isinstance(inner, ir.Pointwise):
        return ""
    return str(next((node.target for node in inner.origins), "computed"))


def doubled(value: Any) -> Any:
    from torch._inductor import lowering

    return lowering.lowerings[aten.mul.Tensor](value, 2)


def wrong_of_computed(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Give the double, if no operand is in memory."""
    result = original(*args, **kwargs)
    operands = [each for each in args if hasattr(each, "get_size")]
    return doubled(result) if all(map(origin_of, operands)) else result


def wrong_of_any_computed(original: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    return doubled(result) if any(origin_of(e) for e in args if hasattr(e, "get_size")) else result


def wrong_of_sin(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Give the double, if the operand is a `sin` that is not in memory."""
    result = original(*args, **kwargs)
    return doubled(result) if "sin" in origin_of(args[0]) else result


def wrong_if_overwritten(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Give the double, if the graph writes to the operand."""
    from torch._inductor.virtualized import V

    users = V.graph.current_node.args[0].users
    result = original(*args, **kwargs)
    return doubled(result) if any("copy_" in str(user.target) for user in users) else result


def wrong(original: Any, *args: Any, **kwargs: Any) -> Any:
    return doubled(original(*args, **kwargs))


@dataclass(frozen=True, slots=True)
class Pair:
    """A program with a producer and a reader.

    Attributes:
        plant: The operator whose lowering is wrong, and its wrong lowering.
        where: The expected culprit, without `lowered/lower.`.
        innocent: Operators that a sentence of `Search.excluded` clears.
        alternatives: The other suspects, where none is wrong alone.
        bug: The bug of torch that makes the reader wrong, if nothing is planted.
    """

    name: str
    program: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    plant: tuple[Any, Callable[..., Any]] | None
    where: str
    innocent: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    bug: TorchBug | None = None


def least_of_turned(x: Tensor) -> Tensor:
    return (x.t() + 0.5).argmin()


def greatest_of_turned_chain(x: Tensor) -> Tensor:
    return ((x.t() * 2.0).sin().exp() + 1.0).tanh().argmax()


def window_of_repeated(x: Tensor) -> Tensor:
    full = x.repeat((3, 2))
    return torch.as_strided(full[:, ::2], (3, 2), full.stride())


def largest_wave(x: Tensor) -> Tensor:
    return x.sin().amax(-1)


def largest_in_chain(x: Tensor) -> Tensor:
    return ((x + 1.0).abs() * 3.0).sin().amax(-1) - 1.0


def sum_of_waves(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.sin(), y.cos())


def read_and_written(x: Tensor) -> Tensor:
    waves = x.sin() + 1.0
    x.mul_(3.0)
    return waves


PAIRS = (
    Pair("argmin reads a turned sum", least_of_turned, (matrix(2, 2),), None,
         "aten.argmin.default", ("aten.add.Tensor",), bug=TURNED_OPERAND),
    Pair("argmax at the end of a chain", greatest_of_turned_chain, (matrix(3, 2),), None,
         "aten.argmax.default", bug=TURNED_OPERAND),
    Pair("as_strided reads a repeated value", window_of_repeated, (matrix(1, 1),), None,
         "aten.as_strided.default", ("aten.repeat.default", "aten.slice.Tensor")),
    Pair("a reader of computed values", largest_wave, (matrix(),),
         (aten.amax.default, wrong_of_computed), "aten.amax.default", ("aten.sin.default",)),
    Pair("a reader at the end of a chain", largest_in_chain, (matrix(),),
         (aten.amax.default, wrong_of_computed), "aten.amax.default", ("aten.sin.default",)),
    Pair("a producer in a chain", largest_in_chain, (matrix(),),
         (aten.sin.default, wrong), "aten.sin.default"),
    Pair("a producer that is wrong of computed values", largest_in_chain, (matrix(),),
         (aten.sin.default, wrong_of_computed), "aten.sin.default", ("aten.mul.Tensor",)),
    Pair("a reader of two computed values", sum_of_waves, (matrix(), matrix()),
         (aten.maximum.default, wrong_of_computed), "aten.maximum.default",
         ("aten.sin.default", "aten.cos.default")),
    Pair("a reader that needs one computed value", sum_of_waves, (matrix(), matrix()),
         (aten.maximum.default, wrong_of_any_computed), "aten.maximum.default"),
    Pair("wrong only together", largest_wave, (matrix(),),
         (aten.amax.default, wrong_of_sin), "aten.amax.default", (), ("aten.sin.default",)),
    Pair("wrong of what is overwritten", read_and_written, (matrix(),),
         (aten.sin.default, wrong_if_overwritten), "aten.sin.default"),
)  # fmt: skip


def find(pair: Pair) -> Search:
    torch._dynamo.reset()
    program = UserProgram(pair.program, pair.inputs, {}, pair.program.__name__, Path(__file__))
    (case,) = capture_cases(program, target="inductor")
    if pair.plant is None:
        return find_culprit(case)
    with lowered(*pair.plant):
        return find_culprit(case)


QUICK = ("as_strided reads a repeated value", "a reader of two computed values")


def marked(pair: Pair):
    marks = [] if pair.name in QUICK else [pytest.mark.slow]
    needed = [pair.bug.is_needed] if pair.bug is not None else []
    return pytest.param(pair, id=pair.name.replace(" ", "-"), marks=marks + needed)


@pytest.mark.parametrize("pair", [marked(pair) for pair in PAIRS])
def test_the_guilty_one_of_a_producer_and_a_reader(pair: Pair):
    search = find(pair)
    culprit = search.culprit
    assert culprit is not None
    assert culprit.where == f"lowered/lower.{pair.where}"
    assert search.confirmed
    assert culprit.alternatives == tuple(f"lowered/lower.{each}" for each in pair.alternatives)
    for operator in pair.innocent:
        reasons = (f"{operator} is right", f"{operator} does not help")
        assert any(reason in each for each in search.excluded for reason in reasons)
    assert search.compiles <= 14


@pytest.mark.slow
def test_a_reader_that_is_right_alone_is_named_with_the_writer():
    culprit = find(PAIRS[-1]).culprit
    assert culprit is not None
    assert culprit.nodes == ("sin", "copy_")
    assert "copy_ writes to the memory that it reads" in culprit.proof
