"""The subjects of verification: each rule of a table, and each pass without a table.

A rule belongs to the pass that uses its table. Its numerics are its own, else those of its pass,
else exact.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.observe import Numerics, Stage
from ctk.compiler.passes import PASSES
from ctk.compiler.patterns.matcher import (
    AnyRule,
    HandlerRule,
    LazyTable,
    Rule,
    RuleTable,
    apply_rules,
)
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.user_passes import FunctionPass, resolve_pass
from ctk.compiler.usercode.python_files import load_file
from ctk.compiler.usercode.references import near_file, search_last, user_traceback
from ctk.toolkit.verify_rules.draws import Draw, DrawProgram
from ctk.toolkit.verify_rules.examples import load_examples
from ctk.toolkit.verify_rules.pass_patterns import GENERAL, Grammar, programs_around
from ctk.toolkit.verify_rules.pass_vocabulary import (
    find_function_mentions,
    find_mentions,
    helpers_of,
    hints_in,
    operators_in,
)
from ctk.toolkit.verify_rules.rule_patterns import programs_of, seeds_of

Step = Pass | FunctionPass
Seeds = Callable[[], tuple[Draw, ...]]


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """A rule or a whole pass to verify.

    Attributes:
        name: Of the rule; of a whole pass: `any rewrite`.
        step: A pass that makes this rewrite only.
        load_seeds: Returns the draws to start from: the examples of the module.
        place: Of the pass: `path/to/file.py:PASS`; empty for a pass of ctk, which runs in every
            compile; None if the rule belongs to no pass.
    """

    name: str
    step: Step
    stage: Stage
    programs: tuple[DrawProgram, ...]
    load_seeds: Seeds = tuple
    place: str | None = None
    grammar: Grammar | None = None

    @property
    def pass_name(self) -> str:
        return self.step.name

    @property
    def numerics(self) -> Numerics:
        return self.step.numerics

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.name}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pass known by name only."""

    name: str
    numerics: Numerics = "exact"


def rule_subject(
    rule: AnyRule,
    owner: Step | Owner,
    stage: Stage = "joint",
    load_seeds: Seeds = tuple,
    place: str | None = None,
    hints: tuple[object, ...] = (),
) -> RuleSubject:
    """Return one rule of a pass as a subject: a pass that applies this rule only."""
    table = RuleTable(rule)

    def run(rewriter: Rewriter) -> None:
        apply_rules(rewriter, table)

    step = FunctionPass(owner.name, run, "rewriter", rule.numerics or owner.numerics)

    @cache
    def seeds() -> tuple[Draw, ...]:
        return (*seeds_of(rule), *load_seeds())

    return RuleSubject(rule.name, step, stage, programs_of(rule.pattern, hints), seeds, place)


WHOLE = "any rewrite"

GRAPH_NAMES = ("graph", "gm", "module", "rewriter", "graph_module")
"""Names of the only parameter of a function that is a pass, where it has no annotation."""


def subjects_in(module: ModuleType, name: str | None = None) -> tuple[RuleSubject, ...]:
    """Return the subjects of a module: its rules, and its passes without a table of rules.

    A plain function of a graph, a module or a rewriter is a pass if no other definition uses it.
    Its numerics are exact unless it has an attribute `numerics`.

    Args:
        name: Of the only object to verify; None: all.
    """
    values = {k: v for k, v in vars(module).items() if name in (None, k)}
    steps = _steps(values, module)
    owners = {table: step for step in steps for table in _tables(steps[step])}
    fallback = next(iter(steps)) if len(steps) == 1 else Owner(module.__name__.rpartition(".")[2])
    tables = _tables(values.values())
    every = (mention for known in vars(module) for mention in find_mentions(module, known))
    hints = hints_in(every if tables else ())
    examples = cache(partial(load_examples, module))
    rules = [
        rule_subject(
            rule,
            owner := owners.get(table, fallback),
            stage_of(owner),
            partial(examples, stage_of(owner)),
            _place(module, table if isinstance(owner, Owner) else owner),
            hints,
        )
        for table in tables
        for rule in table.rules
    ]
    whole = [step for step in steps if step not in owners.values()]
    whole += _function_passes(values, module, is_named=name is not None)
    return (*rules, *(_whole(module, step, partial(examples, stage_of(step))) for step in whole))


def _steps(values: Mapping[str, object], module: ModuleType) -> dict[Step, list[object]]:
    """Return the passes of a module, instances and classes without one, with their mentions."""
    made = [value for value in values.values() if isinstance(value, Pass)]
    made = [each for each in made if type(each).__module__ == module.__name__]
    kinds = [
        value for value in values.values() if isinstance(value, type) and issubclass(value, Pass)
    ]
    own = [kind for kind in kinds if kind.__module__ == module.__name__ and hasattr(kind, "name")]
    made += [each() for each in own if each not in map(type, made)]
    return {enable_pass(step): list(find_mentions(module, type(step).__name__)) for step in made}


def enable_pass(step: Pass) -> Pass:
    """Return a pass with its option `enabled` switched on, in place of off or `auto`."""
    on = {False: True, "auto": "always"}.get(getattr(step, "enabled", True))
    return step if on is None else replace(cast("Any", step), enabled=on)


def _function_passes(
    values: Mapping[str, object], module: ModuleType, *, is_named: bool
) -> list[Step]:
    """Return the public functions of a module whose only argument is a graph to change."""
    helpers = set[str]() if is_named else helpers_of(module)
    return [
        replace(
            cast("FunctionPass", resolve_pass(value)), numerics=getattr(value, "numerics", "exact")
        )
        for name, value in values.items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and name not in helpers
        and (is_named or _takes_graph(value))
    ]


