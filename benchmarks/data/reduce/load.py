"""Load a problem with torch only, and ask whether it fails: `python load.py PROBLEM`.

    gm, inputs, fails, problem = load("feeding_dag_50_0")
    fails(gm, inputs)  # True; a reducer looks for a smaller graph, with inputs, for which it is

The folder of a problem is as `README.md` says; `oracle.py`, beside this file, has the predicates.
"""

import json
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

sys.path.insert(0, str(Path(__file__).parent))

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
"""Names of the safetensors format."""

Fails = Callable[[GraphModule, Sequence[object]], bool]


def load(folder: str | Path) -> tuple[GraphModule, list[object], Fails, dict[str, Any]]:
    """Return a graph, its inputs, the predicate that they satisfy, and `problem.json`."""
    from oracle import predicate_of

    folder = Path(folder)
    case = folder / "case"
    problem = json.loads((folder / "problem.json").read_text())
    listed = json.loads((case / "inputs.json").read_text())
    data = json.loads((case / "graph.json").read_text())
    tensors = _tensors(listed["tensors"], case / "inputs.safetensors")
    constants = _tensors(data.get("constants", {}), case / "constants.safetensors")
    inputs = [tensors[n] if n in tensors else listed["values"][n] for n in listed["names"]]
    return _graph(data, constants, ""), inputs, predicate_of(problem["needs"]), problem


def _tensors(listed: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return tensors by name: views of what a safetensors file stores."""
    stored = _safetensors(path) if path.exists() else {}
    entries = listed.get("entries", {})
    found = {
        name: torch.as_strided(stored[at["storage"]], at["shape"], at["stride"], at["offset"])
        for name, at in entries.items()
    }
    return found | {name: found[other] for name, other in listed.get("same", {}).items()}


def _safetensors(path: Path) -> dict[str, Tensor]:
    """Read a file of 8 bytes (the length of the header), the header (JSON) and the data."""
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    found: dict[str, Tensor] = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        raw = torch.frombuffer(content[start + first : start + last], dtype=torch.uint8)
        found[name] = raw.clone().view(DTYPES[entry["dtype"]])
    return found


def _graph(data: Mapping[str, Any], constants: Mapping[str, Tensor], prefix: str) -> GraphModule:
    """Build the graph that JSON describes, with those inside it."""
    root = torch.nn.Module()
    for name, inner in data.get("subgraphs", {}).items():
        setattr(root, name, _graph(inner, constants, f"{prefix}{name}."))
    graph, made = Graph(), dict[str, Node]()
    for each in data["nodes"]:
        target = each["target"]
        if each["op"] == "get_attr" and prefix + target in constants:
            root.register_buffer(target, constants[prefix + target])
        args = tuple(_value(arg, made) for arg in each.get("args", ()))
        kwargs = {key: _value(value, made) for key, value in each.get("kwargs", {}).items()}
        function = _named(target) if each["op"] == "call_function" else target
        node = graph.create_node(each["op"], function, args, kwargs, each["name"])
        made[each["name"]] = node
    return GraphModule(root, graph)


def _value(data: Any, made: Mapping[str, Node]) -> Any:
    """Return an argument: JSON values are themselves, the rest is `{type: content}`."""
    if isinstance(data, list):
        return [_value(item, made) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    simple: dict[str, Callable[[], Any]] = {
        "node": lambda: made[content],
        "tuple": lambda: tuple(_value(item, made) for item in content),
        "size": lambda: torch.Size(content),
        "slice": lambda: slice(*(_value(item, made) for item in content)),
        "dtype": lambda: getattr(torch, content),
        "device": lambda: torch.device(content),
        "float": lambda: float(content),
        "ellipsis": lambda: ...,
        "target": lambda: _named(content),
    }
    return simple[kind]()


def _named(name: str) -> Any:
    """Return a function of torch or `operator` by its qualified name."""
    package, *parts = name.split(".")
    found: Any = {"torch": torch, "operator": operator}[package]
    for part in parts:
        found = getattr(found, part)
    return found


def main() -> None:
    """Say of a problem how large it is, whether it fails, and what is known of its minimum."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    gm, inputs, fails, problem = load(sys.argv[1])
    count = sum(node.op.startswith("call") for node in gm.graph.nodes)
    print(
        f"{problem['family']}: {count} call nodes, {len(inputs)} inputs, needs {problem['needs']}"
    )
    print(f"fails: {fails(gm, inputs)}; the least that fails: {problem['optimum']}")


if __name__ == "__main__":
    main()
