"""How far a result may lie from the exact one where a rule reassociates or lowers precision.

Reassociates: a sum of n products in any order lies within gamma(n) * sum |terms| of the exact one,
gamma(n) = n u / (1 - n u). The graph before is run in float64 for the exact value, and on absolute
values for `sum |terms|`. That holds for sums and products, views and copies (`MONOTONE`); with
another operator among them, and where precision is lowered, the toolkit's table of tolerances
decides.

An overflow in between makes an infinity of a number that is finite in another order. So elements
whose terms come near the largest number get no verdict; where the table decides, infinite results
get none if an operand is near the largest number. Ordinary operands must not overflow.

Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.2, 3.1 and
4.2 (any order of summation); underflow adds at most n times the smallest normal number here, which
also covers kernels that flush subnormals to zero.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.properties import is_view
from ctk.compiler.observe import Numerics
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.tolerance import TABLE
from ctk.toolkit.verify_rules.judge import (
    JudgeNumbers,
    refuse_other_bits,
    results_of,
    run_drawn,
    shorten,
)

aten = torch.ops.aten

MONOTONE: frozenset[object] = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.mv.default,
        aten.dot.default,
        aten.add.Tensor,
        aten.mul.Tensor,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.mean.default,
        aten.mean.dim,
        aten.clone.default,
        aten.cat.default,
        aten.fill_.Scalar,
        aten.sym_size.int,
    }
)
"""Operators whose value on absolute operands bounds the sum of their terms."""


def numbers_judge(numerics: Numerics, graph: GraphModule, inputs: Sequence[Tensor]) -> JudgeNumbers:
    """Return the judge of a graph's results after a rule of such numerics."""
    if numerics == "exact":
        return refuse_other_bits
    exact = _run_converted(graph, inputs, _widen)
    if numerics == "lowers_precision" or not _is_monotone(graph):
        has_extremes = _has_extremes((*inputs, *graph.buffers()))
        return partial(_judge_by_table, numerics, exact, has_extremes)
    terms = _run_converted(graph, inputs, _magnitude)
    calls = sum(node.op == "call_function" for node in graph.graph.nodes)
    count = calls + max((tensor.numel() for tensor in (*inputs, *graph.buffers())), default=0)
    return partial(_judge_by_terms, count, exact, terms)


def _run_converted(
    graph: GraphModule, inputs: Sequence[Tensor], convert: Callable[[Tensor], Tensor]
) -> list[object]:
    other = copy_graph_module(graph)
    for name, constant in list(graph.named_buffers()):
        setattr(other, name, convert(constant).clone())
    return results_of(run_drawn(other, [convert(tensor).clone() for tensor in inputs]))


def _widen(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _magnitude(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype is torch.bool else _widen(tensor).abs()


def _is_monotone(graph: GraphModule) -> bool:
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    numbers = [arg for node in calls for arg in node.args if isinstance(arg, float | int)]
    is_known = all(node.target in MONOTONE or is_view(node) for node in calls)
    return is_known and all(number >= 0 for number in numbers)


def _has_extremes(operands: Sequence[Tensor]) -> bool:
    """Return whether a finite operand is so large, or so small, that a product may overflow."""
    for operand in operands:
        if not operand.is_floating_point():
            continue
        sizes, info = operand.abs().flatten().double(), torch.finfo(operand.dtype)
        finite = sizes[sizes.isfinite() & (sizes > 0)]
        if bool(((finite > info.max**0.75) | (finite < info.smallest_normal**0.75)).any()):
            return True
    return False


def _judge_by_table(
    numerics: Numerics,
    exact: Sequence[object],
    has_extremes: bool,
    index: int,
    before: Tensor,
    after: Tensor,
) -> str | None:
    reference = exact[index] if index < len(exact) else None
    if has_extremes and after.is_floating_point():
        is_finite = before.isfinite() & after.isfinite()
        before, after = (torch.where(is_finite, each, 0.0) for each in (before, after))
        if isinstance(reference, Tensor) and reference.shape == after.shape:
            reference = torch.where(is_finite, reference, 0.0)
    mismatch = compare_values(f"out{index}", before, after, reference, TABLE[numerics])
    if mismatch is None:
        return None
    return f"is {shorten(after)}, not {shorten(before)}: {mismatch.detail}"


def _judge_by_terms(
    count: int,
    exact: Sequence[object],
    terms: Sequence[object],
    index: int,
    before: Tensor,
    after: Tensor,
) -> str | None:
    truth = exact[index] if index < len(exact) else None
    size = terms[index] if index < len(terms) else None
    if not isinstance(truth, Tensor) or not isinstance(size, Tensor):
        return refuse_other_bits(index, before, after)
    if not after.is_floating_point() or truth.shape != after.shape:
        return refuse_other_bits(index, before, after)
    info = torch.finfo(after.dtype)
    bound = 2 * count * (info.eps * size + info.smallest_normal)  # 2: float64 rounds as well
    new, old = after.double(), before.double()
    is_near = (new - truth).abs() <= bound
    is_same = (new == old) | (new.isnan() & old.isnan()) | (new == truth)
    may_overflow = size.isfinite() & (size >= info.max / 4)
    is_nan_of_both = new.isnan() & truth.isnan()
    good = is_near | is_same | may_overflow | is_nan_of_both
    if bool(good.all()):
        return None
    worst = torch.where(good, 0.0, (new - truth).abs() / bound).nan_to_num(torch.inf).max()
    return (
        f"is {shorten(after)}, not {shorten(before)}; the exact one is {shorten(truth)}: "
        f"{worst.item():.3g} times the bound of {count} roundings"
    )
