"""Draw random numbers from seeds: one draw from the generator for each call of the graph.

Rules, with `seeds = randint(..., [n])`, made once, and `draw = ctk::draw(seeds, i, ...)`:
    1. rand, randn, randint(...), and their `_like` forms -> draw
    2. bernoulli(x, p), bernoulli(x) -> (draw < p)
    3. native_dropout(x, p, True) -> mask = draw < 1 - p; x * mask * 1 / (1 - p), mask
    4. uniform(x, a, b), normal_functional(x, m, s), exponential(x, l) -> of draw
Each has a number `i` of its own, and so a key of its own. `torch.manual_seed` still determines the
numbers, each call draws new ones, and a draw has no state: backward makes a mask again from the
seeds instead of keeping it, if the partitioner finds that cheaper.

Off unless `enabled`, because the numbers differ from eager's. Comparisons with eager leave it off,
like Inductor's own, so tests check its numbers by statistics (mean, variance, distribution) and the
generator (`philox.py`) by known answers.

Preconditions: the default generator; real numbers, an integer type that holds the bounds; known
bounds and probabilities; no pinned memory; a draw of forward. Left to eager's generator:
`randperm`, `multinomial`, `poisson`, `cauchy`, `geometric`, `log_normal` and draws inside a kernel
(fused attention). The values differ but have the same distribution: see `numerics`.

Source: `torch/_inductor/fx_passes/replace_random.py`, which does `rand`, `randn` and `randint`, has
other operators decomposed to them, and leaves the generator to the code that Inductor writes.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.types import is_dense, tensor_of
from ctk.compiler.partition.roles import inherit_tags, tag_of
from ctk.compiler.passes.joint.philox import DRAW
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LEAST, _MOST = -(2**63), 2**63 - 1

Parts = Node | tuple[Node, ...]


@dataclass(slots=True)
class Drawing:
    """One random operator that is being replaced.

    Attributes:
        rewriter: Puts nodes in, inside an edit.
        node: The operator.
        seeds: The seeds of the graph.
        index: Which of them is its own.
    """

    rewriter: Rewriter
    node: Node
    seeds: Node
    index: int

    def call(self, target: Any, *args: Any, **options: Any) -> Node:
        """Put a call in front of the operator."""
        made = self.rewriter.insert(target, args, options, before=self.node)
        inherit_tags(made, self.node)
        return made

    def draw(self, kind: str, dtype: torch.dtype, *bounds: int) -> Node:
        """Draw numbers of the size and the strides of the result."""
        tensor = _result_of(self.node)
        assert tensor is not None  # the recipe has looked
        options = {} if is_dense(tensor) else {"stride": list(tensor.stride())}
        return self.call(DRAW, self.seeds, self.index, self._size(tensor), kind, dtype,
                         *bounds, **options)  # fmt: skip

    def _size(self, tensor: torch.Tensor) -> list[Any]:
        """Return the size of the result: numbers, and nodes for symbolic sizes."""
        if not any(map(fake.is_symbolic, tensor.shape)):
            return list(tensor.shape)
        given = _argument(self.node, "size")
        if isinstance(given, (list, tuple)):
            return list(given)
        source = self.node.args[0]
        return [
            self.call(aten.sym_size.int, source, axis) if fake.is_symbolic(size) else size
            for axis, size in enumerate(tensor.shape)
        ]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The replacement of a random operator.

    Attributes:
        refuses: Returns why a call must stay; None if it may be replaced.
        make: Inserts the replacement.
    """

    refuses: Callable[[Node, torch.Tensor], str | None]
    make: Callable[[Drawing, torch.Tensor], Parts]


def _argument(node: Node, name: str) -> Any:
    return arguments.argument_of(node.target, node.args, node.kwargs, name)


def _result_of(node: Node) -> torch.Tensor | None:
    """Return the type of a result, of the first if there are two."""
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return first if isinstance(first, torch.Tensor) else None


def _is_float(_: Node, tensor: torch.Tensor) -> str | None:
    return None if tensor.dtype in _FLOATS else f"{tensor.dtype} is not drawn"


