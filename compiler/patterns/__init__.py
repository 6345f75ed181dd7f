"""Rules as data, and a matcher over ATen graphs that applies them.

A rule is written as a pattern (`Rule`, of `Op`s over `Var`s), traced from two functions
(`register_replacement`; `gen_register_replacement` stores the trace in a file), or a pattern
with a handler that gets each match (`HandlerRule`). `register_rule` and `register_handler` are
decorators. A pass calls `apply_rules(rewriter, table)`.
"""

from ctk.compiler.patterns.expression import (
    ANY,
    Dim,
    ListOf,
    Match,
    Op,
    PatternMismatch,
    Repeated,
    Reshape,
    Size,
    Var,
)
from ctk.compiler.patterns.generated import gen_register_replacement
from ctk.compiler.patterns.insert import fwd_only, joint_fwd_bwd, jvp, replace_by_example
from ctk.compiler.patterns.matcher import (
    HandlerRule,
    LazyTable,
    Rule,
    RuleTable,
    apply_rules,
    explain,
    why_not,
)
from ctk.compiler.patterns.registration import register_handler, register_rule
from ctk.compiler.patterns.replacement import register_replacement

__all__ = [
    "ANY",
    "Dim",
    "HandlerRule",
    "LazyTable",
    "ListOf",
    "Match",
    "Op",
    "PatternMismatch",
    "Repeated",
    "Reshape",
    "Rule",
    "RuleTable",
    "Size",
    "Var",
    "apply_rules",
    "explain",
    "fwd_only",
    "gen_register_replacement",
    "joint_fwd_bwd",
    "jvp",
    "register_handler",
    "register_replacement",
    "register_rule",
    "replace_by_example",
    "why_not",
]
