"""Mutations of the files of real cases, as data: what fuzzing draws, applies and can show again.

A `Mutation` changes one file. JSON files are changed by their structure (a value replaced, moved,
doubled, dropped, renamed, taken from another case), any file by its bytes. The manifest gets the
hashes of the changed files, so that what lies behind the hashes is reached too.
"""

import copy
import dataclasses
import functools
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.store import save_case
from tests.helpers.case_zoo import Buffered, capture, nested_cond

Files = dict[str, bytes]
MANIFEST = "manifest.json"

EVENTS = (
    b'{"event": "pass", "pass_": "joint/fold", "number": 0, "changed": true, "vetoed": false, '
    b'"rewrites": 3, "vetoed_rewrites": 0, "seconds": 0.1}\n'.replace(b"pass_", b"pass")
    + b'{"event": "kernel", "kernel": "lowered/a:forward", "nodes": ["relu"], "vetoed": false, '
    b'"seconds": 0.5, "reason": null, "file": "a.py"}\n'
)
DIAGNOSIS = {
    "schema": 2, "case": "graph0", "target": "ctk", "state": "finished", "verdict": "reproduces",
    "detail": "", "signature": {"kind": "accuracy", "exception": None, "where": None,
    "signal": None, "output": "out0", "message": "off by 1"},
    "culprit": {"stage": "joint", "pass": "fold", "kind": "pass", "rewrite": 3, "index_in_pass": 1,
    "rule": "fold", "rewrites_in_pass": 2, "nodes": ["relu"], "captured_nodes": ["relu"],
    "evidence": "out0", "excerpt": []},
    "also": [], "relation": None, "hidden": [], "confirmed": True, "found_by": "check",
    "reason": "", "compiles": 3, "option_compiles": 0, "questions": 5, "remembered": 0,
    "problems": [], "options": [], "excluded": [],
    "seconds": 1.5, "call_nodes": {"before": 3, "after": 1},
    "minimal": {"nodes": ["relu"], "finished": True, "stopped_by": "minimal", "culprit": None},
    "repro": {"path": "repro.py", "clean_run": None, "exit_code": None},
}  # fmt: skip