def _takes_graph(function: FunctionType) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1:
        return False
    annotation = parameters[0].annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    is_annotated = text.rpartition(".")[2] in ("Graph", "GraphModule", "Rewriter")
    return is_annotated or parameters[0].name in GRAPH_NAMES


def _whole(module: ModuleType, step: Step, load_seeds: Seeds) -> RuleSubject:
    if isinstance(step, FunctionPass):
        values = list(find_function_mentions(step.function, module))
    else:
        values = list(find_mentions(module, type(step).__name__))
    targets, hints = operators_in(values), hints_in(values)
    programs = programs_around(targets, hints) or GENERAL
    grammar, place = Grammar(tuple(targets), hints), _place(module, step)
    return RuleSubject(WHOLE, step, stage_of(step), programs, load_seeds, place, grammar)


UNDRAWN: Mapping[str, str] = {
    "fuse_attention": "a softmax of large scores amplifies any rounding, and the kernels treat "
    "infinite scores otherwise: see docs/limitations.md",
    "replace_random": "it draws other numbers on purpose: they are held by statistics",
    "sample_by_gumbel_max": "a row with a NaN or +inf, which drawn operands hold, gives the "
    "position of that number on purpose",
    "chunk_losses": "a drawn product is small, and its results are not those of a loss: "
    "`tests/unit/passes/test_chunk_losses.py` tries random losses",
    "reinplace_operators": "operators that write are those of a program, so none is drawn: "
    "`tests/unit/passes/test_reinplace_operators.py` tries random programs",
    "fuse_quantized": "oneDNN's layers of integers crash the process on operands that drawing "
    "changes; drawn programs of `tests/properties/test_quantized_properties.py` try it",
    "prepack_recurrent": "oneDNN's LSTM crashes the process on operands that drawing changes; "
    "`tests/unit/passes/test_frozen_layers.py` tries it on models",
}
"""Passes of ctk that are tried only if their module is named, and the reasons."""


def our_subjects() -> tuple[RuleSubject, ...]:
    """Return the subjects of the passes of ctk, in the order of their tables."""
    steps = [step for table in PASSES.values() for step in table]
    passes = dict.fromkeys(step for step in steps if step.name not in UNDRAWN)
    modules = dict.fromkeys(sys.modules[type(step).__module__] for step in passes)
    return tuple(subject for module in modules for subject in subjects_in(module))


def _place(module: ModuleType, step: Step | RuleTable) -> str | None:
    """Return the reference to a pass for a config: to an object of the module, or its class."""
    if any(_is_in(step, table) for table in PASSES.values()):
        return ""
    known: list[object] = [step]
    if not isinstance(step, RuleTable):
        known.append(step.function if isinstance(step, FunctionPass) else type(step))
    names = [name for name, each in vars(module).items() if any(each is one for one in known)]
    return f"{module.__file__}:{names[0]}" if names and module.__file__ else None


def _is_in(step: object, table: Iterable[Pass]) -> bool:
    return any(type(step) is type(each) for each in table)


def stage_of(step: Step | Owner) -> Stage:
    """Return the first stage whose table holds a pass; `joint` without one."""
    stages: list[Stage] = [stage for stage, table in PASSES.items() if _is_in(step, table)]
    return stages[0] if stages else "joint"


def _tables(values: Iterable[object]) -> list[RuleTable]:
    """Return the tables among values; rules outside of tables form one more."""
    tables: dict[RuleTable, None] = {}
    known: dict[AnyRule, None] = {}
    for value in values:
        table = value.get() if isinstance(value, LazyTable) else value
        if isinstance(table, RuleTable):
            tables[table] = None
        elif isinstance(table, (Rule, HandlerRule)):
            known[table] = None
    held = {id(rule) for table in tables for rule in table.rules}
    alone = [rule for rule in known if id(rule) not in held]
    return [*tables, RuleTable(*alone)] if alone else list(tables)


def load_rules_module(name: str | Path | ModuleType) -> tuple[ModuleType, str | None]:
    """Load a module by its name or file; return it, and NAME if given as `MODULE:NAME`.

    Raises:
        ConfigError: The file, module or name does not exist, or its code raises.
    """
    if isinstance(name, ModuleType):
        return name, None
    head, _, tail = str(name).rpartition(":")
    is_pair = bool(head) and tail.isidentifier()
    module = _load_module(head if is_pair else name)
    if is_pair and not hasattr(module, tail):
        known = nearest(tail, vars(module))
        raise ConfigError(f"rules in {str(name)!r}: {head} has no {tail!r}{known}")
    return module, tail if is_pair else None


def _load_module(name: str | Path) -> ModuleType:
    path = Path(name).expanduser().resolve() if str(name).endswith(".py") else None
    if path is not None and not path.is_file():
        raise ConfigError(f"rules in {str(name)!r}: no such file: {path}{near_file(path)}")
    try:
        if path is not None:
            return load_file(path)
        with search_last(Path.cwd()):
            return importlib.import_module(str(name))
    except (Exception, SystemExit) as raised:
        raise ConfigError(
            f"rules in {str(name)!r} cannot be loaded: {user_traceback(raised, path)}\n"
            "next: name a module that can be imported, or path/to/file.py"
        ) from raised
