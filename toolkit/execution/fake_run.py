"""Run the graph of a case on fake tensors: the metadata of its results, as a compiler gets them."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.compiler.torch_compat.fake.fake_tensors import new_fake_mode, static_like, without_log
from ctk.repro_templates.graph.running import STATES, leaves, under
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.scalars import size_hint
from ctk.toolkit.execution.private_copy import Eager, private_copy


def run_fake(case: Case) -> Mapping[str, Tensor]:
    """Return the results of a case (`out0`) and its inputs after the call (`in0`) on `meta`.

    Empty if an operator has no fake implementation, or needs the values of a tensor. Results of
    unknown sizes are left out.
    """
    mode = new_fake_mode()
    private, owned = private_copy(case.graph, case.inputs)
    fakes = [static_like(v, mode) if isinstance(v, Tensor) else v for v in owned]
    try:
        with under(dataclasses.asdict(case.modes), STATES), without_log(), mode:
            outputs = leaves(Eager(private)(*fakes))
    except Exception:  # eager runs, so only the fake tensors can be the reason
        return {}
    named = [(f"out{i}", leaf) for i, leaf in enumerate(outputs)]
    named += [(f"in{i}", fake) for i, fake in enumerate(fakes)]
    return {name: meta for name, value in named if (meta := _on_meta(value)) is not None}


def _on_meta(value: object) -> Tensor | None:
    """Return an empty tensor of the sizes and strides of a fake one; None if they are unknown."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return None
    try:
        sizes, steps = ([size_hint(s) for s in each] for each in (value.shape, value.stride()))
    except CaseError:
        return None
    return torch.empty_strided(sizes, steps, dtype=value.dtype, device="meta")
