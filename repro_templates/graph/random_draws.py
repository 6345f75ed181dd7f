"""Give a float64 run the random numbers that the program drew in its own dtype.

`torch.rand` draws other numbers in float64 than in float32, so an upcast program with random ops
would be another program. The tape records the result of each random op, below autograd, and plays
it back in order.

Ops that mix a draw into a computation (fused attention with dropout) cannot be
played back, nor draws inside a higher-order op; the run is then refused, and the reference is eager
in its own dtype.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.errors import PrecisionRefused
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.torch_compat.fake.fake_tensors import intercept_ops
from ctk.repro_templates.graph.running import generator_states, leaves, same_states

_NAMES = """
rand rand_like randn randn_like randint randint_like randperm normal normal_ normal_functional
uniform uniform_ bernoulli bernoulli_ random random_ exponential exponential_ geometric geometric_
cauchy cauchy_ log_normal log_normal_ multinomial poisson binomial
"""
DRAWS = frozenset(_NAMES.split())
"""Ops whose result is nothing but the draw; each returns one tensor."""

Tape = list[tuple[str, Tensor]]
"""In order: the op's name, and a clone of its result (for native_dropout: its mask)."""


def same_draws(
    record: Callable[[AbstractContextManager[None]], object],
) -> AbstractContextManager[None]:
    """Return a context in which a program draws the random numbers of another run.

    Raises:
        PrecisionRefused: An op draws and cannot be played back; or, within the context, the draws
            come in another order.
    """
    tape: Tape = []
    record(recording(tape))
    return replaying(tape)


def recording(tape: Tape) -> AbstractContextManager[None]:
    """Return a context that appends each draw of its body to `tape`; raises as `same_draws`."""

    def handle(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        name, before = operator_name(op), generator_states()
        result = op(*args, **kwargs)
        if name in DRAWS:
            tape.append((name, _tensor(clone_value(result))))
        elif name == "native_dropout":
            tape.append((name, _tensor(clone_value(leaves(result)[1]))))
        elif not same_states(before, generator_states()):
            raise PrecisionRefused(f"{op} draws random numbers that a float64 run cannot repeat")
        return result

    return intercept_ops(handle)


def replaying(tape: Tape) -> AbstractContextManager[None]:
    """Return a context in which each draw gives the next value on `tape`, in its own dtype."""
    rest = iter(tape)

    def handle(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        name = operator_name(op)
        if name == "native_dropout":
            return _dropout(_next(rest, name, args[0].shape), args)
        if name not in DRAWS:
            return op(*args, **kwargs)
        if name.endswith("_"):
            return args[0].copy_(_next(rest, name, args[0].shape))
        result = op(*args, **kwargs)
        return result.copy_(_next(rest, name, result.shape))

    return intercept_ops(handle)


def _next(rest: Iterator[tuple[str, Tensor]], name: str, shape: torch.Size) -> Tensor:
    recorded, value = next(rest, ("nothing", torch.empty(0, device="cpu")))
    if recorded != name or value.shape != shape:
        raise PrecisionRefused(
            f"the float64 run draws {name}{tuple(shape)} where the program drew {recorded}"
        )
    return value


def _dropout(mask: Tensor, args: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Return the results of native_dropout: the scaled, masked input, and the mask."""
    values, probability, train = args[0], float(args[1]), args[2] is not False
    if not train:
        return values.clone(), mask
    scale = 0.0 if probability == 1.0 else 1.0 / (1.0 - probability)
    return values * mask * scale, mask


def operator_name(op: Any) -> str:
    """Return the name of an operator without its overload."""
    return str(getattr(getattr(op, "overloadpacket", op), "__name__", op))


def _tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value
