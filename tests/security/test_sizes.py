"""Sizes, nesting and numbers of a stranger: refused in a moment, and never a traceback."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case_listing import describe
from ctk.toolkit.case.formats import limits
from ctk.toolkit.case.store import load_case
from tests.helpers.hostile import Craft, first_call
from tests.helpers.hostile_graphs import calling, graph, load, node, ref
from tests.helpers.mutations import nested

Change = Callable[[Craft], object]


def manifest(**changes: Any) -> Change:
    return lambda craft: craft.manifest(lambda data: data.update(changes))


def modes(**changes: Any) -> Change:
    return lambda craft: craft.manifest(lambda data: data["modes"].update(changes))


def tensor(kind: str, **changes: Any) -> Change:
    """Change the first entry or storage of the inputs."""

    def change(data: dict[str, Any]) -> None:
        next(iter(data["tensors"][kind].values())).update(changes)

    return lambda craft: craft.json("inputs.json", change)


def recipe(shape: list[int], **values: Any) -> Change:
    """Give the first storage a recipe, and storage and entry a shape."""
    stride = [1] * len(shape)
    place = {"first": 0, "shape": shape, "stride": stride}

    def change(data: dict[str, Any]) -> None:
        storage = next(iter(data["tensors"]["storages"].values()))
        storage.update(place, values="synthetic", recipe=values)
        next(iter(data["tensors"]["entries"].values())).update(shape=shape, stride=stride)

    return lambda craft: craft.json("inputs.json", change)


def values(header: object, data: bytes = b"", length: int | None = None) -> Change:
    """Write a safetensors file by hand."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return lambda craft: craft.put("inputs.safetensors", struct.pack("<Q", size) + text + data)


def call(**changes: Any) -> Change:
    return lambda craft: craft.graph(lambda data: first_call(data).update(changes))


def raw(name: str, text: str) -> Change:
    return lambda craft: craft.put(name, text)


def many_nodes(craft: Craft) -> None:
    more = [{"op": "get_attr", "name": f"n{at}", "target": "a"} for at in range(limits.NODES + 1)]
    craft.graph(lambda data: data["nodes"].__setitem__(slice(0, 0), more))


def sparse(name: str, nbytes: int) -> Change:
    """A file that claims a size and holds nothing."""

    def change(craft: Craft) -> None:
        with (craft.folder / name).open("r+b") as file:
            file.truncate(nbytes)
        craft.manifest(lambda data: data["files"][name].update(nbytes=nbytes))

    return change


def files(count: int) -> Change:
    record = {"nbytes": 1, "sha256": "0" * 64}
    many = {f"file{number}": record for number in range(count)}
    return lambda craft: craft.manifest(lambda data: data["files"].update(many))


ONE = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
NORMAL = {"kind": "normal", "seed": 0}