def _within(name: str, least: float, most: float) -> Callable[[Node, torch.Tensor], str | None]:
    """Return a check that an argument is a number within bounds, besides the type."""

    def check(node: Node, tensor: torch.Tensor) -> str | None:
        value = _argument(node, name)
        if not isinstance(value, (int, float)) or not least <= value <= most:
            return f"{name} is {value}"
        return _is_float(node, tensor)

    return check


def _are_ordered(node: Node, tensor: torch.Tensor) -> str | None:
    start, end = _argument(node, "from"), _argument(node, "to")
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or start > end:
        return f"the bounds are {start} and {end}"
    return _is_float(node, tensor)


def _bounds(node: Node) -> tuple[Any, Any]:
    low = _argument(node, "low")
    return (0 if low is None else low), _argument(node, "high")


def _are_integers(node: Node, tensor: torch.Tensor) -> str | None:
    low, high = _bounds(node)
    if type(low) is not int or type(high) is not int or not 0 < high - low <= _MOST:
        return f"the bounds are {low} and {high}"
    if tensor.dtype.is_floating_point or tensor.dtype is torch.bool or tensor.dtype.is_complex:
        return f"integers of {tensor.dtype} are not drawn"
    info = torch.iinfo(tensor.dtype)
    fits = info.min <= low and high - 1 <= info.max and info.max <= _MOST
    return None if fits else f"{tensor.dtype} does not hold {low} to {high - 1}"


def _is_training(node: Node, tensor: torch.Tensor) -> str | None:
    if node.args[2:] != (True,):
        return "it is not in training"
    if any(user.target is not operator.getitem for user in node.users):
        return "something takes both of its results"
    if any(not fake.is_symbolic(size) and size == 0 for size in tensor.shape):
        return "it is empty: eager's mask has another type"
    return _within("p", 0, 1)(node, tensor)


def _drop(drawing: Drawing, tensor: torch.Tensor) -> Parts:
    """Multiply as eager's kernel does: by the mask first."""
    x, p = drawing.node.args[:2]
    assert isinstance(p, (int, float))
    mask = drawing.call(aten.lt.Scalar, drawing.draw("uniform", torch.float32), 1.0 - p)
    kept = drawing.call(aten.mul.Tensor, x, mask)
    return drawing.call(aten.mul.Tensor, kept, 0.0 if p == 1 else 1 / (1.0 - p)), mask


def _toss(drawing: Drawing, tensor: torch.Tensor) -> Parts:
    """Compare with one probability, or with one for each element."""
    p = _argument(drawing.node, "p")
    is_one = p is not None
    drawn = drawing.draw("uniform", torch.float32 if is_one else tensor.dtype)
    other = p if is_one else drawing.node.args[0]
    target = aten.lt.Scalar if is_one else aten.lt.Tensor
    return drawing.call(aten._to_copy.default, drawing.call(target, drawn, other),
                        dtype=tensor.dtype)  # fmt: skip


def _scale(drawing: Drawing, drawn: Node, factor: float, more: float) -> Node:
    found = drawn if factor == 1 else drawing.call(aten.mul.Tensor, drawn, factor)
    return found if more == 0 else drawing.call(aten.add.Tensor, found, more)


def _uniform(drawing: Drawing, tensor: torch.Tensor) -> Parts:
    start, end = _argument(drawing.node, "from"), _argument(drawing.node, "to")
    return _scale(drawing, drawing.draw("uniform", tensor.dtype), end - start, start)


def _normal(drawing: Drawing, tensor: torch.Tensor) -> Parts:
    mean, std = _argument(drawing.node, "mean"), _argument(drawing.node, "std")
    return _scale(drawing, drawing.draw("normal", tensor.dtype), std, mean)


def _exponential(drawing: Drawing, tensor: torch.Tensor) -> Parts:
    rate = _argument(drawing.node, "lambd")
    return _scale(drawing, drawing.draw("exponential", tensor.dtype), 1 / rate, 0)


