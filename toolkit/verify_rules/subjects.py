"""What is verified: each rule of a table by itself, and each pass that makes its rewrites itself.

A rule belongs to the pass whose module holds its table; without one it counts as exact.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from ctk.compiler.observe import Numerics, Stage
from ctk.compiler.passes import PASSES
from ctk.compiler.patterns.lazy import LazyTable
from ctk.compiler.patterns.matcher import AnyRule, HandlerRule, Rule, RuleTable, apply_rules
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.examples import seeds_in
from ctk.toolkit.verify_rules.mentioned import mentioned
from ctk.toolkit.verify_rules.pass_patterns import GENERAL, around
from ctk.toolkit.verify_rules.patterns import programs_of, seeds_of
from ctk.toolkit.verify_rules.program import Program

Step = Pass | FunctionPass


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to verify.

    Attributes:
        name: Of the rule; of a whole pass: `any rewrite`.
        step: The pass that makes this rewrite, and no other.
        stage: Where it runs.
        programs: What graphs are built from.
        seeds: Draws to start from: the examples of the module.
        place: Where the pass itself is found: `path/to/file.py:PASS`; empty for one of ours, which
            runs in every compile; None where there is no pass around the rule.
    """

    name: str
    step: Step
    stage: Stage
    programs: tuple[Program, ...]
    seeds: tuple[Draw, ...] = ()
    place: str | None = None

    @property
    def pass_name(self) -> str:
        return self.step.name

    @property
    def numerics(self) -> Numerics:
        return self.step.numerics


@dataclass(frozen=True, slots=True)
class Owner:
    """The pass that a rule is said to belong to."""

    name: str
    numerics: Numerics = "exact"


def rule_subject(
    rule: AnyRule,
    owner: Step | Owner,
    stage: Stage = "joint",
    seeds: tuple[Draw, ...] = (),
    place: str | None = None,
) -> Subject:
    """Return one rule of a pass as a subject: a pass that applies this rule only."""
    table = RuleTable(rule)

    def run(rewriter: Rewriter) -> None:
        apply_rules(rewriter, table)

    step = FunctionPass(owner.name, run, "rewriter", owner.numerics)
    seeds = (*seeds_of(rule), *seeds)
    return Subject(rule.name, step, stage, programs_of(rule.pattern), seeds, place)


WHOLE = "any rewrite"


def subjects_in(module: ModuleType) -> tuple[Subject, ...]:
    """Return what a module has to verify: its rules, or its passes where it has no rules."""
    values = list(vars(module).values())
    steps = [each for each in values if isinstance(each, Pass)]
    steps += [_made(each) for each in values if _is_own_pass(each, module, steps)]
    owner = steps[0] if steps else Owner(module.__name__.rpartition(".")[2])
    rules, seeds = _rules(values), seeds_in(module, stage_of(owner))
    if rules:
        place = _place(module, steps[0]) if steps else None
        stage = stage_of(owner)
        return tuple(rule_subject(rule, owner, stage, seeds, place) for rule in rules)
    programs = around(mentioned(module)) or GENERAL
    return tuple(
        Subject(WHOLE, step, stage_of(step), programs, seeds, _place(module, step))
        for step in steps
    )


UNDRAWN: Mapping[str, str] = {
    "fuse_attention": "a softmax of large scores amplifies any rounding, and the kernels treat "
    "infinite scores otherwise: see docs/limitations.md"
}
"""Passes of ours that are not tried on drawn numbers unless their module is named, and why."""


def our_subjects() -> tuple[Subject, ...]:
    """Return the subjects of our own passes, in the order of their tables."""
    steps = [step for table in PASSES.values() for step in table]
    passes = dict.fromkeys(step for step in steps if step.name not in UNDRAWN)
    modules = dict.fromkeys(sys.modules[type(step).__module__] for step in passes)
    return tuple(subject for module in modules for subject in subjects_in(module))


def _place(module: ModuleType, step: Pass) -> str | None:
    """Return where users of a config find a pass: by an object of the module, or by its class."""
    if any(step in table for table in PASSES.values()):
        return ""
    names = [name for name, each in vars(module).items() if each in (step, type(step))]
    return f"{module.__file__}:{names[0]}" if names and module.__file__ else None


def stage_of(step: Step | Owner) -> Stage:
    """Return the first stage whose table has a pass; `joint` for one that is in none."""
    found: list[Stage] = [stage for stage, table in PASSES.items() if step in table]
    return found[0] if found else "joint"


def _rules(values: Iterable[object]) -> list[AnyRule]:
    found: dict[str, AnyRule] = {}
    for value in values:
        table = value.get() if isinstance(value, LazyTable) else value
        rules = table.rules if isinstance(table, RuleTable) else (table,)
        found |= {rule.name: rule for rule in rules if isinstance(rule, (Rule, HandlerRule))}
    return list(found.values())


def _is_own_pass(value: object, module: ModuleType, made: list[Pass]) -> bool:
    """Return whether a class of this module is a pass of which it has no object."""
    return (
        isinstance(value, type)
        and issubclass(value, Pass)
        and value.__module__ == module.__name__
        and hasattr(value, "name")
        and not any(type(each) is value for each in made)
    )


def _made(kind: object) -> Pass:
    return cast("type[Pass]", kind)()