HOSTILE: dict[str, Change] = {
    "a manifest of 5 MB": manifest(name="a" * (5 << 20)),
    "a deep manifest": manifest(config={"a": nested(400)}),
    "a very deep manifest": lambda c: (c.folder / "manifest.json").write_text("[" * 10**6),
    "a manifest that is a pipe": lambda c: (
        (c.folder / "manifest.json").unlink(),
        os.mkfifo(c.folder / "manifest.json"),
    ),
    "a graph that is a pipe": lambda c: (
        (c.folder / "graph.json").unlink(),
        os.mkfifo(c.folder / "graph.json"),
    ),
    "a target with an escape": manifest(target="ctk\x1b[2K\rinductor"),
    "a target with a line": manifest(target="ctk\ninductor"),
    "a target that turns the writing": manifest(target="ctk\u202egnp.exe"),
    "a long target": manifest(target="a" * 200_000),
    "half a character": manifest(target="\ud800"),
    "a seed of 70 bits": modes(seed=1 << 70),
    "a negative seed": modes(seed=-(1 << 64)),
    "a default dtype that imports": modes(default_dtype="onnx"),
    "an integer default dtype": modes(default_dtype="int64"),
    "an autocast device of two lines": modes(
        autocast=[{"device_type": "cpu\n", "dtype": "bfloat16", "cache_enabled": True}]
    ),
    "an autocast dtype that is a function": modes(
        autocast=[{"device_type": "cpu", "dtype": "load", "cache_enabled": True}]
    ),
    "a symbol with a line": manifest(dynamic={"x": ["s0\nimport os"]}),
    "a module with a space": manifest(imports=["os; import sys"]),
    "a hash that is none": files(0)
    and (lambda c: c.manifest(lambda d: d["files"]["graph.json"].update(sha256="x"))),
    "ten thousand files": files(limits.FILES + 1),
    "a number of 5,000 digits": raw("inputs.json", '{"names": ' + "9" * 5000 + "}"),
    "a number of a million digits": raw("graph.json", '{"nodes": ' + "9" * 10**6 + "}"),
    "a key twice": raw("inputs.json", '{"names": [], "names": []}'),
    "not a number": raw("inputs.json", '{"names": NaN}'),
    "no UTF-8": lambda c: c.put("graph.json", b'{"class": "\xff"}'),
    "a graph of a list": raw("graph.json", "[1, 2]"),
    "a deep graph": raw("graph.json", "[" * 10**6 + "]" * 10**6),
    "a deep argument": call(args=[nested(400)]),
    "a hundred thousand nodes": many_nodes,
    "a graph of a terabyte": sparse("graph.json", 1 << 40),
    "weights of four terabytes": sparse("inputs.safetensors", 1 << 42),
    "weights that are a hole of four gigabytes": sparse("inputs.safetensors", 1 << 32),
    "a size beyond 64 bits": tensor("entries", shape=[1 << 70], stride=[1]),
    "a negative size": tensor("entries", shape=[-1, 4]),
    "sizes whose product overflows": tensor("entries", shape=[1 << 40, 1 << 40], stride=[0, 0]),
    "a stride that overflows": tensor("entries", stride=[1 << 62, 1 << 62]),
    "a negative stride": tensor("entries", stride=[-4, 1]),
    "an offset that overflows": tensor("entries", offset=(1 << 63) - 1),
    "an offset beyond the storage": tensor("entries", offset=1000),
    "an expanded tensor of a petabyte": tensor("entries", shape=[1 << 48], stride=[0]),
    "a storage of a terabyte": recipe([1 << 38], **NORMAL),
    "a storage of two sizes": tensor("storages", shape=[4, 4], stride=[1]),
    "a hundred dimensions": recipe([1] * 100, **NORMAL),
    "more NaN than elements": recipe([2], **NORMAL, nan=10**15),
    "less than no NaN": recipe([2], **NORMAL, nan=-1),
    "an endless mean": recipe([2], kind="normal", seed=0, mean=float("inf")),
    "a range beyond 64 bits": recipe([2], kind="uniform", seed=0, low=0, high=1 << 70),
    "a range upside down": recipe([2], kind="uniform", seed=0, low=5, high=2),
    "an unknown recipe": recipe([2], kind="pickle", seed=0),
    "a quantized dtype": tensor("entries", dtype="qint8"),
    "a dtype that imports": tensor("entries", dtype="onnx"),
    "a device without memory": tensor("entries", device="meta"),
    "a device with a line": tensor("entries", device="cpu\n"),
    "an unknown storage": tensor("entries", storage="s" * 10_000),
    "a header of an exabyte": values(b"{}", length=1 << 60),
    "a header longer than the file": values(b"{}", length=100),
    "a deep header": values(b"[" * 100_000),
    "offsets that overlap": values({**ONE, "y": ONE["x"]}, b"0" * 8),
    "offsets outside of the file": values({"x": {**ONE["x"], "data_offsets": [0, 1 << 40]}}),
    "offsets in the wrong order": values({"x": {**ONE["x"], "data_offsets": [8, 0]}}, b"0" * 8),
    "a shape that is no shape": values({"x": {**ONE["x"], "shape": [1 << 70]}}, b"0" * 8),
    "a dtype that lies": values({"x": {**ONE["x"], "dtype": "F64"}}, b"0" * 8),
    "an unknown dtype": values({"x": {**ONE["x"], "dtype": "P8"}}, b"0" * 8),
}


@pytest.mark.timeout(60)  # a loop over what the sizes promise would never end
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_case_is_refused_in_a_moment_with_a_sentence(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    HOSTILE[name](craft)
    with pytest.raises(CaseError) as caught:
        load_case(craft.folder)
    described = describe(craft.folder)
    said = str(caught.value)
    assert len(said) < 3000 and all(line.isprintable() for line in said.split("\n")), said[:300]
    assert described.problem is None or described.problem.isprintable()


NUMBERS: dict[str, dict[str, Any]] = {
    "a shift": calling("operator.lshift", 1, 10**12),
    "a power": calling("operator.pow", 9, 10**9),
    "a power of a power": graph(
        node("call_function", "a", "operator.pow", 9, 1000),
        node("call_function", "b", "operator.pow", ref("a"), 1000),
    ),
    "a power of a size": graph(
        node("call_method", "a", "size", ref("x"), 0),
        node("call_function", "b", "operator.pow", ref("a"), ref("a")),
    ),
    "squares of squares": graph(
        node("call_method", "n0", "size", ref("x"), 0),
        *(
            node("call_function", f"n{i + 1}", "operator.mul", ref(f"n{i}"), ref(f"n{i}"))
            for i in range(40)
        ),
    ),
    "a list repeated": calling("operator.mul", [0], 10**12),
    "a tuple repeated by a size": graph(
        node("call_method", "a", "size", ref("x"), 0),
        node("call_function", "b", "operator.mul", {"tuple": [0]}, ref("a")),
    ),
    "a text repeated": calling("operator.mul", "a", 10**12),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_lists_of_python_cannot_grow_without_end(name: str) -> None:
    with pytest.raises(CaseError, match=r"bits|repeats"):
        load(NUMBERS[name])


def test_numbers_that_programs_compute_are_taken() -> None:
    x = ref("x")
    squares = [
        node("call_function", f"t{i}", "operator.mul", ref(f"t{i - 1}") if i else x, x)
        for i in range(2000)
    ]
    assert load(graph(*squares, node("call_function", "p", "operator.pow", x, 10_000)))
    assert load(calling("operator.mul", [0], 16))
    assert load(calling("operator.lshift", 1, 62))


def test_a_case_with_many_nodes_and_weights_is_still_taken(tmp_path: Path) -> None:
    chain = [
        node("call_function", f"r{i}", "torch.relu", ref(f"r{i - 1}" if i else "x"))
        for i in range(2000)
    ]
    assert len(load(graph(*chain)).graph.nodes) == 2002
    craft = Craft.new(tmp_path)
    assert isinstance(load_case(craft.folder).inputs[0], torch.Tensor)
