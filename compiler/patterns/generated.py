"""Patterns written as Python, so that a process loads them instead of tracing them.

With `CTK_GEN_PATTERNS=1` a process traces the patterns of `gen_register_replacement` and writes
them beside the module of the search function: those of `rules.py` into `rules_patterns.py`, one
line per call. The replacement function is not written: each match traces it with its own operands.
A pattern reuses the calls of the patterns before it; of two patterns that differ in one operator
only the first is written as calls:

    n0 = Op(aten.bmm.default, (Var("q"), Var("k")))
    n1 = Op(aten.div.Tensor, (n0, Var("scale")))
    scores_divided = (n1,)

    scores_times = with_target(scores_divided, aten.div.Tensor, aten.mul.Tensor)
"""

import math
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from ctk.compiler.options.environment import generates_patterns
from ctk.compiler.patterns.expression import Dim, Match, Op, Size, Var, ops_of
from ctk.compiler.patterns.insert import TraceFunction
from ctk.compiler.patterns.matcher import Rule, RuleTable, holds
from ctk.compiler.patterns.replacement import Replacement, add_replacement, search_pattern
from ctk.compiler.torch_compat.fx import arguments

WIDTH = 100


def gen_register_replacement(
    unique_name: str,
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[torch.Tensor],
    trace_fn: TraceFunction,
    pass_dicts: RuleTable | Sequence[RuleTable],
    extra_check: Callable[[Match], str | bool | None] = holds,
    scalar_workaround: Mapping[str, float] | None = None,
    exclusive_arg_names: Sequence[str] = (),
) -> Rule:
    """Add a rule as `register_replacement` does, but load its pattern.

    Args:
        unique_name: Name of the rule and of its pattern. `pass_dicts` are tables
            that get the rule; for the other arguments see `Replacement`.

    Raises:
        ValueError: The name is not an identifier, or the function cannot be a pattern.
    """
    replacement = Replacement(
        unique_name,
        search_fn,
        replace_fn,
        example_inputs,
        trace_fn,
        extra_check,
        scalar_workaround=scalar_workaround or {},
        exclusive_arg_names=exclusive_arg_names,
    )
    return add_generated(replacement, pass_dicts)


def add_generated(replacement: Replacement, pass_dicts: RuleTable | Sequence[RuleTable]) -> Rule:
    """Add the rule of a replacement to tables, with the pattern of its file if there is one."""
    if not replacement.name.isidentifier():
        raise ValueError(f"a written pattern needs the name of a variable: {replacement.name!r}")
    return add_replacement(replacement, _pattern(replacement), pass_dicts)


def _pattern(replacement: Replacement) -> tuple[Op, ...]:
    path = path_of(replacement.search_fn)
    if not generates_patterns():
        known = {} if path is None else read(path)
        return known.get(replacement.name) or search_pattern(replacement)
    if path is None:
        raise ValueError(
            f"the pattern {replacement.name} cannot be written: its search function is of "
            f"{replacement.search_fn.__module__}, which has no file; define it in a module"
        )
    pattern = search_pattern(replacement)
    write(replacement.name, pattern, path)
    return pattern


def path_of(function: Callable[..., object]) -> Path | None:
    """Return the file for the patterns of a module, by one of its functions."""
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    return None if file is None else Path(file).with_name(f"{Path(file).stem}_patterns.py")


def read(path: Path) -> dict[str, tuple[Op, ...]]:
    """Return the patterns of a file by name."""
    found = runpy.run_path(str(path)) if path.exists() else {}
    return {name: value for name, value in found.items() if isinstance(value, tuple)}


def write(name: str, pattern: tuple[Op, ...], path: Path) -> None:
    """Write a pattern into a file, beside its other patterns."""
    path.write_text(source_of({**read(path), name: pattern}), encoding="utf-8")


def source_of(patterns: Mapping[str, tuple[Op, ...]]) -> str:
    """Return the source of a file of patterns."""
    body = "\n".join(_statements(patterns))
    parts = [p for p in ("ANY", "Dim", "Op", "Reshape", "Var", "with_target") if p in body]
    imports = "import operator\n\n" if "operator." in body else ""
    imports += "import torch\n\n" if "torch." in body or "aten." in body else ""
    aten = "\naten = torch.ops.aten\n" if "aten." in body else ""
    return (
        '"""Patterns of rules, traced and written with CTK_GEN_PATTERNS=1."""'
        f"\n\n{imports}from ctk.compiler.patterns.expression import {', '.join(parts)}\n{aten}"
        f"{body}\n"
    )


def _statements(patterns: Mapping[str, tuple[Op, ...]]) -> Iterator[str]:
    """Yield the lines of patterns."""
    written: dict[tuple[str, int], str] = {}
    bases: dict[str, tuple[Op, ...]] = {}
    for name, pattern in sorted(patterns.items()):
        yield ""
        found = ((base, _find_change(bases[base], pattern)) for base in bases)
        base, change = next((each for each in found if each[1] is not None), ("", None))
        if change is None:
            yield from _calls(name, pattern, written)
            bases[name] = pattern
        else:
            line = f"{name} = with_target({base}, {', '.join(change)})"
            yield line if len(line) <= WIDTH else line.replace("(", "(\n    ", 1)[:-1] + "\n)"


def _find_change(one: tuple[Op, ...], other: tuple[Op, ...]) -> tuple[str, str] | None:
    """Return the operators `old` and `new` if `with_target(one, old, new)` is the other pattern."""
    pairs = {(a.target, b.target) for a, b in zip(ops_of(*one), ops_of(*other), strict=False)}
    changes = [(_target(old), _target(new)) for old, new in pairs if old is not new]
    if len(changes) != 1:
        return None
    old, new = changes[0]
    changed = [line.replace(f"({old},", f"({new},") for line in _calls("", one, {})]
    return (old, new) if changed == [*_calls("", other, {})] else None


def _calls(
    name: str, pattern: tuple[Op, ...], written: dict[tuple[str, int], str]
) -> Iterator[str]:
    """Yield `n1 = Op(...)` for each call of a pattern that is not written yet, and `NAME = (n1,)`.

    Two equal calls of one pattern stay two statements: they match two nodes.
    """
    names: dict[Op, str] = {}
    equal = Counter[str]()
    for part in ops_of(*pattern):
        args = _text(tuple(part.operands), names)
        call = f"{type(part).__name__}({_target(part.target)}, {args})"
        equal[call] += 1
        key = call, equal[call]
        if key not in written:
            written[key] = f"n{len(written)}"
            yield f"{written[key]} = {call}"
        names[part] = written[key]
    yield f"{name} = {_text(pattern, names)}"


def _target(target: object) -> str:
    if arguments.argument_kinds(target):
        return str(target)
    return f"{getattr(target, '__module__', '').lstrip('_')}.{getattr(target, '__name__', target)}"


def _text(value: object, names: Mapping[Op, str]) -> str:
    match value:
        case Op():
            return names[value]
        case Var():
            return f'Var("{value.name}")'
        case Dim():
            return f"Dim({value.index})"
        case Size():
            return "ANY"
        case tuple() | list():
            parts = [_text(each, names) for each in cast("Sequence[object]", value)]
            inner = ", ".join(parts)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(parts) == 1 else f"({inner})"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case _:
            return repr(value)
