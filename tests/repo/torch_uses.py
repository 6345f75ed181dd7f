"""The uses of private names of torch in `compiler/torch_compat`: names, keywords, files.

    TracingContext.try_get()            torch._guards.TracingContext.try_get
    ShapeEnv(allow_scalar_outputs=1)    ...symbolic_shapes.ShapeEnv, with its keyword
    Site(OpOverload, "decompose")       torch._ops.OpOverload.decompose
    getattr(exc, "SkipFrame", None)     torch._dynamo.exc.SkipFrame, which may be absent
    context.fw_metadata                 an attribute `.fw_metadata`: its owner is not static

An attribute has no static owner if it is private, is given to `getattr` as a string, or belongs to
the result of a private function. `TABLES` lists the tables of names that code builds up at run
time.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.helpers.project import python_files
from tests.repo.torch_names import COMPAT, FunctionScope, Module, Scope, Value, is_listed

TABLES: Mapping[tuple[str, str], tuple[str, bool]] = {
    ("aot/aot_data.py", "_OBJECTS"): ("torch._functorch._aot_autograd.{}", False),
    ("aot/aot_data.py", "_ENUMS"): ("torch._functorch._aot_autograd.{}", False),
    ("fx/operators.py", "_INTERNAL_FUNCTIONS"): ("torch.{}", True),
    ("fx/operators.py", "_NATIVE_MODULES"): ("torch.{}", False),
    ("process/trace_state.py", "_READ"): ("torch.{}", True),
    ("process/settings.py", "MODULES"): ("{}", False),
}
"""By file and variable: the names that its entries stand for, and whether they may be absent."""


@dataclass(slots=True)
class Use:
    """How a name is used.

    Attributes:
        name: `torch._guards.tracing`; `.fw_metadata` for an attribute without a static owner.
        files: The files of `compiler/torch_compat` with it; true where the code looks first
            whether it is there.
        keywords: Those of its calls.
    """

    name: str
    files: dict[str, bool] = field(default_factory=dict[str, bool])
    keywords: set[str] = field(default_factory=set[str])

    @property
    def is_optional(self) -> bool:
        """Whether each file works without it."""
        return all(self.files.values())


@cache
def uses() -> tuple[Use, ...]:
    """Return every use of a private name, sorted by name."""
    found = Uses()
    for path in python_files("compiler/torch_compat"):
        module = Module.of(path)
        Visitor(module.scope, found).visit_all(module.tree.body)
    for (file, variable), (template, is_optional) in TABLES.items():
        for entry in _entries(Module.of(COMPAT / file).literal(variable)):
            found.add(template.format(entry), file, is_optional=is_optional)
    return tuple(found.by_name[name] for name in sorted(found.by_name))


def _entries(table: Any) -> Iterator[str]:
    """Yield the dotted names of a table: a dict of modules, a tuple, or lines that end in one."""
    if isinstance(table, dict):
        for module, names in table.items():
            each = names.split() if isinstance(names, str) else names
            yield from (f"{module}.{name}" for name in each)
    elif isinstance(table, str):
        yield from (line.split()[-1] for line in table.strip().splitlines())
    else:
        yield from table


class Uses:
    """Collects uses by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Use] = {}

    def add(
        self, name: str, file: str, *, keywords: Iterable[str] = (), is_optional: bool = False
    ) -> None:
        """Add a use of a name; a public name of torch is left out."""
        last = name.rpartition(".")[2]
        is_special = last.startswith("__") and last not in _PATCHED
        if is_special or "ctk" in name or not (name.startswith(".") or is_listed(name)):
            return
        use = self.by_name.setdefault(name, Use(name))
        use.files[file] = use.files.get(file, False) or is_optional
        use.keywords.update(keywords)


_PATCHED = ("__call__", "__enter__", "__exit__", "__init__")
_PYTHONS = (BaseException, CodeType, FunctionType, Path, dict, int, list, set, str, tuple)


_PYTHONS_OWN = ("_threads", "rel_op")  # of each `ThreadPoolExecutor`; of relations of sympy


def _is_pythons(name: str) -> bool:
    """Return whether an attribute belongs to an object of Python, so that it is of any owner."""
    return name in _PYTHONS_OWN or any(hasattr(kind, name) for kind in _PYTHONS)


