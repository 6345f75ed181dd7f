"""A stranger's `graph.json` reaches no Python, no raw memory and no import."""

import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.errors import CaseError, TrustError
from ctk.compiler.torch_compat.fx import functions, operators
from ctk.compiler.torch_compat.fx.operators import higher_order_op
from ctk.toolkit.case.graphs.callable_places import PLACES
from ctk.toolkit.case.graphs.untrusted_calls import why_refused
from ctk.toolkit.case.store import load_case
from tests.helpers.hostile import Craft, first_call
from tests.helpers.hostile_graphs import calling, changed, graph, identity, load, node, ref

HIGHER = "torch.ops.higher_order."
GETATTR = {"target": "builtins.getattr"}


def reach(mark: Path) -> dict[str, Any]:
    """A graph that walked from `getattr` to `os.system` before callables had places."""
    wrap = f"{HIGHER}wrap"
    return graph(
        node("get_attr", "get", "fn"),
        node("call_function", "method", wrap, ref("get"), ref("x"), "backward"),
        node("call_function", "function", wrap, ref("get"), ref("method"), "__func__"),
        node("call_function", "space", wrap, ref("get"), ref("function"), "__globals__"),
        node("call_function", "own", "operator.getitem", ref("space"), "__builtins__"),
        node("call_function", "load", "operator.getitem", ref("own"), "__import__"),
        node("call_function", "module", wrap, ref("load"), "os"),
        node("call_function", "system", wrap, ref("get"), ref("module"), "system"),
        node("call_function", "done", wrap, ref("system"), f"touch {mark}"),
        values={"fn": GETATTR},
    )


