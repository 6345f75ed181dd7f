"""Dotted names in `compiler/torch_compat`, read from its source without importing it.

A small interpreter of expressions follows the ways in which a name is written:

    from torch._guards import TracingContext        torch._guards.TracingContext
    shapes = import_module("torch.fx.experimental.symbolic_shapes")
    shapes.ShapeEnv(allow_scalar_outputs=True)      torch.fx.experimental.symbolic_shapes.ShapeEnv
    _inductor("freezing").freeze                    torch._inductor.freezing.freeze, by a helper
    getattr(exc, "SkipFrame", None)                 torch._dynamo.exc.SkipFrame

Values are sets: a name that is bound twice has both values, whatever the order.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.project import ROOT, tree_of

COMPAT = ROOT / "compiler" / "torch_compat"
PACKAGE = "ctk.compiler.torch_compat."
PRIVATE_PACKAGES = ("torch.fx.experimental",)
_PUBLIC_OPERATORS = {"aten", "higher_order", "prims"}
DEEPEST = 4
"""Longest chain of helpers that is followed."""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression's value: a dotted name, a text, an object of torch, items, or own code."""

    kind: str
    text: str = ""
    items: frozenset["Value"] = frozenset()


Values = frozenset[Value]
NONE: Values = frozenset()


def is_private_in_torch(name: str) -> bool:
    """Return whether a dotted name is private in torch; op names below `torch.ops` are not."""
    parts = name.split(".")
    if parts[0] != "torch" or parts[1:2] == ["ops"]:
        return False
    if any(name == package or name.startswith(f"{package}.") for package in PRIVATE_PACKAGES):
        return True
    return any(part.startswith("_") and not part.startswith("__") for part in parts[1:])


def is_listed(name: str) -> bool:
    """Return whether a name is in the table: a private one, an operator, one of `functorch`."""
    first, *rest = name.split(".")
    is_operator = rest[:1] == ["ops"] and not {*rest[1:2]} <= _PUBLIC_OPERATORS
    return is_private_in_torch(name) or is_operator or first == "functorch"


