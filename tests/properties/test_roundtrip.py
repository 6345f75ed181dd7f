"""Random graphs and tensors: saving and loading changes no bit, and the printed program agrees."""

import copy
import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch.fx import Graph, GraphModule, Node

from ctk.toolkit.case.formats.schema import decode, write_document
from ctk.toolkit.case.formats.strict_json import dump_json, parse_json
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.formats.tensors import keep_all, pack_tensors, unpack_tensors
from ctk.toolkit.case.graphs.graph_json import constants_of, graph_from_json, graph_to_json
from ctk.toolkit.case.graphs.python_source import graph_to_python

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)

UNARY = (torch.sin, torch.relu, torch.nn.functional.gelu, torch.ops.aten.neg.default, abs)
BINARY = (torch.add, torch.mul, torch.maximum, torch.ops.aten.sub.Tensor)
METHODS = ("cos", "clone", "contiguous", "t", "detach", "abs")
NUMBERS = st.one_of(st.floats(width=32), st.integers(-(2**40), 2**40), st.booleans())

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(),
        st.sampled_from([torch.float16, torch.device("cpu"), torch.strided, ...]),
        st.builds(slice, st.none() | st.integers(), st.none() | st.integers()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Equal, with types, -0.0 and NaN told apart."""
    return type(one) is type(other) and repr(one) == repr(other)


@st.composite
def graphs(draw: DrawFn, depth: int = 1) -> GraphModule:
    """A graph of square float tensors with constants, keyword arguments and nested conds."""
    root: dict[str, Any] = {}
    graph = Graph()
    values: list[Node] = [graph.placeholder(f"in_{index}") for index in range(2)]
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["unary", "binary", "method", "constant", "number", "cond"]))
        one, other = (draw(st.sampled_from(values)) for _ in range(2))
        if kind == "unary":
            made = graph.call_function(draw(st.sampled_from(UNARY)), (one,))
        elif kind == "binary":
            made = graph.call_function(draw(st.sampled_from(BINARY)), (one, other))
        elif kind == "method":
            made = graph.call_method(draw(st.sampled_from(METHODS)), (one,))
        elif kind == "number":
            alpha = draw(st.integers(-3, 3))
            made = graph.call_function(
                torch.add, (one, draw(NUMBERS)), {"alpha": alpha} if alpha else {}
            )
        elif kind == "constant" or depth == 0:
            root[f"constant_{number}"] = torch.randn(3, 3, generator=torch.Generator())
            made = graph.get_attr(f"constant_{number}")
        else:
            made = add_cond(graph, root, draw, number, (one, other))
        values.append(made)
    graph.output((values[-1], [draw(st.sampled_from(values))]))
    return GraphModule(root, graph)


def add_cond(
    graph: Graph, root: dict[str, Any], draw: DrawFn, number: int, operands: tuple[Node, Node]
) -> Node:
    branches: list[Node] = []
    for side in ("true", "false"):
        name = f"{side}_{number}"
        root[name] = draw(graphs(depth=0))
        branches.append(graph.get_attr(name))
    above = graph.call_function(torch.gt, (graph.call_method("sum", (operands[0],)), 0))
    both = graph.call_function(torch.ops.higher_order.cond, (above, *branches, operands))
    return graph.call_function(torch.clone, (graph.call_function(operator.getitem, (both, 0)),))


def inputs() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(3, 3, generator=generator) for _ in range(2))


def bits(result: object) -> list[object]:
    leaves: list[Any] = pytree.tree_leaves(result)
    return [
        (leaf.dtype, leaf.contiguous().view(torch.uint8).tolist() if leaf.ndim else leaf.item())
        for leaf in leaves
    ]


def run(module: Any) -> object:
    """Return the bits of the results, or the error of a program that cannot run."""
    try:
        with torch.no_grad():
            return bits(module(*copy.deepcopy(inputs())))
    except (RuntimeError, TypeError, OverflowError, IndexError) as error:
        return type(error)


@given(graphs())
@SETTINGS
def test_a_graph_survives_saving_and_loading(gm: GraphModule) -> None:
    data, arrays = graph_to_json(gm)
    loaded = graph_from_json(parse_json(dump_json(data), where="test"), arrays)
    again, arrays_again = graph_to_json(loaded)
    assert dump_json(again) == dump_json(data)
    assert list(arrays_again) == list(arrays)
    assert [node.name for node in loaded.graph.nodes] == [node.name for node in gm.graph.nodes]
    assert run(loaded) == run(gm)


@given(graphs())
@SETTINGS
def test_the_printed_program_computes_what_the_graph_computes(gm: GraphModule) -> None:
    namespace: dict[str, Any] = {}
    exec(graph_to_python(gm, "Printed"), namespace)
    assert run(namespace["Printed"](constants_of(gm))) == run(gm)


@given(VALUES)
@SETTINGS
def test_any_plain_value_survives(value: Any) -> None:
    graph = Graph()
    graph.output((graph.call_function(torch.tensor, (value,)),))
    gm = GraphModule({}, graph)
    data, _ = graph_to_json(gm)
    loaded = graph_from_json(parse_json(dump_json(data), where="test"), {}, trust=True)
    one, other = (next(iter(each.graph.nodes)).args[0] for each in (gm, loaded))
    assert same(one, other)


DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.complex64,
    torch.int16,
    torch.bool,
    torch.float8_e5m2,
)


@st.composite
def views(draw: DrawFn) -> dict[str, torch.Tensor]:
    """A few views, some of them of the same memory: sliced, transposed, expanded, overlapping."""
    storages = [
        torch.randn(64, generator=torch.Generator().manual_seed(seed)).to(
            draw(st.sampled_from(DTYPES))
        )
        for seed in range(2)
    ]
    found: dict[str, torch.Tensor] = {}
    for number in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        stride = draw(st.lists(st.integers(0, 8), min_size=len(shape), max_size=len(shape)))
        source = storages[draw(st.integers(0, 1))]
        found[f"t{number}"] = source.as_strided(shape, stride, draw(st.integers(0, 12)))
    return found


def raw(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    fresh = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)  # of size 1: stride 1
    return fresh.reshape(-1).view(torch.uint8).tolist()


@given(views())
@SETTINGS
def test_views_survive_with_bits_strides_and_aliases(named: dict[str, torch.Tensor]) -> None:
    packed = pack_tensors(named, keep=keep_all)
    index = decode(TensorIndex, write_document(packed.index), where="test")
    back = unpack_tensors(index, packed.arrays)
    for name, tensor in named.items():
        assert raw(back[name]) == raw(tensor)
        assert back[name].stride() == tensor.stride()
        assert back[name].storage_offset() == tensor.storage_offset()
    pairs = [(a, b) for a in named for b in named if named[a].numel() and named[b].numel()]
    for a, b in pairs:
        apart = named[b].data_ptr() - named[a].data_ptr()
        together = named[a].untyped_storage().data_ptr() == named[b].untyped_storage().data_ptr()
        same_memory = back[a].untyped_storage().data_ptr() == back[b].untyped_storage().data_ptr()
        assert same_memory == together
        assert not together or back[b].data_ptr() - back[a].data_ptr() == apart
