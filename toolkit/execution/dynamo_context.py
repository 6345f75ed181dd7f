"""Hand a captured graph to a backend as Dynamo does: inputs, symbols, metadata, tracing context.

A target that is called outside of Dynamo needs the same inputs to fail in the same way: real
tensors, a SymInt for each symbolic size, `example_value` on the nodes, and a tracing context from
which AOTAutograd takes the fake mode. Loading a case and editing its graph both lose or outdate
that metadata; so it is always recomputed here.
"""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.process.process_state import compile_session, process_state_kept
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import layout_symbols, symbol_of

KEY = "example_value"
"""The metadata key under which Dynamo stores the fake value of a node."""


@contextlib.contextmanager
def dynamo_context(
    case: Case, gm: GraphModule, inputs: Sequence[object], unbacked: fake.Unbacked
) -> Generator[tuple[object, ...], None, None]:
    """Yield the example inputs for a backend's call; the body must make that call.

    Args:
        case: Has the symbolic sizes.
        gm: A private copy of its graph; the metadata of its nodes is replaced.
        inputs: Real inputs, one per placeholder. A compiler may run the program on them.
        unbacked: The allowed unbacked symbols, besides the symbols that the graph itself needs.

    Raises:
        CaseError: `case.dynamic` does not fit the inputs, or an input has no fake form outside of
            Dynamo.
    """
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    _check_have_fakes(names, inputs)
    symbols = size_symbols(gm, inputs, case.dynamic)
    layouts = layout_symbols(gm, inputs, case.dynamic)
    made = fake.symbolic_inputs(inputs, names, symbols, layouts, unbacked)
    refusal = _annotate(gm, made)
    if isinstance(refusal, dynamo.fallbacks()) and unbacked != fake.Unbacked():
        # It was captured with them.
        made = fake.symbolic_inputs(inputs, names, symbols, layouts, fake.Unbacked())
        _annotate(gm, made)
    with made.tracing(), compile_session():
        yield made.example_inputs


def _check_have_fakes(names: Sequence[str], inputs: Sequence[object]) -> None:
    """Refuse nested tensors (only Dynamo knows the symbols of ragged sizes) and quantized ones."""
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor) and (value.is_nested or value.is_quantized):
            kind = "nested" if value.is_nested else "quantized"
            raise CaseError(
                f"input {name} is a {kind} tensor: a compiler takes this graph from Dynamo only; "
                "ctk compares the calls of its program instead"
            )


def size_symbols(
    gm: GraphModule, inputs: Sequence[object], dynamic: Mapping[str, tuple[str | None, ...]]
) -> dict[str, tuple[str | None, ...]]:
    """Return the symbols of each placeholder: one per dimension, or a single one for a size.

    An int is a symbolic size if its node has Dynamo's type or metadata of one, if it has the name
    of a symbol of `dynamic`, or if other sizes are symbolic: in such a graph Dynamo writes fixed
    ints as constants.

    Raises:
        CaseError: A symbol count differs from the number of dimensions, or a symbol has two sizes.
    """
    hints: dict[str, tuple[int, str]] = {}
    symbols: dict[str, tuple[str | None, ...]] = {}
    known = frozenset(name for names in dynamic.values() for name in names if name)
    nodes = gm.graph.find_nodes(op="placeholder")
    for node, value in zip(nodes, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            names = dynamic.get(node.name, ())
            _check_rank(node, value, names)
            sizes = tuple(value.shape)
        elif isinstance(value, int) and not isinstance(value, bool):
            names = _own_symbol(node, known=known, is_needed=bool(dynamic))
            sizes = (value,)
        else:
            continue
        for name, size in zip(names, sizes, strict=False):
            _check_hint(hints, name, size, node.name)
        symbols[node.name] = names
    return symbols


def _own_symbol(node: Node, *, known: frozenset[str], is_needed: bool) -> tuple[str | None, ...]:
    said = node.name if node.name in known else symbol_of(node)
    if said is None and (is_needed or node.type is torch.SymInt):
        said = node.name
    return (said,)


def _check_rank(node: Node, value: torch.Tensor, names: tuple[str | None, ...]) -> None:
    if names and len(names) != value.dim():
        raise CaseError(
            f"Case.dynamic gives {len(names)} symbols for placeholder {node.name}, whose input has"
            f" {value.dim()} dimensions (shape {tuple(value.shape)})"
        )


def _check_hint(hints: dict[str, tuple[int, str]], name: str | None, size: int, where: str) -> None:
    if name is None:
        return
    known, first = hints.setdefault(name, (size, where))
    if known != size:
        raise CaseError(
            f"symbol {name} is {known} for placeholder {first} and {size} for {where};"
            " sizes that share a symbol must be equal (see Case.dynamic)"
        )


def _annotate(gm: GraphModule, made: fake.SymbolicInputs) -> Exception | None:
    """Give each node its fake value, up to the first node that needs real numbers.

    Passes treat a missing `example_value` as unknown.

    Returns:
        The exception of that node, if there is one.
    """
    for node in gm.graph.nodes:
        node.meta.pop(KEY, None)
        node.meta.pop("unbacked_bindings", None)  # symbols of the capture, which `made` lacks
    mode: Any = made.fake_mode
    try:
        with process_state_kept(), mode, fake.unbound_symbols(mode):
            _Annotator(gm, mode).run(*made.fakes, enable_io_processing=False)
    except Exception as error:
        return error
    return None


class _Annotator(Interpreter):
    def __init__(self, gm: GraphModule, mode: Any) -> None:
        super().__init__(gm)
        self._mode = mode

    def fetch_attr(self, target: str) -> object:
        value = super().fetch_attr(target)
        is_real = isinstance(value, torch.Tensor)
        return self._mode.from_tensor(value, static_shapes=True) if is_real else value

    def run_node(self, n: Node) -> object:
        value = super().run_node(n)
        if n.op != "output":
            n.meta[KEY] = value
        return value
