"""Use the usual dtypes (float32, int64): everywhere, dtype by dtype, then in single tensors."""

from collections.abc import Iterator

import torch

from ctk.compiler.fx.walk import flat, graphs_by_path
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.form_edits import CASTS, ConvertDtypes, ConvertTensors
from ctk.toolkit.reduce.proposal import Guesses, Proposal, Proposals, Step, Subset
from ctk.toolkit.reduce.value_edits import changeable, tensors_of


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose all dtypes at once, then any of them, then any tensors of each."""
    pairs = [(dtype, usual(dtype)) for dtype in _dtypes(case) if usual(dtype) != dtype]
    if not pairs:
        return []
    proposals: list[Proposal] = [Guesses((ConvertDtypes(tuple(pairs)),))] if pairs[1:] else []
    proposals.append(Subset(ConvertDtypes, tuple(pairs)))
    for before, after in pairs:
        names = tuple(name for name, t in changeable(case).items() if t.dtype == before)
        if names:
            proposals.append(Subset(lambda chosen, to=after: ConvertTensors(chosen, to), names))
    return proposals


def usual(dtype: torch.dtype) -> torch.dtype:
    """Return the usual dtype of the same kind; itself if none is simpler."""
    if dtype == torch.bool:
        return dtype
    if dtype.is_complex:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point else torch.int64


def _dtypes(case: Case) -> list[torch.dtype]:
    return list(
        dict.fromkeys([*(t.dtype for t in tensors_of(case).values()), *_named_dtypes(case)])
    )


def _named_dtypes(case: Case) -> Iterator[torch.dtype]:
    for graph in graphs_by_path(case.graph).values():
        for node in graph.graph.nodes:
            arguments = (*node.args, *node.kwargs.values())
            yield from (leaf for leaf in flat(arguments) if isinstance(leaf, torch.dtype))
            if node.op == "call_method" and str(node.target) in CASTS:
                yield CASTS[str(node.target)]


STEP = Step("simplify_dtypes", propose, detail="dtypes")
