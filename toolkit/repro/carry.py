"""Carry the toolkit's own functions into a script, as source: the used ones, and no more.

A script that calls `main(GraphProgram(...))` gets `main` and `GraphProgram` from
`repro_templates/`, the functions that these call, and so on; constants, classes and import
statements likewise. A name is looked up as Python does: in the module that uses it, else in the
module from which that imports it. So the script has the toolkit's own code, to the letter, except
that a docstring is cut to its first line.

    script:  check(1)                           carried:  LIMIT = 3
    a.py:    from ctk.b import LIMIT
             def check(x): return x < LIMIT               def check(x): return x < LIMIT
             def unused(): ...

Modules as values (`b.LIMIT`) and star imports are not supported. Two modules must not give one name
to different definitions.
"""

import ast
import graphlib
import importlib.util
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ctk.compiler.usercode.closure import DEFINITIONS, defined_names, names_in, reachable

OURS = "ctk."
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Carried:
    """The code that a script needs besides its own text.

    Attributes:
        source: The definitions, each before its uses.
    """

    imports: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class _Module:
    """A module's text, by name: definitions, and the (module, attribute) of its imports."""

    definitions: Mapping[str, tuple[ast.stmt, str]]
    imports: Mapping[str, tuple[str, str]]


@dataclass(slots=True)
class _Closure:
    wanted: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    imports: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def uses(self, definition: tuple[str, str]) -> Iterable[tuple[str, str]]:
        """Take a name of a module, and return the names that it needs; a builtin needs none."""
        module, name = definition
        parsed = _parse(module)
        if name in parsed.definitions:
            self.wanted.setdefault(module, set()).add(name)
            return [(module, used) for used in names_in(parsed.definitions[name][0])]
        if name not in parsed.imports:
            return []
        source, attribute = parsed.imports[name]
        if not source.startswith(OURS):
            self.imports[name] = source, attribute
            return []
        if attribute != name or not attribute:
            raise ValueError(f"{module} names {source} differently: import {name} as it is")
        return [(source, attribute)]


def carry(text: str, modules: Iterable[str], extra: Iterable[tuple[str, str]] = ()) -> Carried:
    """Return the code of some modules that a script needs.

    Args:
        modules: Modules that may define the names that it uses.
        extra: More (module, name) to carry.

    Raises:
        ValueError: Two modules give one name to different definitions.
    """
    closure = _Closure()
    used = names_in(ast.parse(text))
    starts = [(module, n) for module in modules for n in _parse(module).definitions if n in used]
    reachable([*starts, *extra], closure.uses)
    _check_unique(closure.wanted)
    return Carried(tuple(_statements(closure.imports)), _join(_texts(closure.wanted)))


def _check_unique(wanted: Mapping[str, set[str]]) -> None:
    owners: dict[str, str] = {}
    for module, names in wanted.items():
        for name in names:
            if owners.setdefault(name, module) != module:
                raise ValueError(f"{name} is defined in {owners[name]} and in {module}")


def _join(texts: Iterable[tuple[ast.stmt, str]]) -> str:
    """Return definitions one below the other, constants without empty lines between them."""
    source, was_constant = "", False
    for node, text in texts:
        is_constant = not isinstance(node, DEFINITIONS)
        between = "\n" if is_constant and was_constant else "\n\n\n"
        source, was_constant = f"{source}{between if source else ''}{text}", is_constant
    return source


def _texts(wanted: Mapping[str, set[str]]) -> Iterable[tuple[ast.stmt, str]]:
    """Yield the wanted definitions, modules in the order in which they import each other."""
    needs = {
        module: sorted({each for each, _ in _parse(module).imports.values()} & set(wanted))
        for module in sorted(wanted)
    }
    for module in graphlib.TopologicalSorter(needs).static_order():
        for name, definition in _parse(module).definitions.items():
            if name in wanted[module]:
                yield definition


@cache
def _parse(module: str) -> _Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"{module} has no source that could be carried")
    text = Path(spec.origin).read_text(encoding="utf-8")
    lines, body = text.splitlines(), ast.parse(text).body
    definitions: dict[str, tuple[ast.stmt, str]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        for name in defined_names(node):
            definitions[name] = node, _source(lines, node, following)
        if isinstance(node, ast.Import):
            imports |= {alias.asname or alias.name: (alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            imports |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    return _Module(definitions, imports)


def _source(lines: Sequence[str], node: ast.stmt, following: ast.stmt | None) -> str:
    """Return the lines of a definition, with decorators; of a docstring only the first line."""
    start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    kept = list(lines[: node.end_lineno])
    text = _docstring(node.body[0] if isinstance(node, DEFINITIONS) else following)
    if text:
        first, last = text.lineno, text.end_lineno or text.lineno
        kept[first - 1 : last] = [lines[first - 1] + ('"""' if first < last else "")]
    return "\n".join(kept[start - 1 :])


def _docstring(node: ast.stmt | None) -> ast.Expr | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node
    return None


def _statements(imports: Mapping[str, tuple[str, str]]) -> Iterable[str]:
    """Yield import statements, sorted, of at most 96 columns."""
    names: dict[str, set[str]] = {}
    for name, (source, attribute) in imports.items():
        if attribute:
            as_name = attribute if attribute == name else f"{attribute} as {name}"
            names.setdefault(source, set()).add(as_name)
    modules = {name: source for name, (source, attribute) in imports.items() if not attribute}
    plain = (
        source if source == name else f"{source} as {name}" for name, source in modules.items()
    )
    yield from sorted(f"import {each}" for each in plain)
    for source in sorted(names):
        for chunk in textwrap.wrap(", ".join(sorted(names[source])), _WIDTH - len(source)):
            yield f"from {source} import {chunk.rstrip(',')}"