def test_getattr_through_a_higher_order_operator_does_not_reach_the_shell(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(CaseError, match=r"cannot be the function 'builtins\.getattr'"):
        load(reach(mark))(torch.ones(1))
    assert not mark.exists()


SUB = {"body": identity()}
BODY = node("get_attr", "body_1", "body")
COND = f"{HIGHER}cond"

CALLABLES: dict[str, dict[str, Any]] = {
    "a function in values": graph(
        node("get_attr", "f_1", "f"), values={"f": {"target": "torch.relu"}}
    ),
    "an op in values": graph(
        node("get_attr", "f_1", "f"), values={"f": {"target": "torch.ops.aten.add.Tensor"}}
    ),
    "a function in a list in values": graph(node("get_attr", "f_1", "f"), values={"f": [GETATTR]}),
    "a function as an argument": calling("torch.relu", {"target": "torch.relu"}),
    "an op as an argument": calling("torch.relu", {"target": "torch.ops.aten.add.Tensor"}),
    "a function in a tuple": calling("torch.cat", {"tuple": [GETATTR]}),
    "a function in a dict": calling("torch.cat", {"dict": [["a", GETATTR]]}),
    "a function as a key": calling("torch.cat", {"dict": [[GETATTR, 1]]}),
    "a function in a slice": calling(
        "operator.getitem", ref("x"), {"slice": [GETATTR, None, None]}
    ),
    "a function by keyword": calling("builtins.max", ref("x"), kwargs={"key": GETATTR}),
    "a function as a result": graph(node("output", "out", "output", GETATTR))
    | {"nodes": [node("output", "output", "output", GETATTR)]},
    "a function where wrap calls": calling(f"{HIGHER}wrap", GETATTR, ref("x"), "__class__"),
    "an input where wrap calls": calling(f"{HIGHER}wrap", ref("x"), 1),
    "a call's result where wrap calls": graph(
        node("call_function", "f", "builtins.getattr", ref("x"), "shape"),
        node("call_function", "g", f"{HIGHER}wrap", ref("f"), ref("x")),
    ),
    "a string where wrap calls": calling(f"{HIGHER}wrap", "os.system", "true"),
    "an input as a branch": calling(COND, True, ref("x"), ref("x"), {"tuple": [ref("x")]}),
    "an op as a branch": graph(
        BODY,
        node(
            "call_function",
            "c",
            COND,
            True,
            {"target": "torch.ops.aten.sin.default"},
            ref("body_1"),
            {"tuple": [ref("x")]},
        ),
        subgraphs=SUB,
    ),
    "a sub-graph as an operand": graph(
        BODY,
        node("call_function", "c", f"{HIGHER}wrap", ref("body_1"), ref("body_1")),
        subgraphs=SUB,
    ),
    "a sub-graph in getattr": graph(
        BODY, node("call_function", "c", "builtins.getattr", ref("body_1"), "data"), subgraphs=SUB
    ),
    "a sub-graph as a result": graph(BODY, subgraphs=SUB),
    "a method of a sub-graph": graph(
        BODY, node("call_method", "c", "add", ref("body_1"), 1), subgraphs=SUB
    ),
    "a packet where an overload is called": calling(
        f"{HIGHER}out_dtype",
        {"target": "torch.ops.aten.mm"},
        {"dtype": "int32"},
        ref("x"),
        ref("x"),
    ),
    "a function where an op is called": calling(
        f"{HIGHER}with_effects", ref("x"), {"target": "torch.relu"}, ref("x")
    ),
    "a sub-graph where an op is called": graph(
        BODY,
        node("call_function", "c", f"{HIGHER}run_and_save_rng_state", ref("body_1"), ref("x")),
        subgraphs=SUB,
    ),
    "a mask that is no sub-graph": calling(
        f"{HIGHER}flex_attention", ref("x"), ref("x"), ref("x"), ref("x"), {"tuple": [1, ref("x")]}
    ),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_stands_only_where_an_operator_takes_one(name: str) -> None:
    with pytest.raises(CaseError, match="graph"):
        load(CALLABLES[name])


TAKERS = sorted(n for n, places in PLACES.items() if places and higher_order_op(n) is not None)


@pytest.mark.parametrize("name", TAKERS)
def test_no_place_of_a_higher_order_operator_takes_what_is_no_callable(name: str) -> None:
    count = max(place.index for place in PLACES[name]) + 1
    with pytest.raises(CaseError, match=r"calls (a sub-graph|an operator overload) there"):
        load(calling(HIGHER + name, *[ref("x")] * count))


UNLISTED = (
    *("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional", "call_torchbind"),
    *(
        "executorch_call_delegate",
        "inline_asm_elementwise",
        "aoti_call",
    ),
    *("__class__", "_ops", "py_functional"),
)


def test_what_is_printed_is_words() -> None:
    with pytest.raises(CaseError, match="text"):
        load(calling(f"{HIGHER}print", "\x1b[2K"))


@pytest.mark.parametrize("name", UNLISTED)
def test_other_higher_order_operators_are_refused(name: str) -> None:
    with pytest.raises(CaseError, match=r"higher-order op|not the name of an op|names none"):
        load(calling(HIGHER + name, ref("x")))


RAW = (
    *(
        "aten.set_.source_Storage",
        "aten.set_.source_Tensor_storage_offset",
        "aten.set_data.default",
    ),
    *("aten.resize_.default", "aten._resize_output_.default", "aten.resize_as_.default"),
    *(
        "aten._unsafe_index.Tensor",
        "aten._unsafe_index_put.default",
        "aten._index_put_impl_.default",
    ),
    *("aten._unsafe_masked_index.default", "aten._sparse_coo_tensor_unsafe.default"),
    *("aten.sparse_csr_tensor.crow_col_value_size", "aten._nested_view_from_buffer.default"),
    *("aten.record_stream.default", "aten.to_mkldnn.default", "aten._print.default"),
    *("aten.fbgemm_linear_fp16_weight.default", "aten.quantized_lstm_cell.default"),
    *("aten._foobar.default", "aten._test_string_default.default", "prims.resize.default"),
    *("inductor._reinterpret_tensor.default", "inductor._alloc_from_pool.default"),
    *("inductor.resize_storage_bytes_.default", "mkldnn.data_ptr.default"),
    *("c10d.barrier.default", "symm_mem.one_shot_all_reduce.default"),
    *("_c10d_functional.all_reduce.default", "profiler._record_function_enter.default"),
    *("debugprims.load_tensor.default", "quantized.linear.default", "sparse.qlinear.default"),
    *("_test.get_first.default", "static_runtime.create_owned_ref.default"),
)


@pytest.mark.parametrize("name", RAW)
def test_operators_that_read_raw_memory_or_reach_outside_need_trust(name: str) -> None:
    with pytest.raises(CaseError) as caught:
        load(calling(f"torch.ops.{name}", ref("x")))
    known = operators.is_registered("::".join(name.split(".")[:2]))
    assert (isinstance(caught.value, TrustError) and "--trust" in str(caught.value)) or not known


@pytest.mark.parametrize(
    "target", ["torch.resize_as_", "torch.sparse_coo_tensor", "torch.fbgemm_linear_fp16_weight"]
)
def test_they_need_it_under_their_other_names_too(target: str) -> None:
    with pytest.raises(TrustError):
        load(calling(target, ref("x")))
    assert load(calling(target, ref("x")), trust=True)


def test_a_case_with_such_an_operator_loads_when_it_is_trusted(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    raw = {"target": "torch.ops.aten.resize_as_.default"}
    craft.graph(lambda data: first_call(data).update(raw))
    with pytest.raises(TrustError, match=r"resize_as_.*--trust"):
        load_case(craft.folder)
    assert load_case(craft.folder, trust=True)


def test_a_call_without_a_target_is_refused(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.graph(lambda data: first_call(data).pop("target"))
    with pytest.raises(CaseError, match="'target' is missing"):
        load_case(craft.folder)


@pytest.mark.parametrize("method", ["resize_", "resize_as_", "_coalesced_", "sparse_resize_"])
def test_methods_that_change_memory_are_refused(method: str) -> None:
    with pytest.raises(CaseError):
        load(graph(node("call_method", "call", method, ref("x"), 10)))


def test_every_operator_of_aten_and_prims_is_either_taken_or_refused_for_a_reason() -> None:
    """The list is pinned in full: a new torch that brings a new operator of the kind shows here."""
    names = {name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    targets = {name: f"torch.ops.{name.replace('::', '.')}" for name in sorted(names)}
    refused = {name for name, target in targets.items() if why_refused("call_function", target)}
    ours = {name for name in refused if name.startswith(("aten::", "prims::"))}
    assert 60 <= len(ours) <= 110, sorted(ours)
    for name in names - refused:
        kinds = " ".join(kind for _, kind in operators.declared_arguments(name))
        assert "Storage" not in kinds and "Stream" not in kinds and "__torch__" not in kinds, name
        assert not any(
            word in name for word in ("resize", "_ptr", "from_blob", "mkldnn_reorder")
        ), name
    for name in ("aten::add", "aten::as_strided", "aten::index", "aten::convolution_backward"):
        assert name not in refused


def test_libraries_of_torch_are_listed_or_known() -> None:
    """In a process of its own: other tests register libraries of users."""
    code = "import torch, torch._inductor; print(*torch._C._dispatch_get_all_op_names())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name.split("::")[0] for name in done.stdout.split()}
    assert "c10d" in own
    assert not own - operators.CORE_NAMESPACES - operators.TORCH_NAMESPACES
    assert not own - functions._OWN_NAMESPACES


LAZY = ("onnx", "_dynamo", "_inductor", "_export", "has_mps", "set_vital")


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("kind", ["dtype", "target", "memory_format"])
def test_no_name_reaches_an_import_of_torch(name: str, kind: str) -> None:
    before = set(sys.modules)
    value = f"torch.{name}" if kind == "target" else name
    with warnings.catch_warnings(), pytest.raises(CaseError):
        warnings.simplefilter("error")
        load(calling("torch.relu", {kind: value}))
    assert not {name for name in set(sys.modules) - before if name.startswith("torch.onnx")}


def test_an_unknown_operator_leaves_no_trace_in_torch() -> None:
    before = set(vars(torch.ops))
    with pytest.raises(CaseError, match="not registered"):
        load(calling("torch.ops.some_unknown_library.op.default", ref("x")))
    assert set(vars(torch.ops)) == before


def fullwidth(text: str) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) for letter in text)


NAMES: dict[str, dict[str, Any]] = {
    "a fullwidth torch": graph(node("call_function", fullwidth("torch"), "torch.relu", ref("x"))),
    "a ligature": graph(node("call_function", "\ufb01x", "torch.relu", ref("x"))),
    "a class of Python": graph() | {"class": "class"},
    "a class with a line": graph() | {"class": "A:\n    import os\nclass B"},
    "an attribute __class__": graph(node("get_attr", "a", "__class__"), values={"__class__": 1}),
    "an attribute forward": graph(node("get_attr", "a", "forward"), values={"forward": 1}),
    "an attribute _modules": graph(node("get_attr", "a", "_modules"), values={"_modules": 1}),
    "an attribute of a part": graph(
        node("get_attr", "a", "body.forward"), values={"body.forward": 1}
    ),
    "a sub-graph called graph": graph(
        node("get_attr", "a", "graph"), subgraphs={"graph": identity()}
    ),
    "a sub-graph and a value": graph(
        node("get_attr", "a", "b"), subgraphs={"b": identity()}, values={"b": 1}
    ),
    "a value that nothing reads": graph(values={"unread": 1}),
    "a sub-graph that nothing reads": graph(subgraphs={"unread": identity()}),
    "a very long name": graph(node("call_function", "a" * 5000, "torch.relu", ref("x"))),
    "a very long target": calling("torch." + "a" * 1_000_000, ref("x")),
    "a very long reference": calling("torch.relu", ref("n" * 1_000_000)),
    "a very long op": graph(node("o" * 1_000_000, "a", "b")),
    "an unknown key": graph(node("call_function", "a", "torch.relu", ref("x"), hook="os.system")),
    "an unknown type": graph(node("placeholder", "y", "y", type="object")),
    "an escape in an attribute": graph(node("get_attr", "a", "a\x1b[2K"), values={"a\x1b[2K": 1}),
    "a sub-graph with a line in its name": graph(subgraphs={"a\nb": identity()}),
    "a number without end": calling("torch.relu", ref("x"), float("1e308")) | {"nodes": 3},
    "a size beyond 64 bits": calling("torch.zeros", {"size": [1 << 80]}),
    "a range beyond 64 bits": calling("torch.zeros", {"range": [0, 1 << 70, 1]}),
    "a long range": calling("builtins.list", {"range": [0, 10**18, 1]}),
    "a factorial": calling("math.factorial", 10**8),
    "a binomial": calling("math.comb", 10**9, 5 * 10**8),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_or_number_of_a_stranger_is_refused_in_a_moment(name: str) -> None:
    started = time.perf_counter()
    with pytest.raises(CaseError) as caught:
        load(NAMES[name])
    assert time.perf_counter() - started < 1.0
    assert len(str(caught.value)) < 2000 and str(caught.value).isprintable()


def test_graphs_that_dynamo_writes_still_load() -> None:
    assert changed(lambda data: None)
    assert load(changed(lambda data: None))(torch.ones(3)) is not None
