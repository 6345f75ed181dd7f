"""The passes that the sources of the installed Inductor name: announced ones, and plain calls."""

import ast
from collections.abc import Iterator
from pathlib import Path

import torch

FOLDER = Path(torch.__file__).parent / "_inductor"

STAGES = {
    "pre_grad_passes": "pre_grad.py",
    "fuse_fx": "pre_grad.py",
    "joint_graph_passes": "joint_graph.py",
    "post_grad_passes": "post_grad.py",
}
"""The functions of Inductor that call the passes, and their files in `fx_passes`."""

GRAPHS = ("gm", "graph", "gm.graph", "graph.graph")


def announced_passes() -> frozenset[str]:
    """Return the names given to `GraphTransformObserver`, without those made up at run time."""
    names = {
        node.args[1].value
        for path in sorted(FOLDER.rglob("*.py"))
        for node in _calls(ast.parse(path.read_text()))
        if ast.unparse(node.func).endswith("GraphTransformObserver") and len(node.args) > 1
        if isinstance(node.args[1], ast.Constant)
    }
    return frozenset(str(name) for name in names)


def plain_calls() -> frozenset[str]:
    """Return the functions that the stages call on their graph outside of any announcement."""
    return frozenset(
        ast.unparse(node.func)
        for function, file in STAGES.items()
        for node in _calls(_unannounced(_function(function, file)))
        if node.args and ast.unparse(node.args[0]) in GRAPHS
    )


def _function(name: str, file: str) -> ast.FunctionDef:
    module = ast.parse((FOLDER / "fx_passes" / file).read_text())
    (found,) = (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return found


def _unannounced(function: ast.FunctionDef) -> ast.AST:
    """Return a function without the bodies that `with GraphTransformObserver(...)` announces."""

    class Cut(ast.NodeTransformer):
        def visit_With(self, node: ast.With) -> ast.AST | None:
            is_announced = "GraphTransformObserver" in ast.unparse(node.items[0].context_expr)
            return None if is_announced else self.generic_visit(node)

        def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
            return ast.Constant(None)  # given to an announcer

    return Cut().visit(function)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))
