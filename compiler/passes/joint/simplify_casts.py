"""Cast once where a chain of casts has the bits of one cast. All exact.

Rule: `cast(cast(x, b), c) -> cast(x, c)`, or `x` where `c` is its dtype. A cast is `_to_copy` or
`convert_element_type` that changes the dtype and nothing else. With `a` for the dtype of `x`:
    1. `b` has every number of `a`, and `c` is a float, complex, or has every number of `a` as well:
       bfloat16 -> float32 -> bfloat16, uint8 -> float32 -> int32, bool -> int64 -> float16;
    2. integers wrap around: `b` has the bits of `c` or more: int64 -> int32 -> int16;
    3. float64 -> float32 -> 16 bits on a CPU, where eager casts float64 to 16 bits in two steps.
Preconditions: nothing writes to `x` between the casts, and one cast has the strides of two. `x`
itself is taken if that is unobservable, else a copy of it.
float32 -> bfloat16 -> float32 stays: it rounds. So does a float that becomes an integer: beyond its
range the result depends on the kernel.

Source: Inductor's `pointless_convert`, which drops every step down between floats, with its
rounding, unless `emulate_precision_casts` is set, and no integers.
"""

from collections.abc import Callable, Container
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import CASTS
from ctk.compiler.fx.properties import base_of, escapes, is_written_between, mutated_bases
from ctk.compiler.fx.types import HALVES, same_layout, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_INTEGERS = frozenset(
    {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)


class SimplifyCasts(Pass):
    """Cast once where a chain of casts has the bits of one cast."""

    name = "simplify_casts"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            inner = _cast_operand(node)
            source = _cast_operand(inner) if inner is not None else None
            if inner is None or source is None or is_written_between(inner, node):
                continue
            if not _is_one_cast(source, inner, node):
                continue
            make = _replacement(rewriter, node, source, written)
            if make is not None:
                rewriter.replace_by("cast(cast(x)) -> cast(x)", [node, inner], make)


def _cast_operand(node: Node) -> Node | None:
    """Return the operand of a node that changes the dtype of a tensor only."""
    source = node.args[0] if node.target in CASTS and node.args else None
    mine, others = tensor_of(node), tensor_of(source)
    if not isinstance(source, Node) or mine is None or others is None:
        return None
    form = arguments.argument_of(node.target, node.args, node.kwargs, "memory_format")
    is_plain = form in (None, torch.preserve_format) and mine.device == others.device
    return source if is_plain and mine.layout is others.layout is torch.strided else None


def _is_one_cast(source: Node, inner: Node, outer: Node) -> bool:
    x, between, result = tensor_of(source), tensor_of(inner), tensor_of(outer)
    assert x is not None  # each is a cast or the operand of one
    assert between is not None
    assert result is not None
    a, b, c = x.dtype, between.dtype, result.dtype
    if x.is_conj() or x.is_neg():
        return False
    if holds_all(b, a):
        is_int = _kind(c) == "int" and _kind(b) != "int"
        return c.is_complex or (not b.is_complex and (not is_int or holds_all(c, a)))
    if _kind(a) == _kind(b) == _kind(c) == "int":
        return c.itemsize <= b.itemsize
    is_narrowed = (a, b) == (torch.float64, torch.float32) and c in HALVES
    return is_narrowed and x.device.type == "cpu"


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "int" if dtype in _INTEGERS else "other"


@cache
def holds_all(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Return whether every number of a dtype is one of another dtype."""
    if wide == narrow:
        return True
    kinds = (_kind(wide), "int" if narrow is torch.bool else _kind(narrow))
    match kinds:
        case "complex", "float" | "int" | "complex":
            return holds_all(wide.to_real(), narrow.to_real() if narrow.is_complex else narrow)
        case "float", "float" | "int" if wide.itemsize == 1:
            return False  # one has no zero, some have no infinity
        case "float", "float":
            return _has_floats(torch.finfo(wide), torch.finfo(narrow))
        case "float", "int":
            return max(map(abs, _range(narrow))) <= 2 / torch.finfo(wide).eps
        case "int", "int":
            mine, others = _range(wide), _range(narrow)
            return mine[0] <= others[0] and others[1] <= mine[1]
        case _:
            return False


def _range(dtype: torch.dtype) -> tuple[int, int]:
    if dtype is torch.bool:
        return 0, 1
    integers = torch.iinfo(dtype)
    return integers.min, integers.max


def _has_floats(wide: torch.finfo, narrow: torch.finfo) -> bool:
    """Compare the precision, the largest and the smallest number."""
    smallest = wide.tiny * wide.eps <= narrow.tiny * narrow.eps
    return wide.eps <= narrow.eps and wide.max >= narrow.max and smallest


def _replacement(
    rewriter: Rewriter, node: Node, source: Node, written: Container[Node]
) -> Callable[[], Node] | None:
    """Return a function that makes one cast; None if its strides differ from those of two."""
    if same_layout(node, source):
        if not escapes(node) and base_of(source) not in written:
            return lambda: source
        return lambda: rewriter.insert(aten.clone.default, (source,), before=node)
    x = tensor_of(source)
    args, kwargs = node.args[1:], node.kwargs
    mode = fake.mode_of([x])
    target: Any = node.target
    found = fake.run_without_guards(mode, lambda: target(x, *args, **kwargs))
    if not same_layout(node, found):
        return None
    return lambda: rewriter.insert(target, (source, *args), kwargs, before=node)


def examples() -> list[Example]:
    """Return programs that the pass changes, for each rule."""
    x, y = torch.ones(4, 3), torch.ones(4, 3, dtype=torch.int64)
    return [
        (lambda x: x.bfloat16().float().to(torch.bfloat16).sin(), (x,)),
        (lambda x: x.half().float().half(), (x,)),
        (lambda x: x.half().t().float().double().sin(), (x,)),
        (lambda x: x.to(torch.uint8).float().to(torch.int32) + 1, (x,)),
        (lambda y: (y > 0).to(torch.int64).to(torch.float16), (y,)),
        (lambda y: y.to(torch.int32).to(torch.int16) + 1, (y,)),
        (lambda x: x.double().float().bfloat16() + 1, (x,)),
        (lambda x: x.to(torch.complex64).to(torch.complex128).abs(), (x,)),
    ]


PASS = SimplifyCasts()
