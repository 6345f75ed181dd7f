"""Explain why a rule did not fire in a compile, on the graphs that its pass received.

A decomposition counts as a rule: `decompose.aten.gelu.default`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ctk.compiler.dispatch.decomposition_table import Operator, decomposable, explain_decomposition
from ctk.compiler.errors import ConfigError, count_of, nearest
from ctk.compiler.observe import PassRecord
from ctk.compiler.passes import PASSES, rule_tables
from ctk.compiler.patterns.matcher import AnyRule, RuleTable, why_not
from ctk.compiler.rewriting.stage_passes import Step
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.compile_log.recorder import CompileLog

DECOMPOSE = "decompose."


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The effect of a rule, or a whole pass, in one run of the pass.

    Attributes:
        reason: Why there is none; None if there is one, or would be now.
    """

    step: str
    fired: int
    reason: str | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.fired:
            said = f"it fired, {count_of(self.fired, 'time')}"
        else:
            said = self.reason or "it may fire, but was vetoed or came too late"
        return "\n  ".join((f"{self.step}: {said}", *self.notes))


def explain_rule(log: CompileLog, name: str, own: Sequence[Step] = ()) -> list[WhyNot]:
    """Return the effect of a rule in each run of its pass, in the order of the compile.

    Args:
        name: A rule, or a pass: all its rules, or the pass itself if it has none.
        own: The user's passes of the compile.

    Raises:
        ConfigError: No pass has such a rule.
    """
    rules = {owner: table.rules for owner, table in rule_tables().items()}
    rules |= {step.name: rules_of_user(step) for step in own}
    passes = {step.name for steps in PASSES.values() for step in steps} | {*rules}
    if name not in passes:
        return _of_rule(log, *_rule_named(name, rules, passes))
    if not rules.get(name):
        return [_explain_pass(record) for record in log.passes() if record.id.name == name]
    return [found for rule in rules[name] for found in _of_rule(log, name, rule)]


def rules_of_user(step: Step) -> tuple[AnyRule, ...]:
    """Return the rules of the tables that a user's pass is, or that its code names."""
    run = step.function if isinstance(step, FunctionPass) else type(step).run
    if isinstance(run, RuleTable):
        return run.rules
    code, names = getattr(run, "__code__", None), getattr(run, "__globals__", {})
    found = [names.get(name) for name in (code.co_names if code is not None else ())]
    tables = [each for each in found if isinstance(each, RuleTable)]
    return tuple(rule for table in tables for rule in table.rules)


def _explain_pass(record: PassRecord) -> WhyNot:
    fired = sum(not rewrite.vetoed for rewrite in record.rewrites)
    reason = "it was vetoed" if record.vetoed else "it rewrote nothing"
    return WhyNot(str(record.id), fired, None if fired else reason, record.notes)


def _of_rule(log: CompileLog, owner: str, rule: AnyRule) -> list[WhyNot]:
    name = rule.name
    found: list[WhyNot] = []
    for record in log.passes():
        if record.id.name == owner:
            fired = sum(
                rewrite.id.rule == name and not rewrite.vetoed for rewrite in record.rewrites
            )
            reason = None if fired else why_not(rule, record.before.graph)
            found.append(WhyNot(f"{record.id}: {name}", fired, reason))
    return found


def explain_operator(log: CompileLog, name: str, chosen: tuple[str, ...]) -> WhyNot:
    """Return whether an operator was decomposed in a compile, and why not.

    Args:
        name: `decompose.`, and the operator.
        chosen: The operators to decompose, by `Config.decompositions`.

    Raises:
        ConfigError: No operator of the compile or of the decomposition table has this name.
    """
    step, operator = f"dispatch/{name}", name.removeprefix(DECOMPOSE)
    records = [each for each in log.passes() if str(each.id).startswith(step)]
    if any(not record.vetoed for record in records):
        return WhyNot(step, sum(len(record.decomposed) for record in records) or 1, None)
    if records:
        return WhyNot(step, 0, "it was vetoed")
    return WhyNot(step, 0, explain_decomposition(_operator_named(log, operator), chosen).why)


def _operator_named(log: CompileLog, name: str) -> Operator:
    """Return an operator of the graphs of a compile or of the decomposition table."""
    calls = [n for s in log.stages() for n in s.graph.graph.nodes if n.op == "call_function"]
    known = {str(each): each for each in [*decomposable(), *(node.target for node in calls)]}
    if name not in known:
        raise ConfigError(
            f"no operator is called {name!r}{nearest(name, known)}; write it with its overload, "
            "as in decompose.aten.gelu.default"
        )
    return known[name]


def _rule_named(
    name: str, rules: Mapping[str, Sequence[AnyRule]], passes: Collection[str]
) -> tuple[str, AnyRule]:
    known = {rule.name: (owner, rule) for owner, table in rules.items() for rule in table}
    if name not in known:
        raise ConfigError(
            f"no rule or pass is called {name!r}{nearest(name, {*known, *passes})}; "
            f"known: {', '.join(known)}, and the passes of docs/passes.md"
        )
    return known[name]
