"""The place of a node in the user's program: `FILE:LINE`, and the path of the module around it.

Both are metadata that Dynamo writes and that dispatch and most passes keep. A case on disk has them
in a file of its own, which no result depends on:

    places.json    {"nodes": {"relu": ["net.py:12", "encoder.layers.0"]}}
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import AfterValidator
from torch.fx import GraphModule, Node

from ctk.compiler.torch_compat.dynamo.capture_reasons import LIBRARIES, TORCH
from ctk.compiler.usercode.python_files import working_folder
from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.limits import GRAPH_NBYTES
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.formats.schema import document, read_document

PLACES = "places.json"

_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.M)
_ROOT = re.compile(r"L\['(\w+)'\]\.?")
_MODELS = ("self", "fn")
_INDEX = re.compile(r"\[['\"]?(\w+)['\"]?\]")


_PLACE = re.compile(r'[^"\\]*:\d{1,7}|')


def _check_place(text: str) -> str:
    if _PLACE.fullmatch(text):
        return text
    raise ValueError(f"{quote_value(text)} is not FILE:LINE")


@document
@dataclass(frozen=True, slots=True)
class Places:
    """The document `places.json`: place and module of each node that has one, by its name.

    A node of a subgraph is named with the path of the subgraph: `body.relu`.
    """

    nodes: Mapping[Line, tuple[Annotated[Line, AfterValidator(_check_place)], Line]]

    @classmethod
    def of(cls, gm: GraphModule) -> "Places":
        """Return the places of the nodes of a graph and its subgraphs."""
        found = ((name, (place_of(node), module_of(node))) for name, node in _named_nodes(gm))
        return cls({name: known for name, known in found if any(known)})

    @property
    def last(self) -> str:
        """The place of the last node that has one; empty if none has."""
        return next((place for place, _ in [*self.nodes.values()][::-1] if place), "")

    def restore(self, gm: GraphModule) -> None:
        """Give the places to the nodes of a graph, as metadata of Dynamo."""
        for name, node in _named_nodes(gm):
            place, module = self.nodes.get(name, ("", ""))
            if place:
                file, _, line = place.rpartition(":")
                node.meta["stack_trace"] = f'  File "{file}", line {line}, in forward\n'
            if module:
                node.meta["nn_module_stack"] = {module: (module, torch.nn.Module)}


def read_places(folder: Path) -> Places:
    """Return the places in the folder of a case that has the file.

    Raises:
        CaseError: It is damaged.
    """
    next_step = "copy the folder again, or capture again with CTK_DUMP=DIR"
    return read_document(Places, folder / PLACES, next_step=next_step, limit=GRAPH_NBYTES)


def _named_nodes(gm: GraphModule) -> Iterator[tuple[str, Node]]:
    for path, module in gm.named_modules():
        if isinstance(module, GraphModule):
            yield from ((f"{path}.{node.name}".strip("."), node) for node in module.graph.nodes)


def place_of(node: Node) -> str:
    """Return `FILE:LINE` of the innermost frame of the user's program, or an empty string."""
    stack = node.meta.get("stack_trace")
    file, line = _innermost(stack) if isinstance(stack, str) else ("", "")
    return relative_place(file, line) if file else ""


def relative_place(file: str, line: object) -> str:
    """Return `FILE:LINE`, relative to the working folder for a file in it."""
    path, here = Path(file), working_folder()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


@cache
def _innermost(stack: str) -> tuple[str, str]:
    """Return file and line of the innermost frame outside of libraries, else outside of torch."""
    frames: list[tuple[str, str]] = _FRAME.findall(stack)[::-1]
    for foreign in (LIBRARIES, (TORCH, "<")):
        for frame in frames:
            if not frame[0].startswith(foreign):
                return frame
    return "", ""


def module_of(node: Node) -> str:
    """Return the path of the innermost module whose code a node is: `encoder.layers.0`.

    The nodes of a backward graph have that of the forward node whose gradient they compute.
    """
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        stack = node.meta.get(key)
        if isinstance(stack, Mapping) and stack:
            path, *_ = cast("tuple[Any, ...]", [*stack.values()][-1])
            return shorten_path(str(path))
    return ""


@cache
def shorten_path(path: str) -> str:
    """Return the path of a module without Dynamo's spelling of its root.

    The root of a compiled model is `self`, or `fn` where Dynamo wraps a module of torch.

    >>> shorten_path("L['self'].layers[0].norm")
    'layers.0.norm'
    """
    named = _ROOT.sub(lambda root: "" if root[1] in _MODELS else f"{root[1]}.", path, count=1)
    return _INDEX.sub(r".\1", named).strip(".")
