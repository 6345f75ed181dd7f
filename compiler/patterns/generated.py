"""Patterns written as Python, so that a process loads what it would have to trace.

`serialized/NAME.py` of a replacement called NAME holds its pattern, one line per call:

    n0 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
    n1 = Op(aten.bmm.default, (Var("q"), n0))
    PATTERN = (n1,)

`ctk gen-patterns` writes the files. With `CTK_GEN_PATTERNS=1` a process traces instead of loading
and writes what it has traced. The replacement function is not written: it is traced with the
operands of each match.
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from ctk.compiler.options.environment import generates_patterns
from ctk.compiler.patterns.expression import Dim, Match, Op, Size, Var, ops_of
from ctk.compiler.patterns.insert import TraceFunction
from ctk.compiler.patterns.matcher import Rule, RuleTable, holds
from ctk.compiler.patterns.replacement import Replacement, add_replacement, search_pattern
from ctk.compiler.torch_compat.fx import arguments

FOLDER = Path(__file__).parent / "serialized"
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
    """Add the rule `search_fn -> replace_fn` as `register_replacement` does, loaded, not traced.

    Args:
        unique_name: Of the rule and of the file.
        search_fn: As those behind it: see `Replacement`.
        replace_fn: What is put there.
        example_inputs: One for each tensor argument.
        trace_fn: How both are traced.
        pass_dicts: The tables that get the rule.
        extra_check: A guard.
        scalar_workaround: Scalar arguments.
        exclusive_arg_names: Arguments that must be different nodes.

    Raises:
        ValueError: The name is no name of a module, or the function cannot be a pattern.
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
    """Add the rule of a replacement to tables, with its pattern from the file if there is one."""
    if not replacement.name.isidentifier():
        raise ValueError(f"a written pattern needs the name of a module: {replacement.name!r}")
    return add_replacement(replacement, _pattern(replacement), pass_dicts)


def _pattern(replacement: Replacement) -> tuple[Op, ...]:
    if generates_patterns():
        pattern = search_pattern(replacement)
        path_of(replacement).write_text(source_of(replacement, pattern), encoding="utf-8")
        return pattern
    return load(replacement.name) or search_pattern(replacement)


def load(name: str) -> tuple[Op, ...] | None:
    """Return the pattern of a file; None if there is no such file."""
    module = f"{__package__}.serialized.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    return cast("tuple[Op, ...]", importlib.import_module(module).PATTERN)


def path_of(replacement: Replacement) -> Path:
    """Return where the pattern of a replacement is written."""
    return FOLDER / f"{replacement.name}.py"


def source_of(replacement: Replacement, pattern: tuple[Op, ...]) -> str:
    """Return a pattern as the Python file that makes it."""
    names: dict[Op, str] = {}
    lines: list[str] = []
    for part in ops_of(*pattern):
        names[part] = f"n{len(names)}"
        lines += _statement(part, names)
    results = ", ".join(names[root] for root in pattern)
    lines.append(f"PATTERN = ({results}{',' if len(pattern) == 1 else ''})")
    body = "\n".join(lines)
    return f"{_head(replacement.name, body)}\n{body}\n"


def _head(name: str, body: str) -> str:
    parts = [each for each in ("ANY", "Dim", "Op", "Reshape", "Var") if f"{each}" in body]
    imports = "import operator\n\n" if "operator." in body else ""
    imports += "import torch\n\n" if "torch." in body or "aten." in body else ""
    aten = "\naten = torch.ops.aten\n" if "aten." in body else ""
    return (
        f'"""Pattern `{name}`: written by `ctk gen-patterns`."""\n\n'
        f"{imports}from ctk.compiler.patterns.expression import {', '.join(parts)}\n{aten}"
    )


def _statement(part: Op, names: Mapping[Op, str]) -> list[str]:
    """Return `n1 = Op(...)`, broken as the formatter breaks it."""
    args = _text(tuple(part.operands), names)
    kind = type(part).__name__
    line = f"{names[part]} = {kind}({_target(part.target)}, {args})"
    if len(line) <= WIDTH:
        return [line]
    return [f"{names[part]} = {kind}(", f"    {_target(part.target)}, {args}", ")"]


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
