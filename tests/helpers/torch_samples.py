"""Calls out of torch's own databases of operators, `op_db` and `hop_db`, as cases."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import load_cases
from ctk.toolkit.importers.in_memory import case_of_graph
from ctk.toolkit.options import CaseOptions

Call = tuple[Callable[..., object], tuple[torch.Tensor, ...]]


def calls(
    words: Sequence[str], dtype: torch.dtype, count: int | None = None
) -> Iterator[tuple[str, Call]]:
    """Yield the first call of each operator whose name has one of `words`; it takes tensors.

    Args:
        count: Of so many operators, drawn with a fixed seed; None: of all.
    """
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.hop_db import hop_db

    _allow_flags()
    infos = [*hop_db, *op_db]
    for info in infos if count is None else random.Random(0).sample(infos, count):
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        if words and not any(word in name for word in words):
            continue
        dtypes = info.supported_dtypes("cpu")
        wanted = dtype if dtype in dtypes else next(iter(sorted(dtypes, key=str)), None)
        if wanted is not None:
            with contextlib.suppress(StopIteration, RuntimeError, ModuleNotFoundError):
                yield name, flat_call(info.op, first_sample(info, wanted))


def operator_infos() -> Sequence[Any]:
    """Return torch's database of operators."""
    from torch.testing._internal.common_methods_invocations import op_db

    _allow_flags()
    return op_db


def _allow_flags() -> None:
    """Undo a side effect of torch's test modules: flags of backends could not be set any more."""
    vars(torch.backends)["__allow_nonbracketed_mutation_flag"] = True


def module_infos() -> Sequence[Any]:
    """Return torch's database of modules."""
    from torch.testing._internal.common_modules import module_db

    _allow_flags()
    return module_db


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """Return nested values with each tensor changed."""
    return pytree.tree_map_only(torch.Tensor, change, tree)


def first_sample(info: Any, dtype: torch.dtype) -> Any:
    """Return the first sample of an operator that holds a tensor."""
    torch.manual_seed(0)
    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
    return next(s for s in samples if any(map(torch.is_tensor, pytree.tree_leaves(s.input))))


def flat_call(op: Callable[..., object], sample: Any) -> Call:
    """Return the call of a sample as a function of its tensors alone."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [index for index, leaf in enumerate(leaves) if torch.is_tensor(leaf)]

    def call(*tensors: torch.Tensor) -> object:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(values, spec)
        return op(first, *args, **kwargs)

    return call, tuple(leaves[place] for place in places)


def cases(call: Call, via: str) -> list[Case]:
    """Return the cases of a call, captured by Dynamo or traced by `make_fx`."""
    function, tensors = call
    if via == "dynamo":
        return load_cases(function, tensors, CaseOptions())
    graph = make_fx(function)(*[each.clone() for each in tensors])
    return [case_of_graph(graph, tensors, CaseOptions())]