class Visitor:
    """Adds the uses in the statements of one scope."""

    def __init__(
        self, scope: Scope, found: Uses, *, is_optional: bool = False, file: str = ""
    ) -> None:
        self.scope, self.found, self.is_optional = scope, found, is_optional
        self.file = file or scope.module.file
        self.keeps_keywords = True

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        """Visit nodes in order."""
        for node in nodes:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Add the uses in a node and below it."""
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                self._visit_definition(node)
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                scope = Scope(self.scope.module, self.scope, node, depth=self.scope.depth)
                self._inside(scope, is_optional=self.is_optional).visit_all(
                    ast.iter_child_nodes(node)
                )
                return
            case ast.Import() | ast.ImportFrom():
                self._visit_import(node)
            case ast.Attribute():
                self._visit_attribute(node)
                return
            case ast.Call():
                self._visit_call(node)
                return
            case ast.If() if "hasattr(" in ast.unparse(node.test):  # one version's call
                self.visit(node.test)
                inner = self._inside(self.scope, is_optional=self.is_optional)
                inner.keeps_keywords = False
                inner.visit_all((*node.body, *node.orelse))
                return
            case ast.Try() | ast.With() if _tolerates_absence(node):
                inner = self._inside(self.scope, is_optional=True)
                inner.visit_all(ast.iter_child_nodes(node))
                return
            case _:
                pass
        self.visit_all(ast.iter_child_nodes(node))

    def _inside(self, scope: Scope, *, is_optional: bool = False) -> "Visitor":
        return Visitor(scope, self.found, is_optional=is_optional, file=self.file)

    def _add(self, name: str, keywords: Iterable[str] = (), *, is_optional: bool = False) -> None:
        is_optional |= self.is_optional
        keywords = keywords if self.keeps_keywords else ()
        self.found.add(name, self.file, keywords=keywords, is_optional=is_optional)

    def _visit_definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.visit_all(node.decorator_list)
        inner = FunctionScope(self.scope.module, self.scope, node, depth=self.scope.depth)
        if isinstance(node, ast.ClassDef):
            self.visit_all(node.bases)
            bases = [each.text for base in node.bases for each in self.scope.evaluate(base)]
            for method in (each for each in node.body if isinstance(each, ast.FunctionDef)):
                for base in filter(is_listed, bases):
                    self._add(f"{base}.{method.name}")
        else:
            self.visit(node.args)
            self.visit_all([node.returns] if node.returns else [])
        self._inside(inner).visit_all(node.body)

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            owner = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            self._add(f"{owner}{alias.name}")

    def _visit_attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") and node.attr not in _PATCHED:
            self.visit(node.value)
            return
        values = self.scope.evaluate(node.value)
        for value in values:
            if value.kind == "name":
                self._add(f"{value.text}.{node.attr}")
            elif value.kind == "object" and not _is_pythons(node.attr):
                self._add(f".{node.attr}")
        is_private = node.attr.startswith("_") and not node.attr.startswith("__")
        if not values and is_private and not _is_pythons(node.attr):
            is_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_self:
                self._add(f".{node.attr}")
        inner: ast.AST = node.value
        while isinstance(inner, ast.Attribute):  # the longest name is enough
            if any(each.kind != "name" for each in self.scope.evaluate(inner.value)):
                break
            if not self.scope.evaluate(inner):
                break
            inner = inner.value
        self.visit(inner)

    def _visit_call(self, node: ast.Call) -> None:
        keywords = {each.arg for each in node.keywords if each.arg}
        functions = self.scope.evaluate(node.func)
        for function in functions:
            if function.kind == "name":
                self._add(function.text, keywords)
            elif function.kind == "own":
                self._visit_helper(function, node)
        for value in self.scope.evaluate(node):
            if value.kind == "name":
                self._add(value.text)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("getattr", "hasattr", "Site") and len(node.args) > 1:
            self._visit_named(name, node)
        self.visit_all([node.func, *node.args, *node.keywords])

    def _visit_named(self, name: str, node: ast.Call) -> None:
        is_optional = name == "hasattr" or (name == "getattr" and len(node.args) > 2)
        names = self.scope.named_attributes(node)
        for each in names:
            if name == "Site" and not is_listed(each):
                each = f".{each.rpartition('.')[2]}"  # its owner is public, the patch is not
            self._add(each, is_optional=is_optional)
        is_foreign = any(each.kind == "foreign" for each in self.scope.evaluate(node.args[0]))
        if not (names or is_foreign):
            for each in self.scope.evaluate(node.args[1]):
                is_plain = each.text.isidentifier() and not each.text.startswith("__")
                if is_plain and not _is_pythons(each.text):
                    self._add(f".{each.text}", is_optional=is_optional)

    def _visit_helper(self, function: Value, node: ast.Call) -> None:
        """Visit the body of a helper with the texts that it gets here."""
        inner = self.scope.inner(function, node)
        if inner is None or not any(
            value.kind == "text" for values in inner.given.values() for value in values
        ):
            return
        if isinstance(inner.node, ast.FunctionDef):
            self._inside(inner).visit_all(inner.node.body)


def _tolerates_absence(node: ast.Try | ast.With) -> bool:
    """Return whether a block goes on without a name of torch that is not there."""
    if isinstance(node, ast.With):
        texts = [ast.unparse(item.context_expr) for item in node.items]
        return any("suppress(ImportError" in text for text in texts)
    kinds = [ast.unparse(each.type) for each in node.handlers if each.type]
    return any(name in kind for kind in kinds for name in ("ImportError", "AttributeError"))
