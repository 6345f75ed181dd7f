"""Rules that are traced from two functions: what to search for, and what to put there.

    table = RuleTable()
    register_replacement(
        lambda x: x * torch.sigmoid(x), F.silu, [torch.rand(4)], fwd_only, table, name="silu"
    )

1. The search function is traced with inputs like the examples; the pattern ignores shapes, dtypes
   and devices.
2. Where it matches, the search function is traced again with operands like those of the match and
   must match exactly, or the rule says what differs.
3. The replacement is traced with the same operands; its results must have the types of the old
   ones. It is put in through the rewriter: one rewrite, one number.

Source: torch/_inductor/pattern_matcher.py (`register_replacement`). There a failed check is silent
and dtypes are compared in step 1, so that a pattern is registered for each. Here every refusal is
a sentence that `explain` gives, and step 2 compares dtypes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.observe import Numerics
from ctk.compiler.patterns.expression import Match, Op
from ctk.compiler.patterns.insert import TraceFunction
from ctk.compiler.patterns.matcher import holds
from ctk.compiler.rewriting.base import Pass

CACHE_SIZE = 32
_CHECKED = "checked replacement"


@dataclass(frozen=True, slots=True)
class _Key:
    """What the traces of a match depend on.

    Attributes:
        mode: Whose symbols are in the sizes: the id of a fake mode, which `_Checked` keeps alive.
        types: Of the operands, with sizes and strides.
        scalars: As text: 1 is not 1.0.
        ambient: Settings of the process.
    """

    mode: int | None
    types: tuple[str, ...]
    scalars: tuple[str, ...]
    ambient: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """The exact pattern and the replacement, both traced with operands like those of a match."""

    exact: tuple[Op, ...]
    module: GraphModule
    mode: object


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a rule searches for and what it puts there.

    Attributes:
        name: Of the rule.
        search_fn: Takes tensors, then scalars by name.
        replace_fn: Takes the same.
        example_inputs: A tensor for each tensor argument; one that requires a gradient has one in
            the pattern, too.
        trace_fn: `fwd_only`, `joint_fwd_bwd` or `jvp`.
        extra_check: A guard over the match, after it was checked: returns why not, or whether it
            may fire.
        check_replacement: Returns why the traced replacement is of no use here: `no fused kernel`.
        scalar_workaround: Scalar arguments by name, with a value that stands nowhere else; tracing
            would bake them in.
        exclusive_arg_names: Arguments that must be different nodes.
        before: The passes that run on a graph before the rules do; traces go through them, too.
        kept: What was traced for operands of which types.
        numerics: As in a `Rule`.
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
    kept: dict[_Key, _Checked] = field(default_factory=dict[_Key, _Checked])
    numerics: Numerics | None = None
