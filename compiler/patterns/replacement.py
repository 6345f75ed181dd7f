"""Rules traced from two functions: a search function and its replacement.

    table = RuleTable()
    register_replacement(
        lambda x: x * torch.sigmoid(x), F.silu, [torch.rand(4)], fwd_only, table, name="silu"
    )

1. The search function is traced with inputs like the examples; the pattern ignores shapes, dtypes
   and devices.
2. If it matches, the search function is traced again with operands of the match's types and must
   match exactly, else `explain` returns the difference.
3. The replacement is traced with the same operands; its results must have the types of the old
   ones. It is inserted through the rewriter: one rewrite, one number.

Source: torch/_inductor/pattern_matcher.py (`register_replacement`). There a failed check is silent
and dtypes are compared in step 1, so that each dtype has a pattern of its own. Here `explain` gives
the reason of every refusal, and step 2 compares dtypes.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.observe import Numerics, first_line
from ctk.compiler.patterns.expression import Match, Op, PatternMismatch
from ctk.compiler.patterns.insert import TraceFunction, insert_graph, unfit
from ctk.compiler.patterns.matcher import Rule, RuleTable, add_to, holds
from ctk.compiler.patterns.solve import matches
from ctk.compiler.patterns.trace_cache import TraceCache
from ctk.compiler.patterns.traced import pattern_of, varying_constants
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import tracing

_CHECKED = "checked replacement"


@dataclass(frozen=True, slots=True)
class _Checked:
    """The exact pattern and the replacement, both traced with operands like those of a match."""

    exact: tuple[Op, ...]
    module: GraphModule


@dataclass(frozen=True, slots=True)
class Replacement:
    """The two functions of a rule and its options.

    Attributes:
        search_fn: Takes tensors, then scalars by name.
        example_inputs: One tensor for each tensor argument; if it requires a gradient, so does the
            argument in the pattern.
        trace_fn: `fwd_only`, `joint_fwd_bwd` or `jvp`.
        extra_check: A guard after the exact check: returns why not, or whether the rule may fire.
        check_replacement: Returns why the traced replacement is useless here: `no fused kernel`.
        scalar_workaround: Scalar arguments by name, each with a float or int that occurs nowhere
            else, because tracing turns them into constants.
        exclusive_arg_names: Arguments that must be different nodes.
        before: The passes that run on a graph, and on traces, before the rules.
    """

    name: str
    search_fn: Callable[..., Any]
    replace_fn: Callable[..., Any]
    example_inputs: Sequence[torch.Tensor]
    trace_fn: TraceFunction
    extra_check: Callable[[Match], str | bool | None] = holds
    check_replacement: Callable[[GraphModule], str | None] = field(default=lambda module: None)
    scalar_workaround: Mapping[str, float] = field(default_factory=dict[str, float])
    exclusive_arg_names: Sequence[str] = ()
    before: Sequence[Pass] = ()
    traces: TraceCache[_Checked] = field(default_factory=TraceCache[_Checked])
    numerics: Numerics | None = None

    @property
    def names(self) -> list[str]:
        """The names of the tensor arguments."""
        names = [*inspect.signature(self.search_fn).parameters]
        return [name for name in names if name not in self.scalar_workaround]

    def trace(
        self, function: Callable[..., Any], inputs: Sequence[object], scalars: Mapping[str, object]
    ) -> GraphModule:
        """Trace a function of tensors with these scalars, and run the passes before the rules."""

        def closed(*tensors: Any) -> object:
            return _call(function, tensors, scalars)

        module = self.trace_fn(closed, inputs)
        module.graph.eliminate_dead_code()
        run_stage(module, "joint", self.before, Numbering())
        module.graph.eliminate_dead_code()
        return module


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[torch.Tensor],
    trace_fn: TraceFunction,
    pass_dicts: RuleTable | Sequence[RuleTable],
    extra_check: Callable[[Match], str | bool | None] = holds,
    scalar_workaround: Mapping[str, float] | None = None,
    exclusive_arg_names: Sequence[str] = (),
    *,
    name: str | None = None,
    check_replacement: Callable[[GraphModule], str | None] = lambda module: None,
    before: Sequence[Pass] = (),
    numerics: Numerics | None = None,
) -> Rule:
    """Add the rule `search_fn -> replace_fn` to tables; see `Replacement` for the arguments.

    Raises:
        ValueError: The search function cannot be a pattern, or the arguments do not fit it.
    """
    replacement = Replacement(
        name or getattr(search_fn, "__name__", "replacement"),
        search_fn,
        replace_fn,
        example_inputs,
        trace_fn,
        extra_check,
        check_replacement,
        scalar_workaround or {},
        exclusive_arg_names,
        before,
        numerics=numerics,
    )
    return add_replacement(replacement, search_pattern(replacement), pass_dicts)


def add_replacement(
    replacement: Replacement, pattern: tuple[Op, ...], pass_dicts: RuleTable | Sequence[RuleTable]
) -> Rule:
    """Add the rule of a replacement, whose pattern is known, to tables."""
    rule = Rule(
        replacement.name,
        pattern,
        partial(_put_in, replacement),
        partial(_refusal, replacement),
        keeps_inner=False,
        numerics=replacement.numerics,
    )
    add_to(pass_dicts, rule)
    return rule


def _check(replacement: Replacement) -> None:
    """Raise `ValueError` for arguments that do not fit the search function."""
    names = [*inspect.signature(replacement.search_fn).parameters]
    scalars, exclusive = replacement.scalar_workaround, replacement.exclusive_arg_names
    for what, given in (("scalar_workaround", scalars), ("exclusive_arg_names", exclusive)):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"{what} of the rule {replacement.name} names {unknown[0]!r}, but the arguments of "
                f"its search function are {', '.join(names)}"
            )
    if len({(type(scalar), scalar) for scalar in scalars.values()}) < len(scalars):
        raise ValueError(
            f"two scalars of the rule {replacement.name} have one value in scalar_workaround "
            f"({dict(scalars)}), so their places in the trace are ambiguous; give each its own"
        )
    if len(replacement.names) != len(replacement.example_inputs):
        raise ValueError(
            f"the rule {replacement.name} has {len(replacement.example_inputs)} example inputs for "
            f"the tensor arguments {', '.join(replacement.names)}; give one for each"
        )


def search_pattern(replacement: Replacement) -> tuple[Op, ...]:
    """Trace the search function with its example inputs and return the pattern without shapes.

    Constants that depend on a scalar argument, such as `1 / (1 - p)`, are found by a second trace
    with another value, and match anything: the exact check compares them.
    """
    _check(replacement)
    mode = fake.new_fake_mode()
    inputs = [
        tracing.fake_like(each, mode, requires_grad=each.requires_grad)
        for each in replacement.example_inputs
    ]
    scalars = replacement.scalar_workaround
    module = replacement.trace(replacement.search_fn, inputs, scalars)
    varying: frozenset[tuple[str, int]] = frozenset()
    if scalars:
        others = {name: _another(value) for name, value in scalars.items()}
        other = replacement.trace(replacement.search_fn, inputs, others)
        varying = varying_constants(module, other)
    by_value = {(type(value), value): name for name, value in scalars.items()}
    return pattern_of(module, replacement.names, exact=False, scalars=by_value, varying=varying)


def _call(
    function: Callable[..., Any], tensors: Sequence[Any], scalars: Mapping[str, object]
) -> object:
    """Call a function with its scalars by name, wherever they stand, and tensors in the rest."""
    if not scalars:
        return function(*tensors)
    free = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if name not in scalars and one.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    return function(**dict(zip(free, tensors, strict=False)), **scalars)


def _another(value: float) -> float:
    return value + 1 if isinstance(value, int) else value * 0.75


def _refusal(replacement: Replacement, match: Match) -> str | None:
    """Return why a replacement must not happen: steps 2 and 3, and the user's own guards."""
    reason = _unbound(replacement, match)
    if reason:
        return reason
    try:
        checked = _checked(replacement, match)
    except Exception as error:
        return f"it cannot be traced with these operands: {first_line(error)}"
    match.notes[_CHECKED] = checked.module
    return (
        _inexact(checked.exact, match)
        or _refusal_text(replacement.extra_check(match))
        or replacement.check_replacement(checked.module)
        or unfit(checked.module, _operands(replacement, match), match.outputs)
    )


