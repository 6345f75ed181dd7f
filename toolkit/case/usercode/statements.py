"""The top-level statements of a Python file: the names that each binds and looks up, its effects.

Python's own compiler (`symtable`) decides which names are global, in every scope:

    def backend(gm, inputs):          binds backend
        return scaled(gm, FACTOR)     looks up scaled, FACTOR; `inputs` is its own
"""

import ast
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)

_OPERATOR = re.compile(r"(\w+)::\w+")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_CHAIN = (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement at the top of a file, or several that share a line.

    Attributes:
        lines: First and last line, from 1; decorators count.
        binds: Names of the module that it binds, or a function in it by `global`.
        uses: Names of the module that it looks up, also in functions and annotations.
    """

    nodes: tuple[ast.stmt, ...]
    lines: tuple[int, int]
    binds: frozenset[str]
    uses: frozenset[str]

    def walk(self) -> Iterator[ast.AST]:
        """Yield all nodes of its trees."""
        for node in self.nodes:
            yield from ast.walk(node)


def statements_of(tree: ast.Module) -> tuple[Statement, ...]:
    """Return the statements of a file, in order.

    Raises:
        SyntaxError: Python parses one, but does not compile it (`return` outside a function).
    """
    groups: list[list[ast.stmt]] = []
    for node in tree.body:
        if groups and _first_line(node) <= _last_line(groups[-1][-1]):
            groups[-1].append(node)
        else:
            groups.append([node])
    return tuple(map(_statement, groups))


def _statement(nodes: Sequence[ast.stmt]) -> Statement:
    text = ast.unparse(ast.Module(list(nodes), []))
    binds, uses = _names(symtable.symtable(text, "statement", "exec"))
    uses |= {name for node in nodes for name in _names_not_seen(node)}
    lines = _first_line(nodes[0]), _last_line(nodes[-1])
    return Statement(tuple(nodes), lines, frozenset(binds), frozenset(uses))


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _names(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Return the names of the module that a scope and its inner scopes bind, and look up."""
    binds, uses = set[str](), set[str]()
    is_module, is_class = table.get_type() == "module", table.get_type() == "class"
    for symbol in table.get_symbols():
        is_bound = symbol.is_assigned() or symbol.is_imported()
        # From Python 3.12 on a comprehension is part of its scope, which `:=` binds a name in.
        is_walrus = is_module and symbol.is_declared_global()
        if is_walrus or (is_bound and (is_module or symbol.is_declared_global())):
            binds.add(symbol.get_name())
        # A name that a class body binds may still be looked up in the module before.
        if symbol.is_referenced() and (is_module or is_class or symbol.is_global()):
            uses.add(symbol.get_name())
    for child in table.get_children():
        inner = _names(child)
        binds, uses = binds | inner[0], uses | inner[1]
    return binds, uses


def _names_not_seen(node: ast.stmt) -> Iterator[str]:
    """Yield names that `symtable` does not count as uses: deleted names, names in annotations."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del):
            yield each.id
        for name in ("annotation", "returns"):
            if isinstance(part := getattr(each, name, None), ast.expr):
                yield from _names_in_annotation(part)


def _names_in_annotation(part: ast.AST) -> Iterator[str]:
    """Yield the names in an annotation, also in the strings of it that are annotations."""
    if isinstance(part, ast.Name):
        yield part.id
    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
        try:
            yield from _names_in_annotation(ast.parse(part.value, mode="eval").body)
        except SyntaxError:  # a text, as in Annotated[int, "a text"]
            return
    elif not (isinstance(part, ast.Subscript) and _last_name(part.value) == "Literal"):
        for child in ast.iter_child_nodes(part):
            yield from _names_in_annotation(child)


# --- effects of an import of the file -----------------------------------------------------------


def nodes_run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run with it: not the bodies of functions and classes."""
    yield node
    if isinstance(node, _SCOPES):
        children = [*getattr(node, "decorator_list", ()), *getattr(node, "bases", ())]
    else:
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from nodes_run(child)


def root(node: ast.AST | None) -> str | None:
    """Return the name that an expression starts with: `a` of `a.b[c].d(e)`."""
    while isinstance(node, _CHAIN):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def names_stored(node: ast.AST) -> Iterator[str]:
    """Yield the names into whose value a node writes: `a` of `a.b = 1`, `a[0] += 1`, `del a.b`."""
    is_part = isinstance(node, (ast.Attribute, ast.Subscript))
    if is_part and not isinstance(node.ctx, ast.Load) and (name := root(node)):
        yield name


def may_change(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the names whose values some nodes may change: stored into, called on, or given away.

    `a.b = 1`, `a.append(1)` and `f(a)` may change `a`; `f(a.b)`, `a + 1` and `print(a)` do not.
    """
    found = set[str]()
    for node in nodes:
        found.update(names_stored(node))
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            found |= {each.id for each in given if isinstance(each, ast.Name)}
            if isinstance(node.func, ast.Attribute) and (name := root(node.func)):
                found.add(name)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.Global):
            found.update(node.names)
    return found


def namespaces(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the namespaces of operators that strings name: `"my::op"`, `Library("my", "DEF")`."""
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(_OPERATOR.findall(node.value))
        if isinstance(node, ast.Call) and _last_name(node.func) == "Library" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value)
    return found


def words(nodes: Iterator[ast.AST]) -> set[str]:
    """Return words that may name an operator's namespace: attributes, and words of strings."""
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
    return found


def is_main_block(node: ast.stmt) -> bool:
    """Return whether a statement runs only in a script: `if __name__ == "__main__":`."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], ast.Eq)
        and {ast.unparse(each) for each in (node.test.left, *node.test.comparators)}
        == {"__name__", "'__main__'"}
    )


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
