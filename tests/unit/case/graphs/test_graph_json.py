"""Graphs as JSON: what comes back is the same graph, and a stranger's JSON reaches nothing else."""

import copy
import json
import math
import operator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch.fx import Graph, GraphModule

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.strict_json import dump_json, parse_json
from ctk.toolkit.case.graphs.callables import module_of_target, target_from_name, target_to_name
from ctk.toolkit.case.graphs.graph_json import (
    constants_of,
    graph_from_json,
    graph_to_json,
)
from ctk.toolkit.case.graphs.python_source import graph_to_python
from ctk.toolkit.case.graphs.value_types import describe_dynamic, symbol_hints
from tests.helpers.case_zoo import Sample, capture, nested_cond, samples

ZOO = "tests.helpers.case_zoo"
SAMPLES = samples()


class Unkept:
    """A class of the user, which FX can print."""

    def __repr__(self) -> str:
        return "None"


def reload(gm: GraphModule, *, trust: bool = False) -> GraphModule:
    data, arrays = graph_to_json(gm)
    return graph_from_json(parse_json(dump_json(data), where="test"), arrays, trust=trust)


def bits(value: torch.Tensor) -> bytes:
    return value.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def leaves_of_run(gm: GraphModule, inputs: tuple[object, ...]) -> list[Any]:
    torch.manual_seed(5)
    return pytree.tree_leaves(gm(*copy.deepcopy(inputs)))


def graph_of(*calls: tuple[str, Any, tuple[Any, ...]]) -> GraphModule:
    """A graph of one input `x`; each call's first argument is the value before it."""
    graph = Graph()
    value = graph.placeholder("x")
    for op, target, rest in calls:
        value = graph.create_node(op, target, (value, *rest))
    graph.output((value,))
    return GraphModule({}, graph)


