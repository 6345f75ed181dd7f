"""Run a graph on copies of inputs, and keep all that a caller could notice of it."""

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter

from ctk.repro_templates.numbers.layout import share
from ctk.toolkit.verify_rules.schemas import is_defined


@dataclass(frozen=True, slots=True)
class Play:
    """What one run showed.

    Attributes:
        outputs: The results; empty if it raised.
        inputs: The inputs after it.
        shared: Which pairs of results and inputs share memory.
        error: What it raised.
    """

    outputs: tuple[object, ...]
    inputs: tuple[Tensor, ...]
    shared: frozenset[tuple[str, str]]
    error: Exception | None = None


def play(graph: GraphModule, inputs: Sequence[Tensor]) -> Play:
    """Run a graph on copies of its inputs; its constants are what they were, afterwards."""
    copies = tuple(copied(each) for each in inputs)
    torch.manual_seed(0)
    with _constants_kept(graph), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            outputs = tuple(_Checked(graph).run(*copies))
        except Exception as error:
            return Play((), copies, frozenset(), error)
        shared = _shared(outputs, copies)
        kept = tuple(copied(each) if isinstance(each, Tensor) else each for each in outputs)
        return Play(kept, copies, shared)


class _Checked(Interpreter):
    """Runs a graph, but no call that reads what is not there."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_defined(target, args):
            raise ValueError(f"{target} reads behind the end of an operand")
        return super().call_function(target, args, kwargs)


def copied(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor and of all its storage: same strides, same overlaps."""
    if tensor.is_meta:
        return tensor
    storage = tensor.untyped_storage().clone()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
    copy = flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    conjugated = copy.conj() if tensor.is_conj() else copy
    return torch.neg(conjugated) if tensor.is_neg() else conjugated


@contextmanager
def _constants_kept(graph: GraphModule) -> Generator[None]:
    constants = [tensor.untyped_storage() for tensor in graph.buffers()]
    saved = [storage.clone() for storage in constants]
    try:
        yield
    finally:
        for storage, before in zip(constants, saved, strict=True):
            storage.copy_(before)


def _shared(outputs: Sequence[object], inputs: Sequence[Tensor]) -> frozenset[tuple[str, str]]:
    named = {f"out{index}": each for index, each in enumerate(outputs)}
    others: dict[str, object] = {f"in{index}": each for index, each in enumerate(inputs)}
    names = {**named, **others}
    names = {name: each for name, each in names.items() if not getattr(each, "is_meta", False)}
    return frozenset(
        (one, other)
        for index, one in enumerate(names)
        for other in list(names)[index + 1 :]
        if one in named and share(names[one], names[other])
    )
