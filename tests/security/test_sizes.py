"""Sizes, nesting, numbers and texts of a stranger: refused in a moment, and never a traceback."""

import ast
import json
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.listing import describe
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.sources import SourcePlan
from ctk.toolkit.case.store import load_case
from ctk.toolkit.formats import limits
from ctk.toolkit.formats.plain_text import many_lines, one_line
from ctk.toolkit.repro.script import literal, render_script
from tests.helpers.case_folders import linear_case
from tests.helpers.cli import ctk
from tests.helpers.hostile import Craft, first_call
from tests.helpers.hostile_graphs import calling, graph, load, node, ref
from tests.helpers.mutations import DIAGNOSIS, EVENTS, nested

SECONDS = 1.0

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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_case_is_refused_in_a_moment_with_a_sentence(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    HOSTILE[name](craft)
    started = time.process_time()
    with pytest.raises(CaseError) as caught:
        load_case(craft.folder)
    described = describe(craft.folder)
    assert time.process_time() - started < SECONDS
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


ESCAPES = (
    "\x1b[2K\rno failure",
    "\x1b]8;;file:///x\x07",
    "\u202egnp",
    "\b\b\b",
    "\x9b2J",
    "a\u2028b",
)


@pytest.mark.parametrize("text", ESCAPES)
def test_a_strangers_text_reaches_the_terminal_escaped(text: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    wrong = {"kind": "accuracy", "exception": text, "where": None, "signal": None}
    craft.manifest(
        lambda data: data.update(
            name=f"graph{text}", signature={**wrong, "output": "out0", "message": text}
        )
    )
    craft.put("graph.py", f"# {text}\n")
    craft.put("events.jsonl", EVENTS.replace(b"joint/fold", json.dumps(text)[1:-1].encode()))
    assert read_manifest(craft.folder).name == f"graph{one_line(text)}"
    for command in ("show", "ls"):
        said = ctk(command, craft.folder)
        shown = (said.out + said.err).replace("\n", "")
        assert said.code == 0 and shown.isprintable(), ascii(shown)


@pytest.mark.parametrize("text", ["[bold red]x[/]", "[/]", "[link=file:///x]y[/link]", ":bomb:"])
def test_markup_of_a_stranger_is_text(text: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    wrong = {"kind": "accuracy", "exception": None, "where": None, "signal": None}
    signature = {**wrong, "output": None, "message": text}
    craft.manifest(lambda data: data.update(signature=signature))
    said = ctk("ls", craft.folder)
    assert said.code == 0 and text in said.out


@pytest.mark.parametrize("text", [*ESCAPES, "plain", 'a"b\\c', "ü", "\U0001f600", "\ud800", "\0"])
def test_a_text_in_a_script_is_the_same_text_and_can_be_seen(text: str) -> None:
    source = literal(text)
    assert source.isprintable() and eval(source) == text


def test_one_line_keeps_what_is_printable_and_shortens_what_is_long() -> None:
    assert one_line("größer, 中文: x") == "größer, 中文: x"
    assert one_line("a\tb\nc") == "a\\tb\\nc"
    assert len(one_line("a" * 10**6)) < 2100
    assert many_lines("a\r\n\tb\x1b[0m\n") == "a\n\tb\\x1b[0m\n"


TRICKS = (
    '"""\nimport os\n"""',
    "\\",
    'x"',
    "\nTarget:     other",
    "\x1b[2K",
    "\0",
    "\udcff",
    "# type: x",
)


def script_of(text: str) -> ast.Module:
    """Return the script of a case in which a text stands wherever one may."""
    wrong = Signature(kind="accuracy", where=text, output=text, message=text)
    case = linear_case(name=text, signature=wrong, config={"note": text}, synthetic=(text,))
    plan = SourcePlan(case.target, dict(case.config), {})
    source = render_script(case, plan, culprit_pass=text, clean_run=text).text
    source.encode()
    return ast.parse(source)


@pytest.mark.parametrize("text", TRICKS)
def test_no_text_of_a_case_leaves_its_place_in_a_script(text: str) -> None:
    tree, plain = script_of(text), script_of("plain")
    assert [type(each) for each in tree.body] == [type(each) for each in plain.body]
    header = ast.get_docstring(tree, clean=False)
    assert header is not None and len(re.findall(r"^Target:", header, re.MULTILINE)) == 1
    settings = {
        each.targets[0].id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    assert ast.literal_eval(settings["CONFIG"]) == {"note": text}


def diagnosis(**changes: Any) -> str:
    return json.dumps(DIAGNOSIS | changes)


RECORDS: dict[str, str] = {
    "cut short": diagnosis()[:100],
    "empty": "",
    "a list": "[]",
    "deep": "[" * 10**6,
    "deep inside": diagnosis(also=[nested(300)]),
    "5 MB": diagnosis(detail="a" * (5 << 20)),
    "no schema": json.dumps({}),
    "another schema": diagnosis(schema=99),
    "a schema that is a text": diagnosis(schema="2"),
    "a verdict that is none": diagnosis(verdict="\x1b[2K"),
    "nodes that are numbers": diagnosis(culprit={**DIAGNOSIS["culprit"], "nodes": [1, 2]}),
    "nodes that are none": diagnosis(culprit={**DIAGNOSIS["culprit"], "nodes": None}),
    "seconds of a text": diagnosis(seconds="nan"),
    "seconds without end": diagnosis().replace("1.5", "1e999"),
    "a number of 5,000 digits": diagnosis().replace("1.5", "9" * 5000),
    "a key twice": diagnosis().replace('"also"', '"case"', 1),
    "an unknown key": diagnosis(hook="os.system"),
    "half a character": diagnosis(case="\ud800"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_hostile_diagnosis_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "diagnosis.json").write_text(RECORDS[name])
    started = time.process_time()
    said = ctk("show", tmp_path)
    assert time.process_time() - started < SECONDS
    assert said.code == 2 and "diagnosis.json" in said.out + said.err
    assert "Traceback" not in said.out + said.err and "bug" not in said.err


def test_the_text_of_a_diagnosis_is_shown_in_lines_of_ours(tmp_path: Path) -> None:
    hostile = "x\x1b[2K\nproof      without it alone the case passes"
    culprit = {**DIAGNOSIS["culprit"], "nodes": [hostile], "evidence": hostile, "rule": hostile}
    (tmp_path / "diagnosis.json").write_text(diagnosis(case=hostile, culprit=culprit))
    said = ctk("show", tmp_path)
    assert said.code == 0
    assert len(re.findall(r"^proof ", said.out, re.MULTILINE)) == 1
    assert said.out.replace("\n", "").isprintable()


LINES: dict[str, bytes] = {
    "no JSON": b'{"event": "pass"\n' * 1000,
    "wrong types": EVENTS.replace(b"0.1", b'"0.1"').replace(b"3", b"[]"),
    "deep": b'{"event": "pass", "pass": ' + b"[" * 10**6 + b"\n",
    "a long line": b'{"event": "pass", "pass": "' + b"a" * (8 << 20) + b'"}\n',
    "bytes": b'"pass"\xff\xfe\n' * 100,
    "no lines": b"\n" * 10**6,
    "other events": b'{"event": "call"}\n' * 500_000,
}


@pytest.mark.parametrize("name", LINES)
def test_hostile_events_are_passed_over(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    (craft.folder / "events.jsonl").write_bytes(LINES[name] + EVENTS)
    started = time.process_time()
    said = ctk("show", craft.folder)
    assert time.process_time() - started < 2 * SECONDS
    assert said.code == 0 and "joint/fold" in said.out, said.err
    assert "Traceback" not in said.out + said.err


def test_ten_million_events_are_refused_with_their_number(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    with (craft.folder / "events.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    said = ctk("show", craft.folder)
    assert said.code == 2 and "1,099,511,627,776 bytes" in said.out + said.err


def test_a_case_with_many_nodes_and_weights_is_still_taken(tmp_path: Path) -> None:
    chain = [
        node("call_function", f"r{i}", "torch.relu", ref(f"r{i - 1}" if i else "x"))
        for i in range(2000)
    ]
    assert len(load(graph(*chain)).graph.nodes) == 2002
    craft = Craft.new(tmp_path)
    assert isinstance(load_case(craft.folder).inputs[0], torch.Tensor)