class Module:
    """A file of `compiler/torch_compat`."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file, self.tree = file, tree
        self.scope = Scope(self, None, self.tree)
        self.functions = {
            node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)
        }

    @staticmethod
    @cache
    def of(path: Path) -> "Module":
        """Return the module of a path."""
        return Module(path.relative_to(COMPAT).as_posix(), tree_of(path))

    @staticmethod
    def named(dotted: str) -> "Module | None":
        """Return the module of a dotted name of ctk, if it is one of `compiler/torch_compat`."""
        path = COMPAT / f"{dotted.removeprefix(PACKAGE).replace('.', '/')}.py"
        return Module.of(path) if dotted.startswith(PACKAGE) and path.exists() else None

    def literal(self, variable: str) -> Any:
        """Return the value of a table."""
        (value,) = self.scope.bound[variable]
        assert isinstance(value, ast.expr)
        if isinstance(value, ast.Tuple):  # with an entry that another module gives
            entries = (self.scope.evaluate(each) for each in value.elts)
            return [one.text for entry in entries for one in entry]
        return ast.literal_eval(value)


class Scope:
    """The names of a module or a function, with the expressions that are bound to them."""

    def __init__(
        self,
        module: Module,
        parent: "Scope | None",
        node: ast.AST,
        given: Mapping[str, Values] | None = None,
        depth: int = 0,
    ) -> None:
        self.module, self.parent, self.depth = module, parent, depth
        self.given = dict(given or {})
        self.bound: dict[str, list[ast.expr | Value]] = {}
        self._known: dict[str, Values] = {}
        for child in _within(node):
            self._bind(child)
        if isinstance(node, COMPREHENSIONS):
            for generator in node.generators:
                self._bind(generator)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._add(alias.asname or name, Value("name", name))
            case ast.ImportFrom(module=str(owner)):
                for alias in node.names:
                    name = Value("name", f"{owner}.{alias.name}")
                    self._add(alias.asname or alias.name, name)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._assign(node.target, value)
            case ast.AugAssign():
                self._assign(node.target, node.value)
            case ast.For() | ast.comprehension():
                self._assign(node.target, ast.Starred(node.iter))
            case _:
                pass

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._add(target.id, value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, part in zip(target.elts, value.elts, strict=False):
                self._assign(each, part)

    def _add(self, name: str, value: ast.expr | Value) -> None:
        self.bound.setdefault(name, []).append(value)

    def look_up(self, name: str) -> Values:
        """Return the values of a name."""
        if name in self.given:
            return self.given[name]
        if name in self.bound:
            if name not in self._known:
                self._known[name] = NONE  # while it is evaluated: it may be bound to itself
                values = (
                    _own(each) if isinstance(each, Value) else self.evaluate(each)
                    for each in self.bound[name]
                )
                self._known[name] = frozenset().union(*values)
            return self._known[name]
        if self.parent is not None:
            return self.parent.look_up(name)
        is_function = name in self.module.functions
        return frozenset((Value("own", f"{self.module.file}:{name}"),)) if is_function else NONE

    def evaluate(self, node: ast.expr) -> Values:
        """Return the values that an expression may have, as far as they are known."""
        match node:
            case ast.Constant(value=str(text)):
                return frozenset((Value("text", text),))
            case ast.Name():
                return self.look_up(node.id)
            case ast.Attribute():
                parts = (_part(each, node.attr) for each in self.evaluate(node.value))
                return frozenset().union(*parts)
            case ast.JoinedStr():
                return self._joined(node.values)
            case ast.Tuple() | ast.List() | ast.Set():
                items = frozenset().union(*map(self.evaluate, node.elts))
                return frozenset((Value("items", items=items),))
            case ast.Starred():
                values = self.evaluate(node.value)
                return frozenset(item for each in values for item in each.items)
            case ast.IfExp():
                return self.evaluate(node.body) | self.evaluate(node.orelse)
            case ast.BoolOp():
                return frozenset().union(*map(self.evaluate, node.values))
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                items = Scope(self.module, self, node, depth=self.depth).evaluate(node.elt)
                return frozenset((Value("items", items=items),))
            case ast.Call():
                return self._call(node)
            case _:
                return NONE

    def _joined(self, parts: list[ast.expr]) -> Values:
        texts = {""}
        for part in parts:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            found = {each.text for each in self.evaluate(value) if each.kind == "text"}
            texts = {before + text for before in texts for text in found}
        return frozenset(Value("text", text) for text in texts)

    def _call(self, node: ast.Call) -> Values:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name == "import_module" and node.args:
            texts = self.evaluate(node.args[0])
            return frozenset(Value("name", each.text) for each in texts if each.kind == "text")
        if name == "getattr" and len(node.args) > 1:
            return frozenset(Value("name", each) for each in self.named_attributes(node))
        if name == "cast" and len(node.args) > 1:
            return self.evaluate(node.args[1])
        if name in ("tuple", "list", "sorted", "frozenset", "reversed") and node.args:
            return self.evaluate(node.args[0])
        found: set[Value] = set()
        for function in self.evaluate(node.func):
            if function.kind == "own":
                found |= self._returned(function, node)
            elif function.kind == "name" and is_listed(function.text):
                found.add(Value("object", function.text))
            elif function.kind == "name" and not function.text.startswith("torch"):
                found.add(Value("foreign", function.text))
        return frozenset(found)

    def named_attributes(self, node: ast.Call) -> set[str]:
        """Return the names of `getattr(owner, text)`, `hasattr` and `Site`."""
        owners = self.evaluate(node.args[0])
        texts = {each.text for each in self.evaluate(node.args[1]) if each.kind == "text"}
        return {
            f"{owner.text}.{text}" for owner in owners if owner.kind == "name" for text in texts
        }

    def _returned(self, function: Value, node: ast.Call) -> Values:
        inner = self.inner(function, node)
        if inner is None:
            return NONE
        returned = (each.value for each in _within(inner.node) if isinstance(each, ast.Return))
        return frozenset().union(*(inner.evaluate(each) for each in returned if each))

    def inner(self, function: Value, node: ast.Call) -> "FunctionScope | None":
        """Return the scope of a function of `compiler/torch_compat` in a call of it."""
        file, _, name = function.text.partition(":")
        module = self.module if file == self.module.file else Module.of(COMPAT / file)
        if self.depth >= DEEPEST:
            return None
        definition = module.functions[name]
        names = [each.arg for each in definition.args.args]
        given = dict(zip(names, map(self.evaluate, node.args), strict=False))
        given |= {each.arg: self.evaluate(each.value) for each in node.keywords if each.arg}
        return FunctionScope(module, module.scope, definition, given, self.depth + 1)


class FunctionScope(Scope):
    """The names of a function; a class is one for its body."""

    def __init__(
        self,
        module: Module,
        parent: Scope,
        node: ast.FunctionDef | ast.ClassDef | ast.Lambda,
        given: Mapping[str, Values] | None = None,
        depth: int = 0,
    ) -> None:
        parameters: dict[str, Values] = {}
        if not isinstance(node, ast.ClassDef):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            parameters = {each.arg: NONE for each in every}
        self.node = node
        super().__init__(module, parent, node, {**parameters, **(given or {})}, depth)


def _part(value: Value, name: str) -> Values:
    """Return an attribute of a value."""
    if value.kind == "name":
        return _own(Value("name", f"{value.text}.{name}"))
    return frozenset((value,)) if value.kind in ("object", "foreign") else NONE


def _own(value: Value) -> Values:
    """Return a dotted name; of another file here, the function or the values of the variable."""
    owner, _, name = value.text.rpartition(".")
    module = Module.named(owner)
    if value.kind != "name" or module is None:
        return frozenset((value,))
    return module.scope.look_up(name)


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_INNER = (ast.FunctionDef, ast.ClassDef, *COMPREHENSIONS)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope that are not in an inner one."""
    has_body = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
    waiting: list[ast.AST] = list(node.body) if has_body else []
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, _INNER):
            waiting += ast.iter_child_nodes(each)
