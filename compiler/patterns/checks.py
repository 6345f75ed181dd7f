"""Check a rule when it enters a table: a rule that could never match, or never be called, raises.

Faults, each one sentence:
1. the pattern is not a call, a tuple of calls, or `Repeated`
2. a `ListOf` stands inside a list, where it would match a list within the list
3. `same` of a `ListOf` names something that its items do not have
4. the guard, or the replacement, is not a function of its arguments

`Op` and `Repeated` check their own arguments.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import cast

from ctk.compiler.patterns.expression import (
    ListOf,
    Op,
    Pattern,
    Repeated,
    Var,
    ops_of,
    roots_of,
    target_text,
)
from ctk.compiler.patterns.solve import names_of


def check_rule(name: str, pattern: Pattern, function: object, guard: object) -> None:
    """Raise `TypeError` for the first fault of a rule.

    Args:
        name: Of the rule.
        function: Takes the rewriter and a match.
        guard: Takes a match.
    """
    faults = (
        *_pattern_faults(pattern),
        *_function_faults("function", function, "rewriter", "match"),
        *_function_faults("guard", guard, "match"),
    )
    if faults:
        raise TypeError(f"rule {name}: {faults[0]}")


def _pattern_faults(pattern: object) -> Iterator[str]:
    roots = pattern if isinstance(pattern, tuple) else (pattern,)
    is_calls = bool(roots) and all(isinstance(root, Op) for root in roots)
    if not is_calls and not isinstance(pattern, Repeated):
        yield (
            f"its pattern is {pattern!r}; write a call, Op(target, (part, ...)), a tuple of calls, "
            "or Repeated(call, of=call)"
        )
        return
    for op in ops_of(*roots_of(cast("Pattern", pattern))):
        yield from _part_faults(op.operands)


def _part_faults(operands: Sequence[object]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            items = cast("Sequence[object]", operand)
            if any(isinstance(item, ListOf) for item in items):
                yield "a ListOf stands for a whole list: write ListOf(part), not [ListOf(part)]"
            yield from _part_faults(items)
        elif isinstance(operand, ListOf):
            yield from _same_faults(operand)


def _same_faults(part: ListOf) -> Iterator[str]:
    same = cast("object", part.same)
    if not isinstance(same, tuple):
        yield f"same of a ListOf is {same!r}; write a tuple: ({same!r},)"
        return
    names, calls = names_of(part.part), [*ops_of(part.part)]
    for each in cast("tuple[object, ...]", same):
        is_part = each.name in names if isinstance(each, Var) else each in calls
        if not is_part:
            text = target_text(each) if isinstance(each, Op) else repr(each)
            yield f"same of a ListOf names {text}; name a Var or an Op of its items"


def _function_faults(kind: str, function: object, *given: str) -> Iterator[str]:
    takes = f"give a function of ({', '.join(given)})"
    if not callable(function):
        yield f"its {kind} is {function!r}; {takes}"
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin: unknown
        return
    try:
        signature.bind(*given)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        yield f"its {kind} {name} takes {signature}; {takes}"