NASTY: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**53, 2**63 - 1, 2**63, -(2**64), 10**40, 10**100),
    *(0.5, -0.0, 1e308, -1e308, 5e-324, "", "x", "a b", "a" * 5000, "\x1b[2K\rno failure", "a\nb"),
    *("\u202egnp", "\ud800", "\0", "../up", "/etc/passwd", "~/x", "x;import os", "[bold]x[/]"),
    *(
        "[/]",
        ":smile:",
        "os:system",
        "os.system",
        "builtins.getattr",
        "torch.load",
        "nan",
        "Tensor",
    ),
    *("torch.ops.aten.set_.source_Tensor", "torch.ops.higher_order.wrap", "torch.ops.", "forward"),
    *("onnx", "float32", "float16", "bits8", "qint8", "complex64", "bool", "int64", "cpu", "cuda"),
    *("cuda:99999", "meta", "stored", "synthetic", "normal", "__class__", "output", "placeholder"),
    *("call_method", "call_module", "get_attr", "ctk_canary_module:function", "ctk_canary_module"),
    *([], {}, [[]], [None], {"": 1}, {"node": "x"}, {"target": "builtins.getattr"}, {"tuple": []}),
    *({"dtype": "onnx"}, {"device": "cuda:9"}, {"float": "nan"}, {"size": [2**70]}, {"slice": [1]}),
    *({"range": [0, 2**62, 1]}, {"complex": [1, 2]}, {"ellipsis": True}, {"layout": "strided"}),
    *({"symbol": "s0", "hint": 3}, {"kind": "uniform", "seed": 1, "low": 0, "high": 2**70}),
    *({"kind": "bernoulli", "seed": 1, "share": 2.5}, {"kind": "normal", "seed": 2**70, "nan": 9}),
)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file; numbers count modulo what there is, so that each draw means one."""

    file: int
    kind: str
    place: int
    other: int
    value: Any

    def apply(self, files: Files, donors: Sequence[Mapping[str, bytes]]) -> None:
        names = sorted(files)
        name = names[self.file % len(names)]
        if self.kind in BYTES or not name.endswith((".json", ".jsonl")):
            files[name] = self._bytes(files[name], donors)
            return
        try:
            data = json.loads(files[name])
        except (ValueError, RecursionError):
            return  # an earlier mutation broke it
        files[name] = json.dumps(self._json(data, donors)).encode()

    def _bytes(self, data: bytes, donors: Sequence[Mapping[str, bytes]]) -> bytes:
        changed = bytearray(data)
        at = self.place % (len(data) + 1)
        donor = donors[self.other % len(donors)]
        part = sorted(donor.values())[self.other % len(donor)]
        match self.kind:
            case "flip" if changed:
                changed[at % len(changed)] ^= 1 << (self.other % 8)
            case "byte" if changed:
                changed[at % len(changed)] = self.other % 256
            case "cut":
                del changed[at:]
            case "drop":
                del changed[at : at + 1 + self.other % 64]
            case "splice":
                changed[at:at] = part[: 1 + self.other % 512]
            case _:
                changed[at:at] = bytes([self.other % 256]) * (1 + self.other % 16)
        return bytes(changed)

    def _json(self, data: Any, donors: Sequence[Mapping[str, bytes]]) -> Any:
        places = list(_places(data))
        if not places:
            return self.value
        holder, key = places[self.place % len(places)]
        match self.kind:
            case "drop":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case "rename" if isinstance(holder, dict):
                holder[str(self.value)] = holder.pop(key)
            case "swap":
                there, at = places[self.other % len(places)]
                holder[key] = copy.deepcopy(there[at])
            case "donate":
                document = json.loads(_documents(donors)[self.other % len(_documents(donors))])
                found = list(_places(document))
                there, at = found[self.other % len(found)]
                holder[key] = there[at]
            case "wrap":
                holder[key] = nested(self.other % 400)
            case _:
                holder[key] = copy.deepcopy(self.value)
        return data


BYTES = ("flip", "byte", "cut", "splice", "insert")
KINDS = ("replace",) * 6 + ("swap", "donate", "drop", "double", "rename", "wrap", *BYTES)
NUMBERS = st.integers(0, 2**20)
MUTATIONS = st.lists(
    st.builds(Mutation, NUMBERS, st.sampled_from(KINDS), NUMBERS, NUMBERS, st.sampled_from(NASTY)),
    min_size=1,
    max_size=3,
)


def _documents(donors: Sequence[Mapping[str, bytes]]) -> list[bytes]:
    return [donor["graph.json"] for donor in donors] + [donors[0]["inputs.json"]]


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of every value, outer ones first."""
    if isinstance(data, dict | list):
        for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
            yield data, key
            yield from _places(value)


def rehash(files: Files) -> None:
    """Give the manifest the sizes and hashes of the files; one that is no object stays."""
    try:
        manifest = json.loads(files[MANIFEST])
        listed = manifest["files"]
        for name in set(files) - {MANIFEST, "diagnosis.json", "events.jsonl"}:
            digest = hashlib.sha256(files[name]).hexdigest()
            listed[name] = {"nbytes": len(files[name]), "sha256": digest}
        files[MANIFEST] = json.dumps(manifest).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return


@functools.cache
def real_cases() -> tuple[Files, ...]:
    """Return the files of some small captured cases, with events and a diagnosis beside them."""
    torch.manual_seed(0)
    (linear,) = capture(Buffered(), torch.randn(2, 8))
    (cond,) = capture(nested_cond, torch.randn(3))
    (sizes,) = capture(lambda x: x.view(-1, x.shape[0] * 2).sum(), torch.randn(4, 8), dynamic=True)
    wrong = Signature(kind="accuracy", output="out0", message="off by 1")
    shared = torch.arange(6.0)
    alias = _alias(shared, shared[2:], torch.randn(40, 4, requires_grad=True))
    cases = [
        (linear, "recipe"),
        (dataclasses.replace(cond, signature=wrong, config={"fuel": 3}), "full"),
        (sizes, "full"),
        (alias, "none"),
    ]
    with tempfile.TemporaryDirectory() as place:
        found = [
            _files(save_case(case, Path(place) / str(number), inputs=inputs))
            for number, (case, inputs) in enumerate(cases)
        ]
    return tuple(
        files | {"events.jsonl": EVENTS, "diagnosis.json": json.dumps(DIAGNOSIS).encode()}
        for files in found
    )


def _alias(*inputs: torch.Tensor) -> Case:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"in_{number}") for number in range(len(inputs))]
    graph.output(tuple(nodes))
    return Case(torch.fx.GraphModule({}, graph), inputs)


def _files(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(files: Files, folder: Path) -> None:
    """Write the files of a case; a folder in a name is made."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