RAND = Recipe(_is_float, lambda drawing, tensor: drawing.draw("uniform", tensor.dtype))
RANDN = Recipe(_is_float, lambda drawing, tensor: drawing.draw("normal", tensor.dtype))
RANDINT = Recipe(
    _are_integers,
    lambda drawing, tensor: drawing.draw("integers", tensor.dtype, *_bounds(drawing.node)),
)
RECIPES: Mapping[object, Recipe] = {
    aten.rand.default: RAND,
    aten.rand_like.default: RAND,
    aten.randn.default: RANDN,
    aten.randn_like.default: RANDN,
    aten.randint.default: RANDINT,
    aten.randint.low: RANDINT,
    aten.randint_like.default: RANDINT,
    aten.randint_like.low_dtype: RANDINT,
    aten.bernoulli.default: Recipe(_is_float, _toss),
    aten.bernoulli.p: Recipe(_within("p", 0, 1), _toss),
    aten.native_dropout.default: Recipe(_is_training, _drop),
    aten.uniform.default: Recipe(_are_ordered, _uniform),
    aten.normal_functional.default: Recipe(_within("std", 0, math.inf), _normal),
    aten.exponential.default: Recipe(_within("lambd", 1e-30, 1e30), _exponential),
}
_FROM_OPERAND = (aten.bernoulli.default, aten.native_dropout.default)
"""Operators whose result is computed from an operand: that has to have its strides."""


@dataclass(frozen=True, slots=True)
class ReplaceRandom(Pass):
    """Draw random numbers from seeds: one draw from the generator for each call of the graph.

    Attributes:
        enabled: Draw so, and other numbers than eager does from the same seed.
    """

    name = "replace_random"
    numerics = "lowers_precision"
    enabled: bool = False

    def run(self, rewriter: Rewriter) -> None:
        if not self.enabled:
            return
        found: dict[torch.device, list[Node]] = {}
        for node in rewriter.nodes():
            tensor = _result_of(node) if node.target in RECIPES else None
            if tensor is None or _is_seed(node):
                continue
            reason = _refusal(node, tensor)
            if reason is None:
                found.setdefault(tensor.device, []).append(node)
            else:
                rewriter.note(f"{node}: left alone: {reason}")
        for nodes in found.values():
            _replace_all(rewriter, nodes)


def _is_seed(node: Node) -> bool:
    return bool(node.users) and all(user.target is DRAW for user in node.users)


def _refusal(node: Node, tensor: torch.Tensor) -> str | None:
    """Return why an operator draws from the generator as before."""
    if tag_of(node) == "is_backward":
        return "it draws in backward, which may run more than once"
    if _argument(node, "generator") is not None or node.kwargs.get("pin_memory"):
        return "it has a generator of its own, or pinned memory"
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return "its result holds no numbers, or not all"
    if any(map(fake.is_symbolic, tensor.shape)) and not is_dense(tensor):
        return "its size is symbolic and its strides are not dense"
    source = tensor_of(node.args[0]) if node.target in _FROM_OPERAND else tensor
    if source is None or list(map(str, source.stride())) != list(map(str, tensor.stride())):
        return "its operand has other strides than its result"
    return RECIPES[node.target].refuses(node, tensor)


def _replace_all(rewriter: Rewriter, nodes: list[Node]) -> None:
    """Replace the draws on one device; the first allowed rewrite makes the seeds.

    Number and positions of the seeds do not depend on vetoes, so neither do the numbers drawn.
    """
    made: list[Node] = []

    def seeds() -> Node:
        if not made:
            tensor = _result_of(nodes[0])
            assert tensor is not None  # it was found by its type
            options = {"dtype": torch.int64, "device": tensor.device}
            args = (_LEAST, _MOST, [len(nodes)])
            made.append(rewriter.insert(aten.randint.low, args, options, before=nodes[0]))
        return made[0]

    for index, node in enumerate(nodes):

        def edit(graph: Graph, node: Node = node, index: int = index) -> None:
            tensor = _result_of(node)
            assert tensor is not None  # likewise
            drawing = Drawing(rewriter, node, seeds(), index)
            _put_in(graph, node, RECIPES[node.target].make(drawing, tensor))

        rewriter.rewrite(f"{node.target} -> draw(seeds)", [node], edit)


def _put_in(graph: Graph, node: Node, parts: Parts) -> None:
    """Replace a result, or each of several results."""
    if isinstance(parts, Node):
        node.replace_all_uses_with(parts)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(parts[int(str(user.args[1]))])
            graph.erase_node(user)
    graph.erase_node(node)


PASS = ReplaceRandom()
