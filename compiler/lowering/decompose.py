"""Decompose an operator without a lowering: torch's decomposition of one node, part by part.

    aten.reflection_pad1d(x, [1, 1])   ->   arange, sub, abs, ..., index     each becomes kernels

The decomposition runs on the recorded (fake) values of the node's operands, and every operator that
it calls is lowered on the spot; one without a lowering is decomposed in turn. All kernels originate
from the node. Between them floats of 16 bits stay in float32, as in the one kernel that eager has.
A part without a kernel, or a decision about a size that only the call knows, leaves the whole node
to the library.

Never decomposed: the operators of `LIBRARY`, and those with a reason in `KEPT` of
`decomposition_table.py`.

Source: Inductor decomposes while it traces, the whole graph at once. Here it is the last resort for
one node, so that each node can be compared with eager's kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ctk.compiler.dispatch.decomposition_table import KEPT
from ctk.compiler.fx.operator_facts import UNDECLARED_VIEWS
from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.arrays import Array, compute_type
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.draft import view_within
from ctk.compiler.lowering.ir import View
from ctk.compiler.lowering.operators import LOWERINGS
from ctk.compiler.lowering.quantized import QUANTIZED
from ctk.compiler.sizes.size_guards import NotLowered, size_of
from ctk.compiler.torch_compat.aot import decompositions
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import tree_map
from ctk.compiler.torch_compat.fx.operators import declared_by

aten = torch.ops.aten

LIBRARY = frozenset((
    aten._addmm_activation.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._unsafe_view.default, aten.addmm.default, aten.addmm.dtype, aten.addmv.default,
    aten.baddbmm.default, aten.baddbmm.dtype, aten.dot.default, aten.empty_like.default,
    aten.empty_strided.default, aten.gru.data, aten.gru.input, aten.lstm.data, aten.lstm.input,
    aten.mv.default, aten.new_empty.default, aten.new_empty_strided.default, aten.vdot.default,
))  # fmt: skip
"""Operators that the library computes better."""


def decompose(builder: Builder, node: Node) -> tuple[View | None, ...]:
    """Add the kernels of a node's decomposition, and return where its results are.

    Raises:
        NotLowered: It has none, or a part of it has no lowering.
    """
    function = decomposition_of(node.target)
    if function is None or node.target in LIBRARY:
        raise NotLowered("it has no lowering")
    parts = _Parts(builder, node)
    mode = fake.mode_of([value_of(operand) for operand in node.all_input_nodes])
    if mode is None:
        raise NotLowered("it has no lowering, and no operand to decompose it with")
    args, kwargs = parts.operands(node)
    try:
        with fake.guards_refused(mode), fake.intercept_ops(parts.call):
            results = function(*args, **kwargs)
    except NotLowered as error:
        raise NotLowered(
            f"it has no lowering, nor has a part of its decomposition: {error}"
        ) from error
    except Exception as error:  # of torch: a decomposition refuses, or asks for a guard
        raise NotLowered(f"it has no lowering, and torch cannot decompose it: {error}") from error
    listed = results if isinstance(results, (list, tuple)) else (results,)
    return tuple(parts.view_of(each) if isinstance(each, Tensor) else None for each in listed)


def decomposition_of(operator: Any) -> Callable[..., Any] | None:
    """Return the decomposition of an operator, if it is used."""
    function = decompositions.registry().get(operator) or QUANTIZED.get(str(operator))
    if function is None or any(holds(operator) for holds in KEPT.values()):
        return None
    return function


class _Parts:
    """The values of a decomposition as it runs."""

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder = builder
        self.node = node
        self._views: dict[int, tuple[Tensor, View]] = {}  # tensors, so that no id is taken again
        self._at_work: list[object] = [node.target]

    def operands(self, node: Node) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the recorded values of the node's operands, known as their memory."""
        for operand in node.all_input_nodes:
            value = value_of(operand)
            if isinstance(value, Tensor):
                if operand.name not in self.builder.draft.views or not fake.is_fake(value):
                    raise NotLowered(
                        f"its operand {operand.name} is memory that kernels do not read"
                    )
                self._views[id(value)] = value, self.builder.draft.views[operand.name]
        return tree_map(value_of, (node.args, node.kwargs))

    def view_of(self, tensor: Tensor) -> View:
        """Return where a tensor of the decomposition is."""
        known = self._views.get(id(tensor))
        if known is None:
            raise NotLowered("a tensor that is not an operand")
        return known[1]

    def call(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Lower a call, and return its fake result."""
        if _is_question(operator):
            return operator(*args, **kwargs)
        lowering = LOWERINGS.get(operator)
        if lowering is None and not _is_view(operator):
            return self._taken_apart(operator, args, kwargs)
        result = operator(*args, **kwargs)
        if _is_view(operator):
            self._add_views(result, args)
        else:
            assert lowering is not None
            self._add_kernels(operator, lowering, args, kwargs, result)
        return result

    def _taken_apart(self, operator: Any, args: Any, kwargs: Any) -> object:
        function = decomposition_of(operator)
        if function is None or operator in LIBRARY or operator in self._at_work:
            raise NotLowered(str(operator))
        self._at_work.append(operator)
        with fake.intercept_ops(self.call):
            result = function(*args, **kwargs)
        self._at_work.pop()
        return result

    def _add_views(self, result: object, args: tuple[Any, ...]) -> None:
        source = args[0]
        known = self.view_of(source)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if not isinstance(each, Tensor) or each.dtype != source.dtype:
                raise NotLowered("a view of other types")
            self._views[id(each)] = each, view_within(known, source, each)

    def _add_kernels(
        self, operator: Any, lowering: Callable[..., Any], args: Any, kwargs: Any, result: Any
    ) -> None:
        builder = self.builder
        builder.part = result
        try:
            made = lowering(
                builder, *tree_map(self._operand, args), **tree_map(self._operand, kwargs)
            )
        finally:
            builder.part = None
        for array, tensor in _pairs(made, result):
            name = builder.draft.unique(f"{builder.origin}.{operator.overloadpacket.__name__}")
            view = builder.place(name, array, tensor, compute_type(tensor.dtype))
            self._views[id(tensor)] = tensor, view

    def _operand(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.builder.read(self.view_of(value))
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise NotLowered("a number that is known at the call only")
        return size_of(value) if isinstance(value, torch.SymInt) else value


def _is_question(operator: Any) -> bool:
    return operator.namespace == "prim" or operator.__name__.startswith("sym_")


def _is_view(operator: Any) -> bool:
    declared = declared_by(operator)
    views = declared is not None and declared.views and not declared.writes
    return views or operator in UNDECLARED_VIEWS


def _pairs(made: object, result: Any) -> Iterator[tuple[Array, Tensor]]:
    if isinstance(made, View):
        raise NotLowered("a part that writes")
    arrays: Any = made if isinstance(made, (list, tuple)) else (made,)
    tensors = result if isinstance(result, (list, tuple)) else (result,)
    for array, tensor in zip(arrays, tensors, strict=True):
        if isinstance(tensor, Tensor):
            if array is None:
                raise NotLowered("a result that no kernel computes")
            yield array, tensor
