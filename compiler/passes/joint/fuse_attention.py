"""Replace attention that is written out by the fused kernel for it.

Rule: `softmax(steps(q @ k.mT)) @ v -> scaled_dot_product_attention(q, k, v, ...)`, in inference
and, with the gradients of `q`, `k` and `v`, in training. The steps (`attention_reading.py`) are a
scale, masks that are added or filled in, and casts, in any combination; before or behind each
may be reshapes, so that all layouts are one form: heads that are transposed or not, `bmm` of three
dimensions, `einsum`.

The replacement is `F.scaled_dot_product_attention` traced with operands like the match's: the ATen
kernel that torch itself chooses for them (`_scaled_dot_product_flash_attention_for_cpu`, `_flash_`
or `_efficient_attention`; not cuDNN's, see the calls), and in training its backward kernel with it,
because the joint graph holds both. With an additive mask, backward computes the weights again.
If torch chooses the unfused composite (dropout on the CPU, an odd head size on
CUDA), nothing is gained, and the rule does not fire.

Preconditions: the scores, the probabilities and their gradients have no other user, but the
gradient of a mask that is added, where nothing is filled in; nothing writes to an operand in
between; no tensor is empty; a number that is filled in is lower than any score; the results have
the old types; a copy keeps their strides. A fully masked row has its old value, NaN or a mean, and
so have its gradients. Reassociates: the softmax is computed in blocks.

Dropout in a kernel keeps `p` and draws other numbers than eager does: only with `draws_otherwise`,
and not with a mask that is added or a finite number that is filled in.

Source: torch/_inductor/fx_passes/fuse_attention.py, which traces thirty forms in two dtypes and
several layouts, and leaves 0 in empty rows. Here a form is a sequence of steps that is read, so
that each step is known once.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.observe import first_line
from ctk.compiler.passes.joint import eliminate_common_subexpressions, remove_noops, simplify_views
from ctk.compiler.passes.joint.attention_calls import Call, call_of
from ctk.compiler.passes.joint.attention_reading import (
    SAFE_SOFTMAX,
    SOFTMAX,
    inside,
    origin_of_swapped,
    read_attention,
    read_gradients,
)
from ctk.compiler.passes.joint.attention_views import Exit, exit_of, origin_of, reshape, sizes_of
from ctk.compiler.patterns.expression import ANY, Match, Op, Var
from ctk.compiler.patterns.insert import fwd_only, insert_graph, unfit
from ctk.compiler.patterns.matcher import (
    HandlerRule,
    RuleTable,
    apply_rules,
    needed_inside,
    replace_match,
    writers_of,
)
from ctk.compiler.patterns.trace_cache import TraceCache
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import tracing

BEFORE = (remove_noops.PASS, eliminate_common_subexpressions.PASS, simplify_views.PASS)
SYM_SIZE = torch.ops.aten.sym_size.int
_FOUND = "attention"


@dataclass(frozen=True, slots=True)
class Site:
    """Attention in a graph, with the call that replaces it.

    Attributes:
        operands: The nodes of `q`, `k`, `v`, of masks, and in training of the gradient of the
            result: each the origin of the operand of a product.
        is_swapped: Whether the operand `k` has rows and columns swapped.
        exits: The results and gradients: the name of each, and the last of its views.
    """

    call: Call
    operands: tuple[Node, ...]
    sizes: Mapping[str, Any]
    is_swapped: bool
    exits: tuple[tuple[str, Exit], ...]

    def match(self) -> Match:
        """Return the nodes that the call replaces."""
        outputs = tuple(leave.node for _, leave in self.exits)
        inner = [node for node in inside(outputs, self.operands) if node not in outputs]
        return Match(outputs[0], tuple(inner), {}, outputs)

    def with_gradients_of_masks(self, of_sums: Sequence[Node]) -> "Site":
        """Return the site with the gradients of sums as results, where other nodes need them."""
        covered = {*self.match().covered}
        needed = (n for n in covered if any(user not in covered for user in n.users))
        origins = {origin_of(node) for node in of_sums}
        found = [
            ("sum", Exit(node, (tuple(sizes_of(node)),), node.meta["val"].dtype))
            for node in sorted(needed)
            if origin_of(node) in origins
        ]
        return replace(self, exits=(*self.exits, *found))

    def compute(self, *operands: Tensor) -> list[Tensor]:
        """Return the results of the call in the layouts of the graph."""
        m, n, d, e = (self.sizes[name] for name in "mnde")
        q, k, v, *rest = operands
        k = reshape(k, (*self.call.lead, *((d, n) if self.is_swapped else (n, d))))
        k = k.transpose(-2, -1) if self.is_swapped else k
        q, v = reshape(q, (*self.call.lead, m, d)), reshape(v, (*self.call.lead, n, e))
        q, k, v = map(_with_dense_rows, (q, k, v))
        if len(self.exits) == 1:
            found: dict[str, Tensor] = {"out": self.call.forward(q, k, v, *rest)}
        else:
            of_out = reshape(rest.pop(), (*self.call.lead, m, e))
            results = self.call.gradients(of_out, q, k, v, *rest)
            found = dict(zip(("out", "q", "k", "v", "sum"), results, strict=False))
            found["k"] = found["k"].transpose(-2, -1)
        return [leave.of(found[name]) for name, leave in self.exits]

    def trace(self) -> GraphModule:
        """Trace the call with operands like the nodes."""
        mode = fake.mode_of([value_of(node) for node in self.operands])
        tensors = [cast("Tensor", tensor_of(node)) for node in self.operands]
        module = fwd_only(self.compute, [tracing.fake_like(each, mode) for each in tensors])
        if len(self.exits) > 1:
            _take_sizes_from_operands(module)
        module.graph.eliminate_dead_code()
        run_stage(module, "joint", BEFORE, Numbering())
        module.graph.eliminate_dead_code()
        return module


def _take_sizes_from_operands(module: GraphModule) -> None:
    """Read no size off the gradient of the result: the forward graph does not have it."""
    *operands, of_out = module.graph.find_nodes(op="placeholder")
    places = [(node, dim) for node in operands for dim in range(len(sizes_of(node)))]
    for node in module.graph.find_nodes(op="call_function", target=SYM_SIZE):
        same = (
            (each, dim) for each, dim in places if str(sizes_of(each)[dim]) == str(value_of(node))
        )
        if node.args[0] is of_out:
            node.args = next(same, node.args)


def _with_dense_rows(operand: Tensor) -> Tensor:
    """Return an operand in a layout that the kernels take: its last dimension innermost."""
    is_dense = type(operand.stride(-1)) is int and operand.stride(-1) == 1
    return operand if is_dense else operand.contiguous()


def _site(softmax: Node, *, training: bool, draws_otherwise: bool) -> Site | str:
    """Return the attention with the weights of a softmax, or why it is not replaced."""
    attention = read_attention(softmax)
    if isinstance(attention, str):
        return attention
    if attention.dropout is not None and not draws_otherwise:
        return (
            "dropout in a kernel draws other random numbers than eager does; "
            "fuse_attention.draws_otherwise=True allows it"
        )
    call = call_of(attention)
    if isinstance(call, str):
        return call
    gradients = read_gradients(attention) if training else None
    if isinstance(gradients, str):
        return gradients
    results = {"out": attention.out, **(gradients.results if gradients is not None else {})}
    q, k, v = attention.operands
    key = origin_of_swapped(k)
    operands = [origin_of(q), key or origin_of(k), origin_of(v), *attention.masks]
    if gradients is not None:
        operands.append(origin_of(gradients.of_out))
    sizes = dict(zip("mdne", (*sizes_of(q)[1:], *sizes_of(v)[1:]), strict=True))
    empty = next((node for node in (q, k, v) if any(size == 0 for size in _known(node))), None)
    if empty is not None:
        return f"{empty} is empty"
    exits = tuple((name, exit_of(node)) for name, node in results.items())
    site = Site(call, tuple(operands), sizes, key is None, exits)
    is_sum = all(step.kind != "fill" for step in attention.steps) and gradients is not None
    return site.with_gradients_of_masks(gradients.of_sums) if is_sum and gradients else site


def _known(node: Node) -> list[int]:
    return [size for size in sizes_of(node) if type(size) is int]


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule in inference, or in training: its guard and its handler."""

    training: bool
    softmax: object
    draws_otherwise: bool
    traces: TraceCache[GraphModule] = field(default_factory=TraceCache[GraphModule])

    @property
    def name(self) -> str:
        kind = "safe_attention" if self.softmax is SAFE_SOFTMAX else "attention"
        return f"{kind}_{'training' if self.training else 'inference'}"

    def rule(self) -> HandlerRule:
        """Return the rule as data."""
        pattern = Op(self.softmax, (Var("scores"), Var("dim"), ANY))
        return HandlerRule(self.name, pattern, self.replace, self.refuse)

    def refuse(self, match: Match) -> str | None:
        """Return why attention with the weights of a softmax is not replaced."""
        site = _site(match.root, training=self.training, draws_otherwise=self.draws_otherwise)
        if isinstance(site, str):
            return site
        found = site.match()
        reason = needed_inside(found, writers_of(match.root.graph))
        if reason:
            return reason
        try:
            module = self.traces.get(site.operands, _scalars(site), site.trace)
        except Exception as error:
            return f"it cannot be traced with these operands: {first_line(error)}"
        match.notes[_FOUND] = site, found, module
        return _is_fused(module) or unfit(module, site.operands, found.outputs)

    def replace(self, rewriter: Rewriter, match: Match) -> None:
        """Make the rewrite of a match that is not refused."""
        site, found, module = cast("tuple[Site, Match, GraphModule]", match.notes[_FOUND])
        replace_match(
            rewriter, self.name, found, lambda: insert_graph(rewriter, module, site.operands, found)
        )


def _scalars(site: Site) -> list[object]:
    moves = [(name, leave.moves) for name, leave in site.exits]
    return [site.call, dict(site.sizes), site.is_swapped, moves]


def _is_fused(module: GraphModule) -> str | None:
    if any("_scaled_dot_product_" in str(node.target) for node in module.graph.nodes):
        return None
    return "torch has no fused kernel for these operands"


def _table(*, draws_otherwise: bool) -> RuleTable:
    kinds = itertools.product((True, False), (SOFTMAX, SAFE_SOFTMAX))
    return RuleTable(*(_Rule(*kind, draws_otherwise).rule() for kind in kinds))


RULES = _table(draws_otherwise=False)
ALL_RULES = _table(draws_otherwise=True)


@dataclass(frozen=True, slots=True)
class FuseAttention(Pass):
    """Replace attention that is written out by the fused kernel for it.

    Attributes:
        draws_otherwise: Also fuse dropout, although the kernels draw other random numbers than
            eager from the same seed.
    """

    name = "fuse_attention"
    numerics = "reassociates"
    draws_otherwise: bool = False

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, ALL_RULES if self.draws_otherwise else RULES)


PASS = FuseAttention()
