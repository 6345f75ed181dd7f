"""Keep a custom operator whole in a compile: neither its implementation nor its formula is traced.

A compiler traces the autograd formula of a custom operator, and an implementation that is only
composed of other operators. Kept whole, both run at run time, as in eager:

    cube(x)           ->  ctk_whole::call([x])                     calls `cube` on real tensors
    its gradient      ->  ctk_whole::gradients([x], [g])           calls `cube` again, with autograd

The operator is computed once more for its gradient, so it must give equal results for equal
arguments. An operator that writes to arguments or returns views is not kept whole.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.custom_kernels import WHOLE_NAMESPACE
from ctk.compiler.torch_compat.fx.operator_types import OpOverload

_SCHEMAS = (
    "call(Tensor[] tensors, SymInt[] sizes, int number) -> Tensor[]",
    "gradients(Tensor[] tensors, SymInt[] sizes, Tensor?[] tangents, bool[] needed, int number)"
    " -> Tensor[]",
)


def can_keep_whole(operator: OpOverload) -> bool:
    """Return whether an operator returns new tensors only, and writes to no argument."""
    schema = operator._schema
    types = (torch.TensorType.get(), torch.ListType.ofTensors())
    is_new = all(each.type in types for each in schema.returns)
    return is_new and not schema.is_mutable and not operator.is_view


@dataclass(slots=True, eq=False)
class _WholeCall:
    """One call in the graph: the operator, and its arguments without tensors and sizes."""

    operator: OpOverload
    form: Any = None
    leaves: Sequence[Any] = ()
    result_form: Any = None

    def run(self, tensors: Sequence[Tensor], sizes: Sequence[Any]) -> list[Tensor]:
        """Call the operator, and return the tensors of its result."""
        given = iter(tensors), iter(sizes)
        values = [
            next(given[each.kind]) if isinstance(each, _Place) else each for each in self.leaves
        ]
        args, kwargs = graphs.tree_unflatten(values, self.form)
        results, self.result_form = graphs.tree_flatten(self.operator(*args, **kwargs))
        return results


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor (kind 0) or of a symbolic size (kind 1) among the arguments."""

    kind: int


def _place_of(argument: Any) -> Any:
    """Return the place of a tensor or a size; another argument as it is."""
    if isinstance(argument, Tensor):
        return _Place(0)
    return _Place(1) if isinstance(argument, torch.SymInt) else argument


@dataclass(slots=True, eq=False)
class WholeOperators:
    """Makes the functions that stand for custom operators in a graph."""

    _calls: list[_WholeCall] = field(default_factory=list[_WholeCall])

    def function_of(self, operator: OpOverload) -> Callable[..., Any]:
        """Return a function that computes an operator, and that a compiler cannot look into."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            leaves, form = graphs.tree_flatten((args, kwargs))
            number = len(self._calls)
            self._calls.append(_WholeCall(operator, form, [_place_of(each) for each in leaves]))
            sizes = [each for each in leaves if isinstance(each, torch.SymInt)]
            tensors = [each for each in leaves if isinstance(each, Tensor)]
            results = _Whole.apply(number, sizes, *tensors)
            return graphs.tree_unflatten(list(results), self._calls[number].result_form)

        whole.__name__ = f"whole_{operator.name().replace('::', '_').replace('.', '_')}"
        return whole

    def call(self, tensors: Sequence[Tensor], sizes: Sequence[Any], number: int) -> list[Tensor]:
        """Compute the results of a call, in memory of their own."""
        with torch.no_grad():
            return [each.clone() for each in self._calls[number].run(tensors, sizes)]

    def gradients(
        self,
        tensors: Sequence[Tensor],
        sizes: Sequence[Any],
        tangents: Sequence[Tensor | None],
        needed: Sequence[bool],
        number: int,
    ) -> list[Tensor]:
        """Compute the gradients of a call by autograd; zeros where there is none."""
        leaves = [x.detach().requires_grad_(n) for x, n in zip(tensors, needed, strict=True)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        with torch.enable_grad():
            results = self._calls[number].run(leaves, sizes)
            pairs = [
                pair
                for pair in zip(results, tangents, strict=True)
                if pair[0].requires_grad and pair[1] is not None
            ]
            made: Sequence[Tensor | None] = [None] * len(wanted)
            if pairs:
                made = torch.autograd.grad(
                    [result for result, _ in pairs],
                    wanted,
                    [tangent for _, tangent in pairs if tangent is not None],
                    allow_unused=True,
                )
        empty = [torch.zeros_like(leaf, requires_grad=False) for leaf in wanted]
        return [e if g is None else e.copy_(g) for e, g in zip(empty, made, strict=True)]


class _Whole(torch.autograd.Function):
    """Two operators that a compiler cannot look into: one forward, one backward."""

    @staticmethod
    def forward(ctx: Any, number: int, sizes: Sequence[Any], *tensors: Tensor) -> Any:
        ctx.number, ctx.sizes = number, sizes
        ctx.save_for_backward(*tensors)
        results = tuple(_operator("call")(list(tensors), sizes, number))
        exact = [each for each in results if not (each.is_floating_point() or each.is_complex())]
        ctx.mark_non_differentiable(*exact)
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        needed = list(ctx.needs_input_grad[2:])
        tensors = list(ctx.saved_tensors)
        made = iter(_operator("gradients")(tensors, ctx.sizes, list(tangents), needed, ctx.number))
        return None, None, *(next(made) if each else None for each in needed)


def _operator(name: str) -> Callable[..., Any]:
    return getattr(getattr(torch.ops, WHOLE_NAMESPACE), name).default


def _fake_gradients(
    tensors: Sequence[Tensor],
    sizes: Sequence[Any],
    tangents: Sequence[Tensor | None],
    needed: Sequence[bool],
    number: int,
) -> list[Tensor]:
    return [torch.empty_like(x) for x, is_needed in zip(tensors, needed, strict=True) if is_needed]


@contextmanager
def whole_operators() -> Generator[WholeOperators]:
    """Register the two operators until the region ends."""
    library = torch.library.Library(WHOLE_NAMESPACE, "FRAGMENT")
    whole = WholeOperators()
    try:
        for schema in _SCHEMAS:
            library.define(schema)
        library.impl("call", whole.call, "CompositeExplicitAutograd")
        library.impl("gradients", whole.gradients, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{WHOLE_NAMESPACE}::call", whole.call, lib=library)
        torch.library.register_fake(f"{WHOLE_NAMESPACE}::gradients", _fake_gradients, lib=library)
        yield whole
    finally:
        library._destroy()
