"""Differences from eager that torch's documentation describes: a table, and how each is recognised.

A difference is one of the table only if it vanishes under the documented condition, which is asked
of eager or of the compiled program: a wrong value beside it is still a failure.

| entry | the condition |
|---|---|
| `CHECKPOINT` | eager, where a recomputation leaves statistics as they are |
| `AUTOCAST` | eager, with its backward under the autocast of its forward |
| `NUMPY` | compiled, with numpy's own random stream |
| `SCALARS` | an array without dimensions for a number of numpy, of its dtype and value |
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.torch_compat.aot.autograd import is_recomputing
from ctk.compiler.torch_compat.fake.fake_tensors import intercept_ops
from ctk.compiler.torch_compat.fx.operators import written_arguments_of
from ctk.repro_templates.graph.random_draws import operator_name


@dataclass(frozen=True, slots=True)
class Documented:
    """A difference that torch documents.

    Attributes:
        link: The page that describes it.
        sentence: The difference, with the compiled program as the subject.
    """

    name: str
    link: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.sentence} ({self.name}, {self.link})"


CHECKPOINT = Documented(
    "checkpoint-statistics",
    "https://docs.pytorch.org/docs/stable/checkpoint.html",
    "the compiled program updates statistics of a checkpointed region once; eager runs the region"
    " twice, and updates them twice",
)
AUTOCAST = Documented(
    "backward-autocast",
    "https://docs.pytorch.org/docs/stable/torch.compiler_backward.html",
    "the compiled program runs backward under the autocast of its forward; eager runs it as it is"
    " called, outside",
)
NUMPY = Documented(
    "numpy-random-stream",
    "https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
    "the compiled program draws numpy's random numbers from torch's generator",
)
SCALARS = Documented(
    "numpy-scalars",
    "https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
    "the compiled program returns numbers of numpy as arrays without dimensions",
)
DOCUMENTED = (CHECKPOINT, AUTOCAST, NUMPY, SCALARS)

NUMPYS_STREAM = {"torch._dynamo.config.use_numpy_random_stream": True}
"""The setting with which compiled programs draw numpy's random numbers."""


def recomputing_once() -> AbstractContextManager[None]:
    """Return a context in which the recomputation of a checkpoint leaves statistics as they are.

    Statistics are the running values of a normalization, and its count of batches.
    """
    return intercept_ops(_run_once)


def _run_once(op: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    if not is_recomputing():
        return op(*args, **kwargs)
    kept = [(tensor, tensor.clone()) for tensor in _statistics(op, args, kwargs)]
    result = op(*args, **kwargs)
    for tensor, value in kept:
        tensor.copy_(value)
    return result


def _statistics(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the statistics that an operator updates; `native_batch_norm` declares none."""
    name = operator_name(op)
    if "batch_norm" in name and "backward" not in name:
        given = [*args[3:5], kwargs.get("running_mean"), kwargs.get("running_var")]
        return [each for each in given if isinstance(each, Tensor)]
    if name != "add_" or not written_arguments_of(op):
        return []
    is_count = args[0].dim() == 0 and args[0].dtype is torch.int64
    return [args[0]] if is_count else []
