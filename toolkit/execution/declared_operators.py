"""Run custom operators as they are declared: the counterfactual of an operator that does more.

A compiler relies on the schema of an operator, not on its code. As declared, an operator

* works on copies of the arguments that it does not declare to write to or to return,
* gives results in memory of their own, and records no gradient,
* draws the same random numbers in each call, unless it declares that it draws some.

Eager and compiled code both run it so: a difference that is then gone was due to the operator.
"""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.dispatch.fake_kernels import fake_kernel_id
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.custom_kernels import (
    arguments_of,
    custom_operators,
    is_seeded,
    kernels_replaced,
)
from ctk.repro_templates.numbers.layout import share


def run_as_declared(operators: Collection[str]) -> AbstractContextManager[None]:
    """Run operators as they are declared until the region ends.

    Args:
        operators: Their ids, `operator/mylib::scale`; other texts are ignored.
    """
    if not any(each.startswith("operator/") for each in operators):
        return nullcontext()
    chosen = [each for each in custom_operators() if str(fake_kernel_id(each)) in operators]
    return kernels_replaced({each: partial(_call, each) for each in chosen})


def _call(
    operator: Any, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    values: list[Any] = []
    taken: list[Tensor] = []
    for argument, value in arguments_of(operator, args, kwargs):
        is_declared = argument.is_written or argument.is_viewed
        values.append(value if is_declared else clone_value(value))
        taken += [] if is_declared else _tensors_in(values[-1])
    named = dict(zip(kwargs, values[len(args) :], strict=True))
    with torch.no_grad(), nullcontext() if is_seeded(operator) else same_draws():
        results = kernel(*values[: len(args)], **named)
    return graphs.tree_map(partial(_in_own_memory, taken), results)


def _in_own_memory(taken: list[Tensor], result: object) -> object:
    """Return a result, or a copy of it if its memory is taken; then its own is."""
    if not isinstance(result, Tensor):
        return result
    is_taken = any(result is other or share(result, other) for other in taken)
    own = clone_value(result) if is_taken else result
    taken += _tensors_in(own)
    return own


def _tensors_in(value: object) -> list[Tensor]:
    return [each for each in graphs.tree_leaves(value) if isinstance(each, Tensor)]


@contextmanager
def same_draws() -> Generator[None]:
    """Draw the same random numbers in each such region; torch's generators stay as they are."""
    devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        yield
