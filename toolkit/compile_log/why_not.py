"""Why a rule fired nowhere in a compile: asked on the graphs that its pass was given.

A decomposition is a rule, too: `decompose.aten.gelu.default`. What chooses them says why.
"""

from dataclasses import dataclass

from ctk.compiler.decomposition_table import Operator, decomposable, explain_decomposition
from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.passes import rule_tables
from ctk.compiler.patterns.matcher import AnyRule, why_not
from ctk.toolkit.compile_log.recorder import CompileLog

DECOMPOSE = "decompose."


@dataclass(frozen=True, slots=True)
class WhyNot:
    """What a rule did in one run of its pass.

    Attributes:
        step: The pass.
        fired: How often it rewrote.
        reason: Why it did nowhere; None if it did, or would now.
    """

    step: str
    fired: int
    reason: str | None

    def __str__(self) -> str:
        if self.fired:
            return f"{self.step}: it fired, {self.fired} time(s)"
        return f"{self.step}: {self.reason or 'it may fire, but was vetoed or came too late'}"


def why_nots(log: CompileLog, name: str) -> list[WhyNot]:
    """Return what a rule did in each run of its pass, in the order of the compile.

    Raises:
        ConfigError: No pass has such a rule.
    """
    owner, rule = _rule_named(name)
    found: list[WhyNot] = []
    for record in log.passes():
        if record.id.name == owner:
            fired = sum(each.id.rule == name and not each.vetoed for each in record.rewrites)
            reason = None if fired else why_not(rule, record.before.graph)
            found.append(WhyNot(str(record.id), fired, reason))
    return found


def why_not_decomposed(log: CompileLog, name: str, chosen: tuple[str, ...]) -> WhyNot:
    """Return whether an operator was taken apart in a compile, and why not.

    Args:
        log: Of the compile.
        name: `decompose.`, and the operator.
        chosen: What the compile was told to take apart (`Config.decompositions`).

    Raises:
        ConfigError: No operator of the compile, and none that can be taken apart, is called so.
    """
    step, operator = f"dispatch/{name}", name.removeprefix(DECOMPOSE)
    records = [each for each in log.passes() if str(each.id).startswith(step)]
    if any(not each.vetoed for each in records):
        return WhyNot(step, sum(len(each.decomposed) for each in records) or 1, None)
    if records:
        return WhyNot(step, 0, "it was vetoed")
    return WhyNot(step, 0, explain_decomposition(_operator_named(log, operator), chosen).why)


def _operator_named(log: CompileLog, name: str) -> Operator:
    """Return an operator of the graphs of a compile, or one that can be taken apart."""
    calls = [n for s in log.stages() for n in s.graph.graph.nodes if n.op == "call_function"]
    known = {str(each): each for each in [*decomposable(), *(node.target for node in calls)]}
    if name not in known:
        raise ConfigError(
            f"no operator is called {name!r}{nearest(name, known)}; write it with its overload, "
            "as in decompose.aten.gelu.default"
        )
    return known[name]


def _rule_named(name: str) -> tuple[str, AnyRule]:
    """Return a rule and the name of its pass."""
    known = {
        rule.name: (owner, rule) for owner, table in rule_tables().items() for rule in table.rules
    }
    if name not in known:
        raise ConfigError(
            f"no rule is called {name!r}{nearest(name, known)}; known: {', '.join(known)}"
        )
    return known[name]