def _refusal_text(answer: str | bool | None) -> str | None:
    return (None if answer else "its extra check failed") if isinstance(answer, bool) else answer


def _unbound(replacement: Replacement, match: Match) -> str | None:
    for name in replacement.names:
        if tensor_of(match.bound.get(name)) is None or not isinstance(match.bound[name], Node):
            return f"the argument {name} is {match.bound.get(name)}, no tensor of a known type"
    for name in replacement.scalar_workaround:
        if not isinstance(match.bound.get(name), (int, float)):
            return f"the argument {name} is {match.bound.get(name)}, not a number"
    exclusive = [match.bound[name] for name in replacement.exclusive_arg_names]
    if len(set(exclusive)) < len(exclusive):
        return f"{', '.join(replacement.exclusive_arg_names)} must be different nodes"
    return None


def _checked(replacement: Replacement, match: Match) -> _Checked:
    """Return the exact pattern and the replacement, both traced with operands like the match's."""
    scalars = {name: match.bound[name] for name in replacement.scalar_workaround}

    def trace() -> _Checked:
        search = replacement.trace(replacement.search_fn, _fakes(replacement, match), scalars)
        exact = pattern_of(search, replacement.names, exact=True)
        module = replacement.trace(replacement.replace_fn, _fakes(replacement, match), scalars)
        return _Checked(exact, module)

    operands = [match.node(name) for name in replacement.names]
    return replacement.traces.get(operands, [*scalars.values()], trace)


def _fakes(replacement: Replacement, match: Match) -> list[object]:
    nodes = [match.node(name) for name in replacement.names]
    mode = fake.mode_of([value_of(node) for node in nodes])
    made: list[object] = []
    for node, example in zip(nodes, replacement.example_inputs, strict=True):
        tensor = tensor_of(node)
        assert tensor is not None  # `_unbound` has looked
        made.append(tracing.fake_like(tensor, mode, requires_grad=example.requires_grad))
    return made


def _inexact(exact: tuple[Op, ...], match: Match) -> str | None:
    """Return the mismatch of the search function traced with the operands of the match."""
    missed: list[PatternMismatch] = []
    for found in matches(exact, match.root, missed):
        same = all(match.bound.get(name) is value for name, value in found.bound.items())
        if same and found.outputs == match.outputs:
            return None
    if missed:
        return f"with these operands {max(missed, key=lambda each: each.depth)}"
    return "with these operands other nodes match"


def _put_in(replacement: Replacement, rewriter: Rewriter, match: Match) -> Sequence[Node]:
    module = match.notes[_CHECKED]
    assert isinstance(module, GraphModule)
    return insert_graph(rewriter, module, _operands(replacement, match), match)


def _operands(replacement: Replacement, match: Match) -> list[object]:
    """Return the values of the placeholders of a trace: the arguments, then tangents."""
    extra = sum(name.startswith("extra_") for name in match.bound)
    names = [*replacement.names, *(f"extra_{i}" for i in range(extra))]
    return [match.bound[name] for name in names]
