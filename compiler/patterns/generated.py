"""Patterns written as Python, so that a process loads them instead of tracing them.

`serialized/FAMILY.py` holds the patterns whose names begin with FAMILY (the first two words of a
name), one function per pattern, one line per call:

    def attention_plain_inference() -> tuple[Op, ...]:
        n0 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
        n1 = Op(aten.bmm.default, (Var("q"), n0))
        return (n1,)

`ctk gen-patterns` writes the files. With `CTK_GEN_PATTERNS=1` a process traces its patterns and
writes them. The replacement function is not written: each match traces it with its own operands.
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
WIDTH = 96  # of a line inside a function


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
        unique_name: Name of the rule and of the function of its pattern. `pass_dicts` are tables
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
        raise ValueError(f"a written pattern needs the name of a function: {replacement.name!r}")
    return add_replacement(replacement, _pattern(replacement), pass_dicts)


def _pattern(replacement: Replacement) -> tuple[Op, ...]:
    if generates_patterns():
        pattern = search_pattern(replacement)
        write(replacement.name, source_of(replacement, pattern))
        return pattern
    return load(replacement.name) or search_pattern(replacement)


def load(name: str) -> tuple[Op, ...] | None:
    """Return the written pattern of a name, or None."""
    module = f"{__package__}.serialized.{family_of(name)}"
    if importlib.util.find_spec(module) is None:
        return None
    make = getattr(importlib.import_module(module), name, None)
    return None if make is None else cast("tuple[Op, ...]", make())


def family_of(name: str) -> str:
    """Return the family of a pattern: `attention_plain` for `attention_plain_mask_training`."""
    return "_".join(name.split("_")[:2])


def path_of(name: str) -> Path:
    """Return the file of a pattern."""
    return FOLDER / f"{family_of(name)}.py"


def read(path: Path) -> dict[str, str]:
    """Return the source of each function of a file of patterns, by name."""
    if not path.exists():
        return {}
    _, *functions = path.read_text(encoding="utf-8").split("\n\n\ndef ")
    return {text.partition("(")[0]: f"def {text.rstrip()}\n" for text in functions}


def write(name: str, source: str) -> None:
    """Write the source of a pattern into the file of its family, beside the other patterns."""
    path = path_of(name)
    text = module_of(family_of(name), {**read(path), name: source})
    path.write_text(text, encoding="utf-8")


def module_of(family: str, functions: Mapping[str, str]) -> str:
    """Return the source of a file of patterns."""
    body = "\n\n".join(functions[name] for name in sorted(functions))
    parts = [part for part in ("ANY", "Dim", "Op", "Reshape", "Var") if part in body]
    imports = "import operator\n\n" if "operator." in body else ""
    imports += "import torch\n\n" if "torch." in body or "aten." in body else ""
    aten = "\naten = torch.ops.aten\n" if "aten." in body else ""
    return (
        f'"""Patterns of the family `{family}`: written by `ctk gen-patterns`."""\n\n'
        f"{imports}from ctk.compiler.patterns.expression import {', '.join(parts)}\n{aten}"
        f"\n\n{body}"
    )


def source_of(replacement: Replacement, pattern: tuple[Op, ...]) -> str:
    """Return the source of the function that makes a pattern."""
    names: dict[Op, str] = {}
    lines: list[str] = []
    for part in ops_of(*pattern):
        names[part] = f"n{len(names)}"
        lines += _statement(part, names)
    lines.append(f"return {_text(pattern, names)}")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def {replacement.name}() -> tuple[Op, ...]:\n{body}\n"


def _statement(part: Op, names: Mapping[Op, str]) -> list[str]:
    """Return the lines of `n1 = Op(...)`, broken as the formatter breaks them."""
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
