"""Write a captured graph as `class Repro(torch.nn.Module)`, its sub-graphs as classes before it.

The statements are those that FX generates, less its `x = None` deletions and annotations. Constants that the graph
reads become buffers (parameters stay parameters), sub-graphs of `torch.cond` and the like become module attributes.

What it does not do: leaf modules that a graph calls by name (Dynamo captures have none); a `CaseError` names the node.
"""

import copy
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen

from compiler.errors import CaseError
from toolkit.repro_values import Sources, scalar_source, tensor_source

_DELETIONS = re.compile(r";  (?:\w+ = )+None$", re.MULTILINE)
_PROVIDED = ("torch", "inf", "nan", "fx_pytree", "pytree")
_LINE = 100


@dataclass(slots=True)
class ModuleText:
    """The classes of a script.

    Attributes:
        classes: Source of each class, inner ones first; the last is `Repro`.
        imports: Import statements that the classes need besides torch.
    """

    classes: list[str] = field(default_factory=list[str])
    imports: list[str] = field(default_factory=list[str])


def module_text(gm: GraphModule, sources: Sources, symbols: Mapping[str, tuple[str, int]]) -> ModuleText:
    """Write a graph and its sub-graphs as classes.

    Args:
        gm: The graph; it is only read.
        sources: Collects the constants that are too large for a literal.
        symbols: For each placeholder that is a symbolic size: the tensor placeholder and dimension to read it from.

    Raises:
        CaseError: The graph calls a leaf module, or reads an attribute that cannot be written.
    """
    text = ModuleText()
    _add_class(text, gm, "Repro", sources, symbols)
    return text


def placeholder_names(gm: GraphModule) -> list[str]:
    """Return the argument names of `forward`, in order."""
    return [node.name for node in gm.graph.nodes if node.op == "placeholder"]


def _add_class(
    text: ModuleText,
    gm: GraphModule,
    name: str,
    sources: Sources,
    symbols: Mapping[str, tuple[str, int]],
) -> None:
    graph, attributes = _plain_graph(gm)
    init = [_attribute(text, name, key, value, sources) for key, value in attributes.items()]
    code = graph.python_code("self")
    for alias, value in code.globals.items():
        if re.search(rf"\b{alias}\b", code.src):
            _add_import(text, alias, value)
    forward = _forward(code.src, symbols)
    parts = [f"class {name}(torch.nn.Module):"]
    if init:
        body = textwrap.indent("\n".join(["super().__init__()", *init]), "    ")
        parts += [textwrap.indent(f"def __init__(self):\n{body}", "    "), ""]
    parts.append(textwrap.indent(forward, "    "))
    text.classes.append("\n".join(parts))


def _plain_graph(gm: GraphModule) -> tuple[Graph, dict[str, object]]:
    """Return a copy of the graph without annotations, and the attributes that it reads under plain names."""
    graph = copy.deepcopy(gm.graph)
    graph.set_codegen(CodeGen())
    attributes: dict[str, object] = {}
    for node in graph.nodes:
        node.type = None
        if node.op == "placeholder":
            node.target = node.name
        elif node.op in ("get_attr", "call_module"):
            value = _fetch(gm, node)
            node.target = str(node.target).replace(".", "_")
            attributes[node.target] = value
    return graph, attributes


def _fetch(gm: GraphModule, node: Node) -> object:
    value: object = gm
    for part in str(node.target).split("."):
        if not hasattr(value, part):
            raise CaseError(f"node {node.name} reads {node.target}, which the graph module does not have")
        value = getattr(value, part)
    return value


def _attribute(text: ModuleText, owner: str, key: str, value: object, sources: Sources) -> str:
    """Return the statement of `__init__` that sets an attribute; adds the class of a sub-graph."""
    if isinstance(value, GraphModule):
        inner = _class_name(owner, key)
        _add_class(text, value, inner, sources, {})
        return f"self.{key} = {inner}()"
    if isinstance(value, torch.nn.Module):
        raise CaseError(
            f"the graph calls the module {key} ({type(value).__name__}) by name; a repro needs a graph of functions: "
            "capture the program with Dynamo, which inlines modules"
        )
    if isinstance(value, torch.Tensor):
        source = tensor_source(value, f"{owner}.{key}", sources)
        if isinstance(value, torch.nn.Parameter):
            return f"self.{key} = {source}"
        return f'self.register_buffer("{key}", {source})'
    return f"self.{key} = {scalar_source(value, key)}"


def _class_name(owner: str, key: str) -> str:
    camel = "".join(part.capitalize() for part in key.split("_"))
    return camel if owner == "Repro" else f"{owner}{camel}"


def _add_import(text: ModuleText, alias: str, value: object) -> None:
    if alias in _PROVIDED:
        return
    if value is type(None):
        line = "NoneType = type(None)"
    else:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not module or not name or "." in name:
            raise CaseError(f"the graph uses {value!r}, which has no importable name")
        line = f"from {module} import {name}" + (f" as {alias}" if alias != name else "")
    if line not in text.imports:
        text.imports.append(line)


def _forward(src: str, symbols: Mapping[str, tuple[str, int]]) -> str:
    """Return the source of `forward`: FX's own, with each symbolic size read from its tensor."""
    lines = [line for line in _DELETIONS.sub("", src).splitlines() if line.strip()]
    start = next(i for i, line in enumerate(lines) if line.startswith("def forward"))
    sizes = [f"    {name} = {tensor}.size({dim})" for name, (tensor, dim) in symbols.items()]
    head = _fold(lines[start], " " * 8)
    return "\n".join([head, *sizes, *(_fold(line, " " * 8) for line in lines[start + 1 :])])


def _fold(line: str, indent: str) -> str:
    """Break a line between arguments; a line with a string in it stays as it is."""
    if len(line) <= _LINE - 4 or '"' in line or "'" in line:
        return line
    own = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        _LINE - 4,
        initial_indent=own,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
