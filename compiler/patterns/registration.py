"""Register functions as rules: decorators for replacements and for handlers of matches.

    RULES = RuleTable()

    @register_rule(RULES, Op((torch.relu, "relu"), (Op(torch.relu, (x,)),)))
    def relu_twice(rewriter, match):
        return match.inner[0]

A table is a pass by itself: `Config(custom_passes={"pre_grad": (RULES,)})`.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ctk.compiler.observe import Numerics
from ctk.compiler.patterns.expression import Match, Pattern
from ctk.compiler.patterns.matcher import (
    Guard,
    HandlerRule,
    Results,
    Rule,
    RuleTable,
    add_to,
    holds,
)
from ctk.compiler.rewriting.rewriter import Rewriter

Replacement = TypeVar("Replacement", bound=Callable[[Rewriter, Match], Results])
Handler = TypeVar("Handler", bound=Callable[[Rewriter, Match], object])
Tables = RuleTable | Sequence[RuleTable]


def register_rule(
    tables: Tables,
    pattern: Pattern,
    *,
    name: str | None = None,
    guard: Guard = holds,
    keeps_inner: bool = False,
    numerics: Numerics | None = None,
) -> Callable[[Replacement], Replacement]:
    """Return a decorator that adds a rule, whose replacement is the function, to tables.

    Args:
        name: For reports; by default the name of the function. For the rest see `Rule`.
    """

    def register(function: Replacement) -> Replacement:
        title = name or function.__name__
        add_to(tables, Rule(title, pattern, function, guard, keeps_inner, numerics))
        return function

    return register


def register_handler(
    tables: Tables,
    pattern: Pattern,
    *,
    name: str | None = None,
    guard: Guard = holds,
    keeps_inner: bool = False,
    numerics: Numerics | None = None,
) -> Callable[[Handler], Handler]:
    """Return a decorator that adds a rule, whose matches the function handles, to tables.

    A pattern may be given to several functions, and a function to several patterns.
    """

    def register(function: Handler) -> Handler:
        title = name or function.__name__
        add_to(tables, HandlerRule(title, pattern, function, guard, keeps_inner, numerics))
        return function

    return register
