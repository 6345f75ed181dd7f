"""Cut the user's files down to the code that some names in them need, for cases and repros.

    job.py                                      the copy, for job.py:fold
    1  import torch, passes_io                  1  import torch, passes_io
    2  API_KEY = "..."                          2
    3  EPS = 1e-5                               3  EPS = 1e-5
    4  def fold(gm): ... EPS ...                4  def fold(gm): ... EPS ...
    5  def inputs(): return load("/private")    5

1. A statement is kept if it binds a wanted name; then all names that it looks up are wanted.
2. A statement is kept if it may change a kept value: it writes into it, passes it to a function
   that does, calls a function of a used module, or registers an operator of a used namespace. An
   import of an unused name is kept, for its effect.
3. A neighbour is cut to the names that are imported from it (`from helper import a`, `helper.a`).
4. Dropped lines become empty, so that tracebacks keep their line numbers. `if __name__ ==
   "__main__"` is dropped.

A file that is not understood is kept whole: with `exec`, `eval` or `globals()` in kept code,
without a binding of a wanted name, a package's `__init__.py`, a neighbour used as a value. A
statement is never cut (`A, SECRET = 1, "..."` is kept), and no code is run.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.usercode.closure import parse_file, reachable
from ctk.compiler.usercode.python_files import import_root
from ctk.compiler.usercode.references import files_of
from ctk.toolkit.case.trust.demands import TORCH_NAMESPACES
from ctk.toolkit.case.usercode.source_file import Import, SourceFile, read_source, text_of
from ctk.toolkit.case.usercode.statements import (
    DEFINITIONS,
    IMPORTS,
    Statement,
    is_main_block,
    may_change,
    names_stored,
    namespaces,
    nodes_run,
    root,
    words,
)

_OPAQUE = frozenset(("exec", "eval", "globals", "__import__"))
_OPAQUE_AT_TOP = _OPAQUE | {"vars", "locals"}
_OPERATORS_OF_TORCH = TORCH_NAMESPACES | {"c10d", "profiler"}


def slice_files(
    wanted: Mapping[Path, frozenset[str] | None], operators: Iterable[str] = ()
) -> dict[Path, bytes]:
    """Return the text of files and of their neighbours, cut down to the code that some names need.

    Args:
        wanted: The names wanted of each file; None for the whole file.
        operators: Namespaces of operators whose registrations are kept.

    Returns:
        The text of each file that is needed, without neighbours that only dropped code imports.

    Raises:
        OSError: A file cannot be read.
    """
    found: dict[Path, bytes] = {}
    roots = {path: import_root(path) for path in wanted}
    folders = dict.fromkeys(roots.values())
    is_nested = any(one != other and one in other.parents for one in folders for other in folders)
    for folder in folders:
        slicer = _Slicer(folder, is_nested, words=set(operators))
        for path, names in wanted.items():
            if roots[path] == folder:
                slicer.ask(path, names)
        found |= slicer.texts()
    return found


@dataclass(slots=True)
class _Slicer:
    """The files of a folder that were reached, and the modules that kept code uses."""

    folder: Path
    cuts_nothing: bool
    files: dict[Path, SourceFile] = field(default_factory=dict[Path, SourceFile])
    packages: set[str] = field(default_factory=set[str])
    words: set[str] = field(default_factory=set[str])
    operators: set[str] = field(default_factory=set[str])

    # --- wanting ---------------------------------------------------------------------------------

    def ask(self, path: Path, names: Iterable[str] | None) -> None:
        file = self._file(path)
        for package in path.relative_to(self.folder).parents:
            if (init := self.folder / package / "__init__.py").is_file() and package.parts:
                self._file(init)
        if names is None or not file.is_python:
            file.is_whole = True
        else:
            file.asked.update(names)
            file.wanted.update(names)

    def texts(self) -> dict[Path, bytes]:
        while True:
            while any(self._keep_more(file) for file in list(self.files.values())):
                pass
            if not (self._find_operators() or self._mark_not_understood()):
                break
        return {path: text_of(file) for path, file in self.files.items()}

    def _file(self, path: Path) -> SourceFile:
        if path not in self.files:
            self.files[path] = file = read_source(path, self.folder)
            is_package = path.name == "__init__.py"
            file.is_whole = self.cuts_nothing or is_package or not file.is_python
        return self.files[path]

    # --- keeping --------------------------------------------------------------------------------

    def _keep_more(self, file: SourceFile) -> bool:
        """Keep the statements that are needed by now; return whether there were new ones."""
        before = len(file.kept)
        for number, statement in enumerate(file.statements):
            if number not in file.kept and self._is_needed(file, number, statement):
                self._keep(file, number)
        return len(file.kept) > before

    def _keep(self, file: SourceFile, number: int) -> None:
        """Keep a statement; want the names that it looks up, here and in the neighbours."""
        file.kept.add(number)
        statement = file.statements[number]
        file.wanted |= statement.uses
        if _is_second_name(statement, file.data_names()):
            file.wanted |= statement.binds
        nodes = list(statement.walk())
        self.words |= words(iter(nodes))
        self.operators |= set(_operator_namespaces(nodes))
        used = [meaning for name in statement.uses for meaning in file.meanings(name)]
        self.packages |= {each.package for each in (*used, *file.imports.get(number, ()))}
        for each in file.imports.get(number, ()):
            self._import(each)
        for name in _names_of(nodes):
            for meaning in file.meanings(name):
                if meaning.file and not meaning.attribute:
                    self.ask(meaning.file, _attributes_of(name, nodes))

    def _import(self, each: Import) -> None:
        for path in each.runs:
            self._file(path)
        if each.file and each.attribute:
            self.ask(each.file, None if each.attribute == "*" else [each.attribute])

    def _is_needed(self, file: SourceFile, number: int, statement: Statement) -> bool:
        if file.is_whole or statement.binds & file.wanted:
            return True
        nodes = statement.nodes
        if any(isinstance(node, IMPORTS) for node in nodes):
            return _is_special(nodes) or _is_unused(file, file.imports.get(number, ()))
        return any(self._has_effect(file, node, statement) for node in nodes)

    def _has_effect(self, file: SourceFile, node: ast.stmt, statement: Statement) -> bool:
        """Return whether a statement that binds no wanted name may change a kept value."""
        if is_main_block(node):
            return False
        own, run = file.locals(), list(nodes_run(node))
        is_definition = isinstance(node, DEFINITIONS)
        is_assignment = isinstance(node, (ast.Assign, ast.AnnAssign))
        if not is_definition and not is_assignment and statement.uses & own:
            return True
        stored = {name for each in run for name in names_stored(each)}
        called = {root(each.value) for each in run if isinstance(each, ast.Expr)}
        if stored & own or any(self._is_used(file, name) for name in stored | called):
            return True
        changed = may_change(iter(run)) & file.data_names()
        return bool(
            changed
            or _is_second_name(statement, file.data_names())
            or namespaces(iter(run)) & self.words
            or (is_definition and self._registers(file, node, own))
            or any(self._call_changes(file, name) for name in _calls_of(node, run))
        )

    def _registers(self, file: SourceFile, node: ast.stmt, own: set[str]) -> bool:
        """Return whether a decorator or a base class may register a definition in kept code."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        calls = (
            decorator.func if isinstance(decorator, ast.Call) else decorator
            for decorator in decorators
        )
        of_a_kept = any(root(call) in own for call in calls if isinstance(call, ast.Attribute))
        bases = {root(each) for each in getattr(node, "bases", ())} & own
        return of_a_kept or any(
            "__init_subclass__" in words_of or "__subclasses__" in self.words or is_meta
            for base in bases
            for words_of, is_meta in map(_class_facts, file.binding(base or ""))
        )

    def _is_used(self, file: SourceFile, name: str | None) -> bool:
        """Return whether a name is an import of a module that kept code uses."""
        return any(
            meaning.file in self.files if meaning.file else meaning.package in self.packages
            for meaning in file.meanings(name or "")
        )

    # --- effects of calls -----------------------------------------------------------------------

    def _call_changes(self, file: SourceFile, name: str) -> bool:
        """Return whether a call of a function may change values or operators that stay."""
        for path, called in reachable([(file.path, name)], self._uses):
            used = self.files[path]
            for statement in used.binding(called):
                changed = may_change(statement.walk()) & used.data_names()
                if changed or namespaces(statement.walk()) & self.words:
                    return True
        return False

    def _uses(self, definition: tuple[Path, str]) -> Iterator[tuple[Path, str]]:
        path, name = definition
        for statement in self.files[path].binding(name):
            yield from ((path, used) for used in statement.uses)
        for meaning in self.files[path].meanings(name):
            if meaning.file in self.files and meaning.attribute:
                yield meaning.file, meaning.attribute

    # --- ends -----------------------------------------------------------------------------------

    def _find_operators(self) -> bool:
        """Keep the imports that may register used operators; return whether there were any."""
        missing = self.operators - _OPERATORS_OF_TORCH
        for file in self.files.values():
            for statement in file.kept_statements():
                missing -= namespaces(statement.walk())
        operators = [
            (file, number)
            for file in self.files.values()
            for number, imports in file.imports.items()
            if missing and number not in file.kept and _may_register(imports, missing)
        ]
        for file, number in operators:
            self._keep(file, number)
        return bool(operators)

    def _mark_not_understood(self) -> bool:
        """Keep files whole that are not understood; return whether there were new ones."""
        files = [file for file in self.files.values() if not file.is_whole]
        marked = [file for file in files if _is_not_understood(file)]
        for file in marked:
            file.is_whole = True
        return bool(marked)


