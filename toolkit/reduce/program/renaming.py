"""Give global names of a program others, where the code that follows it in a script has the same.

    def f(x, leaves):                      def f(x, leaves):                the parameter stays
        return play(x, leaves=leaves)  ->      return play_(x, leaves=leaves)

Parameters and variables of functions, attributes, methods and keywords keep their names: the code
that follows is not in their scope.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

from ctk.toolkit.reduce.program.syntax import names_bound_by

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)


def bindings_of(tree: ast.Module) -> dict[str, str]:
    """Return the names that the top of a file binds, with the imported names behind them.

    >>> bindings_of(ast.parse("import torch.nn as nn; from math import sin; x = 1"))
    {'nn': 'torch.nn', 'sin': 'math.sin', 'x': ''}
    """
    found = dict.fromkeys(_names_bound(tree.body), "")
    for node in _own(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            places = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            found.update(places)
    return found


def clashing(theirs: Mapping[str, str], ours: Mapping[str, str]) -> set[str]:
    """Return the names of a program that the code below it binds to something else."""
    entries = ("model", "inputs", "warmups", "between")
    both = theirs.keys() & ours.keys() - set(entries)
    return {name for name in both if not theirs[name] or theirs[name] != ours[name]}


def rename_names(tree: ast.Module, names: set[str]) -> ast.Module:
    """Return a program, changed in place, in which no global has one of these names."""
    _Renaming(names).visit(tree)
    return tree


class _Renaming(ast.NodeVisitor):
    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._scopes: list[tuple[set[str], bool]] = []  # names of each scope; is it a class?

    def _other(self, name: str) -> str:
        """Return the new name in the current scope: unchanged unless it means a global."""
        around, inner = self._scopes[:-1], self._scopes[-1:]
        seen = [
            *(bound for bound, of_class in around if not of_class),
            *(each for each, _ in inner),
        ]
        is_global = name in self._names and not any(name in bound for bound in seen)
        return f"{name}_" if is_global else name

    def _within(self, bound: set[str], nodes: Iterable[ast.AST], *, of_class: bool = False) -> None:
        self._scopes.append((bound, of_class))
        for node in nodes:
            self.visit(node)
        self._scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        node.name = self._other(node.name)
        for outside in (*node.decorator_list, node.args, *([node.returns] if node.returns else ())):
            self.visit(outside)
        self._within(_parameters(node.args) | _names_bound(node.body), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._within(_parameters(node.args), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        node.name = self._other(node.name)
        for outside in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(outside)
        self._within(_names_bound(node.body), node.body, of_class=True)

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self._other(node.id)

    def visit_Global(self, node: ast.Global) -> None:
        node.names = [self._other(name) for name in node.names]

    def visit_alias(self, node: ast.alias) -> None:
        bound = node.asname or node.name
        if self._other(bound) != bound:
            node.asname = self._other(bound)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, _COMPREHENSIONS):
            self._within(_names_stored(node.generators), ast.iter_child_nodes(node))
            return
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            node.name = self._other(node.name)
        if isinstance(node, ast.MatchMapping) and node.rest:
            node.rest = self._other(node.rest)
        super().generic_visit(node)


def _parameters(arguments: ast.arguments) -> set[str]:
    return {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)}


def _names_bound(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that a scope binds itself, except its declared globals."""
    nodes = list(_own(body))
    bound = {name for node in nodes for name in names_bound_by(node)}
    return bound - {name for node in nodes if isinstance(node, ast.Global) for name in node.names}


def _names_stored(nodes: Iterable[ast.AST]) -> set[str]:
    names = (each for each in _own(nodes) if isinstance(each, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store | ast.Del)}


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes and their descendants, except those in an inner scope."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from _own(ast.iter_child_nodes(node))
