"""The passes and patterns of the installed Inductor, read from its source without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import torch

FOLDER = Path(torch.__file__).parent / "_inductor" / "fx_passes"
NO_PASSES = {"register_fake", "register_propagate_rule"}
"""Decorators that register neither a pass nor a pattern."""
HELPERS = {
    "freezing_patterns.register_freezing_graph_pattern",
    "freezing_patterns.register_binary_folding_pattern",
    "post_grad.register_lowering_pattern",
}
"""Functions that register the patterns of others."""

CALLED = (
    "auto_chunker.core.chunk",
    "joint_graph.canonicalize_aten_ir_passes",
    "micro_pipeline_tp.micro_pipeline_tp_pass",
    "mkldnn_fusion.grouped_gemm_pass",
    "quantization.concat_linear_woq_int4",
    "quantization.quant_lift_up",
)
"""Passes that others call as functions."""


def names() -> set[str]:
    """Return `file.name` of each: a function with a registering decorator or call, the name that an
    observer, a table or a list of passes gives it, and the patterns of attention."""
    files = (f for f in FOLDER.rglob("*.py") if f.parent.name != "serialized_patterns")
    found = {f"{name_of(f)}.{each}" for f in files for each in _in_file(f)}
    return found.union(CALLED) - HELPERS


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(FOLDER).with_suffix("").parts)


def _in_file(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, outer = todo.pop()
        yield from _named_by(node, outer)
        is_outer = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not outer
        inside = node.name if is_outer else outer
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]


def _named_by(node: ast.AST, outer: str) -> Iterator[str]:
    """Yield the passes that a node names; `outer` is the function of the file around it."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
            for call in calls:
                if _called(call) == "register_fusion":
                    yield from _texts(call.args[:1])
                elif _called(call).startswith("register_") and _called(call) not in NO_PASSES:
                    yield outer or node.name
            if node.name.startswith("_sfdp_pattern_"):
                yield node.name
        case ast.Call():
            called = _called(node)
            if called == "GraphTransformObserver":
                yield from _texts(node.args[1:2])
            elif called == "PatternMatcherPass":
                yield from _texts(each.value for each in node.keywords if each.arg == "pass_name")
            elif called in ("register_replacement", "gen_register_replacement") and outer:
                yield outer
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() as listed):
            if name.endswith("_pass_names"):
                yield from _texts(listed.elts)
        case _:
            return


def _called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "id", None) or getattr(function, "attr", "")


def _texts(nodes) -> Iterator[str]:
    return (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