def malicious(**changes: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON of `relu(x)` with some members of its call replaced."""
    data, arrays = graph_to_json(graph_of(("call_function", torch.relu, ())))
    data = json.loads(dump_json(data))
    data["nodes"][1].update(changes)
    return data, arrays


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_reloaded_graph_is_the_same_and_computes_the_same_bits(sample: Sample) -> None:
    for case in capture(sample.run, *sample.inputs, dynamic=sample.dynamic):
        loaded = reload(case.graph)
        first, second = graph_to_json(case.graph), graph_to_json(loaded)
        assert dump_json(first[0]) == dump_json(second[0])
        assert loaded.code == case.graph.code
        assert describe_dynamic(loaded) == describe_dynamic(case.graph)
        for one, other in zip(
            leaves_of_run(case.graph, case.inputs),
            leaves_of_run(loaded, case.inputs),
            strict=True,
        ):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert bits(one) == bits(other)


def test_nested_conds_keep_the_names_of_their_subgraphs() -> None:
    (case,) = capture(nested_cond, torch.randn(3))
    data, _ = graph_to_json(case.graph)
    assert list(data["subgraphs"]) == ["cond_true_1", "cond_false_1"]
    assert list(data["subgraphs"]["cond_true_1"]["subgraphs"]) == ["cond_true_0", "cond_false_0"]


def test_symbolic_sizes_keep_their_expressions_and_hints() -> None:
    (case,) = capture(lambda x: x.sum() * x.shape[0], torch.randn(4, 8), dynamic=True)
    loaded = reload(case.graph)
    ((name, symbols),) = describe_dynamic(loaded).items()
    hints = symbol_hints(loaded)
    assert name == "l_x_"
    assert [hints[symbol] for symbol in symbols if symbol is not None] == [4, 8]


def test_constants_keep_bits_kind_and_aliases() -> None:
    root = torch.nn.Module()
    shared = torch.arange(8.0)
    root.register_buffer("table", shared)
    root.register_buffer("again", shared)
    root.register_buffer("tail", shared[4:])
    root.inner = torch.nn.Module()
    root.inner.weight = torch.nn.Parameter(torch.randn(8), requires_grad=False)
    graph = Graph()
    names = ("table", "again", "tail", "inner.weight")
    graph.output(tuple(graph.get_attr(name) for name in names))
    loaded = reload(GraphModule(root, graph))
    table, again, tail, weight = loaded()
    assert torch.equal(table, shared)
    assert again is table
    table[5] = -1
    assert tail[1] == -1
    assert isinstance(weight, torch.nn.Parameter)
    assert not weight.requires_grad
    assert list(constants_of(loaded)) == list(names)
    assert "table" in dict(loaded.named_buffers())


ARGUMENTS: list[object] = [
    *(None, True, 3, -0.0, float("inf"), float("nan"), 1e-320, 2 - 3j, complex(0, float("nan"))),
    *("text \n \"'", ..., slice(None, 3), slice(1, None, 2), range(2, 9, 3)),
    *(torch.float8_e5m2, torch.device("cuda:1"), torch.channels_last, torch.strided),
    *(torch.Size([2, 3]), (1, (2.5, [None])), {"a": [1], "b": {"c": torch.int8}}, 2**80),
]


@pytest.mark.parametrize("value", ARGUMENTS, ids=repr)
def test_argument_values_come_back_exactly(value: object) -> None:
    gm = graph_of(("call_function", torch.relu, (value,)))
    node = next(node for node in reload(gm, trust=True).graph.nodes if node.op == "call_function")
    back = node.args[1]
    assert type(back) is type(list(gm.graph.nodes)[1].args[1])
    assert repr(back) == repr(list(gm.graph.nodes)[1].args[1])  # repr tells -0.0 and NaN apart


def test_nodes_keyword_arguments_and_their_order_come_back() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=2.0)
    out = graph.call_function(torch.add, (x,), {"other": y, "alpha": 3})
    graph.output({"sum": out, "rest": [x, (y,)]})
    loaded = reload(GraphModule({}, graph))
    call = list(loaded.graph.nodes)[2]
    assert list(call.kwargs) == ["other", "alpha"]
    result = loaded(torch.ones(2))
    assert result["sum"].tolist() == [7.0, 7.0]
    assert result["rest"][1] == (2.0,)


def test_names_of_builtins_are_kept() -> None:
    graph = Graph()
    first = graph.placeholder("input")
    first.name = "input"
    second = graph.call_method("sum", (first,))
    second.name = "sum"
    third = graph.call_function(sum, ((second, second),))
    third.name = "slice"
    last = graph.call_function(operator.getitem, (first, slice(0, 1)))
    graph.output((last, third, graph.call_function(torch.add, (third, float("inf")))))
    gm = GraphModule({}, graph)
    loaded = reload(gm)
    assert [node.name for node in loaded.graph.nodes] == [node.name for node in graph.nodes]
    x = torch.arange(3.0)
    scope: dict[str, Any] = {}
    exec(graph_to_python(loaded), scope)
    assert repr(scope["Graph"]({})(x)) == repr((x[:1], torch.tensor(6.0), torch.tensor(math.inf)))


def test_no_variable_hides_the_module_of_a_function() -> None:
    graph = Graph()
    x = graph.placeholder("tests")
    graph.output(graph.call_function(target_from_name(f"{ZOO}:loop", allow_imports=[ZOO]), (x,)))
    text = graph_to_python(GraphModule({}, graph))
    assert "def forward(self, tests_)" in text and f"{ZOO}.loop(tests_)" in text


def test_a_graph_traced_from_a_lambda_comes_back() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    assert reload(gm)(1) == 2


@pytest.mark.parametrize(
    ("gm", "words"),
    [
        (graph_of(("call_function", torch.relu, (Unkept(),))), ["relu", "argument 1", "Unkept"]),
        (graph_of(("call_function", torch.load, ())), ["load", "cannot be kept"]),
        (graph_of(("call_function", lambda x: x, ())), ["lambda", "custom_op"]),
        (graph_of(("call_method", "map_", ())), ["map_", "not allowed in a graph"]),
        (graph_of(("call_function", getattr, ("__class__",))), ["__class__", "getattr"]),
    ],
    ids=["value", "torch.load", "lambda", "method", "getattr"],
)
def test_what_cannot_be_kept_is_named_with_its_node(gm: GraphModule, words: list[str]) -> None:
    with pytest.raises(CaseError) as caught:
        graph_to_json(gm)
    for word in words:
        assert word in str(caught.value)


def test_a_leaf_module_says_how_to_capture() -> None:
    gm = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(CaseError, match=r"Linear.*torch\.compile or torch\.export"):
        graph_to_json(gm)


FORBIDDEN = [
    *("os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "builtins.open"),
    *("torch.load", "torch.hub.load", "torch.serialization.load", "torch.from_file"),
    *("torch.ops.load_library", "torch.ops.aten.save", "torch.ops.aten.save.default"),
    *("torch.ops.aten.from_file.default", "torch.ops.higher_order.inline_asm_elementwise"),
    *("torch.ops.aten.add.__class__", "torch.ops.__class__.mro", "operator.attrgetter"),
    *("operator.call", "operator.methodcaller", "torch._from_blob", "torch.frombuffer"),
    *("torch.ops.higher_order.triton_kernel_wrapper_mutation", "torch.ops.nobody.op.default"),
    *("torch.nn.functional.boolean_dispatch", "torch.utils.cpp_extension.load", "", "torch.ops."),
]


@pytest.mark.parametrize("name", [*FORBIDDEN, "os:system", "subprocess:run", "a:b:c"])
def test_a_strangers_graph_cannot_name_a_function_that_is_not_listed(name: str) -> None:
    data, arrays = malicious(target=name)
    with pytest.raises(CaseError, match="relu"):
        graph_from_json(data, arrays)


def test_a_module_is_allowed_by_name_and_only_for_its_own_functions() -> None:
    with pytest.raises(CaseError, match="of its own"):
        target_from_name(f"{ZOO}:checkpoint", allow_imports=[ZOO])
    assert target_from_name(f"{ZOO}:loop", allow_imports=[ZOO])
    assert module_of_target(f"{ZOO}:loop") == ZOO


INJECTIONS: list[dict[str, object]] = [
    {"name": "x; import os"},
    {"name": "relu\nimport os"},
    {"name": "import"},
    {"name": "torch"},  # would hide the module in FX's program
    {"name": "x"},  # twice
    {"op": "call_method", "target": "relu(); import os; x"},
    {"op": "call_method", "target": "__reduce_ex__"},
    {"op": "call_method", "target": "__class__"},
    {"op": "get_attr", "target": "forward"},
    {"op": "get_attr", "target": "a; import os"},
    {"op": "get_attr", "target": "__class__"},
    {"op": "placeholder", "target": "y=__import__('os')"},
    {"op": "exec"},
    {"kwargs": {"y=1); import os; f(": 1}},
    {"kwargs": {"class": 1}},
    {"args": [{"node": "later"}]},
    {"args": [{"dtype": "load"}]},
    {"args": [{"device": "x:y"}]},
    {"args": [{"memory_format": "__class__"}]},
    {"args": [{"pickle": "gASV"}]},
    {"args": [{"dict": [[[], 1]]}]},
    {"args": [{"range": [0, 1, 0]}]},
    {"args": [{"tuple": 3}]},
    {"args": [{}]},
    {"args": {"node": "x"}},
    {"target": None},
    {"value": {"shape": [1], "dtype": "float32", "device": "cpu\nimport os"}},
    {"value": {"symbol": "s0\nimport os", "hint": 1}},
    {"value": {"shape": ["1\nimport os"], "dtype": "float32", "device": "cpu"}},
    {"value": {"shape": [1], "dtype": "load", "device": "cpu"}},
]


@pytest.mark.parametrize("changes", INJECTIONS, ids=str)
def test_nothing_of_a_strangers_graph_becomes_code(changes: dict[str, object]) -> None:
    data, arrays = malicious(**changes)
    with pytest.raises(CaseError):
        graph_from_json(data, arrays)


WRONG_TYPES: list[tuple[str, object]] = [
    (key, value)
    for key in ("subgraphs", "values", "constants", "nodes", "class")
    for value in (None, 3, [3], "no name")
]


@pytest.mark.parametrize(("key", "value"), [*WRONG_TYPES, ("nodes", []), ("class", {})])
def test_members_of_wrong_type_are_case_errors(key: str, value: object) -> None:
    data, arrays = malicious()
    with pytest.raises(CaseError, match=r"graph|constant"):
        graph_from_json({**data, key: value}, arrays)


@pytest.mark.parametrize("key", ["subgraphs", "values", "constants", "nodes", "class"])
def test_a_missing_member_is_a_case_error(key: str) -> None:
    data, arrays = malicious()
    del data[key]
    with pytest.raises(CaseError, match=f"{key!r} is missing"):
        graph_from_json(data, arrays)


def test_deep_nesting_is_a_case_error() -> None:
    data, arrays = malicious()
    nested: object = 1
    for _ in range(100_000):
        nested = [nested]
    data["nodes"][1]["args"] = [nested]
    with pytest.raises(CaseError, match="nested"):
        graph_from_json(data, arrays)


def test_names_of_functions_are_found_again() -> None:
    functions = [
        *(torch.relu, torch.zeros, torch.nn.functional.linear, torch.linalg.inv, torch.stft),
        *(torch.ops.aten.add, torch.ops.aten.sym_size.int, torch.ops.prim.device.default),
        *(torch.ops.higher_order.cond, getattr, torch.fft.fft, torch.special.erf),
    ]
    for function in functions:
        assert target_from_name(target_to_name(function)) is function


def test_a_custom_op_names_its_module() -> None:
    @torch.library.custom_op("ctk_case_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    name = target_to_name(torch.ops.ctk_case_test.twice.default)
    assert name == "torch.ops.ctk_case_test.twice.default"
    assert module_of_target(name) == __name__
    assert reload(graph_of(("call_function", torch.ops.ctk_case_test.twice.default, ())))(
        torch.ones(1)
    )[0].tolist() == [2.0]