def _attributes_of(name: str, nodes: Sequence[ast.AST]) -> set[str] | None:
    """Return the attributes of a module that code names; None if it uses the module otherwise."""
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    reads = [node for node in nodes if isinstance(node, ast.Attribute) and node.value in uses]
    return {node.attr for node in reads} if len(reads) == len(uses) else None


def _operator_namespaces(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield `my` of `torch.ops.my`."""
    attributes = (node for node in nodes if isinstance(node, ast.Attribute))
    for node in attributes:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "ops":
            yield node.attr


def _may_register(imports: Iterable[Import], missing: set[str]) -> bool:
    """Return whether an import may register operators: any but a neighbour without them."""
    return any(
        each.file is None
        or any(
            namespaces(ast.walk(tree)) & missing
            for path in each.runs
            for file in files_of(path)
            if (tree := parse_file(file))
        )
        for each in imports
    )


# --- facts of statements ------------------------------------------------------------------------


def _is_special(nodes: Iterable[ast.stmt]) -> bool:
    """Return whether an import always stays: of the future, and of all names of a module."""
    return any(
        isinstance(node, ast.ImportFrom) and (node.module == "__future__" or _is_star(node))
        for node in nodes
    )


def _is_second_name(statement: Statement, names: set[str]) -> bool:
    """Return whether a statement gives a value, or a part of it, a second name: `B = A`."""
    return any(
        isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript))
        and root(node.value) in names
        for node in statement.nodes
    )


def _is_unused(file: SourceFile, imports: Iterable[Import]) -> bool:
    used = {name for statement in file.statements for name in statement.uses}
    names = [each.name for each in imports]
    return bool(names) and not used.intersection(names)


def _calls_of(node: ast.stmt, run: Iterable[ast.AST]) -> set[str]:
    """Return the names of functions that a statement calls when it runs, decorators included."""
    calls = {root(each.func) for each in run if isinstance(each, ast.Call)}
    calls |= {root(each) for each in getattr(node, "decorator_list", ())}
    calls |= {root(each) for each in getattr(node, "bases", ())}  # to derive calls the base class
    return {name for name in calls if name}


def _class_facts(statement: Statement) -> tuple[set[str], bool]:
    """Return the names of the functions in a class, and whether it has class keywords."""
    nodes = list(statement.walk())
    names = {node.name for node in nodes if isinstance(node, DEFINITIONS)}
    return names, any(isinstance(node, ast.ClassDef) and node.keywords for node in nodes)


def _is_not_understood(file: SourceFile) -> bool:
    top = [node for statement in file.statements for node in statement.nodes]
    run = (each for node in top if not is_main_block(node) for each in nodes_run(node))
    kept = (node for statement in file.kept_statements() for node in statement.walk())
    if _names_of(kept) & _OPAQUE or _names_of(run) & _OPAQUE_AT_TOP:
        return True
    bound = {name for each in file.statements for name in each.binds}
    has_star = any(map(_is_star, top))
    return "__getattr__" in bound or not (has_star or file.asked <= bound)


def _names_of(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
