"""Which operators dispatch takes apart, and why.

    Config(decompositions=("core_aten", "-aten.gelu", "aten.silu.default"))

takes apart what the table `core_aten` does, but not `gelu`, and `silu` as well. With nothing named,
operators stay whole: the code generators call eager's kernels, which round as eager does.

1. A name of `TABLES` adds its operators, less those that `KEPT` has a reason for.
2. `namespace.operator` or `namespace.operator.overload` adds one, whatever `KEPT` says of it.
3. The same behind a minus keeps it whole, of a table all that it has.
Later entries win. An operator that its own decomposition comes back to, by way of another table's,
stays whole there. What is made of others in C++ (`linear`) is taken apart before it comes here.
What it does not do: decompose. AOTAutograd applies the table while it traces (`decompositions.py`).

Source: `aot_module_simplified(decompositions=...)`, `torch.export`'s `CustomDecompTable`; Inductor
has one table for all compiles.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps

import torch

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.torch_compat.aot import decompositions as torch_tables
from ctk.compiler.torch_compat.fx.operators import declared_by

Operator = Callable[..., object]
Decomposition = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Table:
    """Decompositions that are chosen together.

    Attributes:
        about: What they lead to.
        load: Imports and returns them.
    """

    about: str
    load: Callable[[], Mapping[Operator, Decomposition]]


TABLES: Mapping[str, Table] = {
    "core_aten": Table("to the core ATen operators, as torch.export does", torch_tables.core_aten),
    "inductor": Table("to what Inductor has lowerings for", torch_tables.inductor),
}


def _is_random(operator: Operator) -> bool:
    declared = declared_by(operator)
    return declared is not None and declared.random


def _cancels(operator: Operator) -> bool:
    return operator is torch.ops.aten.soft_margin_loss_backward.default


KEPT: Mapping[str, Callable[[Operator], bool]] = {
    "it draws random numbers, and its decomposition would draw others than eager": _is_random,
    "its decomposition cancels: float32 gradients are wrong by a tenth": _cancels,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether an operator is taken apart, and why.

    Attributes:
        function: What takes it apart; None if it stays whole.
        why: A reason to print behind the operator's name.
    """

    function: Decomposition | None
    why: str


def decomposition_table(chosen: tuple[str, ...]) -> Mapping[Operator, Decomposition]:
    """Return what takes which operator apart.

    Args:
        chosen: `Config.decompositions`.

    Raises:
        ConfigError: An entry is no table, and no operator that has a decomposition.
    """
    choices = _choices(chosen)
    return {
        each: _once(each, choice.function) for each, choice in choices.items() if choice.function
    }


_AT_WORK: ContextVar[frozenset[Operator]] = ContextVar(
    "decompositions at work", default=frozenset()
)


def _once(operator: Operator, function: Decomposition) -> Decomposition:
    """Return a decomposition that leaves its operator whole within itself.

    `clamp` of one table calls `clamp_min`, and `clamp_min` of another `clamp`.
    """

    @wraps(function)
    def decompose(*args: object, **kwargs: object) -> object:
        at_work = _AT_WORK.get()
        if operator in at_work:
            return NotImplemented
        token = _AT_WORK.set(at_work | {operator})
        try:
            return function(*args, **kwargs)
        finally:
            _AT_WORK.reset(token)

    return decompose


def explain_decomposition(operator: Operator, chosen: tuple[str, ...]) -> Choice:
    """Return whether an operator is taken apart where these are chosen, and why.

    Raises:
        ConfigError: As `decomposition_table`.
    """
    known = _choices(chosen).get(operator)
    if known is not None:
        return known
    having = [name for name in TABLES if operator in _loaded(name)]
    if having:
        return Choice(None, f"it stays whole: only {' and '.join(having)} would take it apart")
    if operator in torch_tables.every():
        return Choice(None, "it stays whole: no table has it, only its name would take it apart")
    return Choice(None, "it stays whole: torch has no decomposition of it")


def decomposable() -> Iterable[Operator]:
    """Return what can be taken apart by its name."""
    return torch_tables.every().keys()


@cache
def _choices(chosen: tuple[str, ...]) -> Mapping[Operator, Choice]:
    found: dict[Operator, Choice] = {}
    for entry in chosen:
        name = entry.removeprefix("-")
        why_whole = f"it stays whole: {entry} is named"
        if name in TABLES:
            whole = Choice(None, why_whole) if entry != name else None
            found.update({each: whole or _of_table(name, each) for each in _loaded(name)})
        elif entry == name:
            every = torch_tables.every()
            why = f"taken apart: {name} is named"
            found.update({each: Choice(every[each], why) for each in _named(name, every)})
        else:
            known = [*found, *torch_tables.every()]
            found.update(dict.fromkeys(_named(name, known), Choice(None, why_whole)))
    return found


def _of_table(name: str, operator: Operator) -> Choice:
    reason = next((why for why, holds in KEPT.items() if holds(operator)), None)
    if reason is not None:
        return Choice(None, f"it stays whole, though {name} has it: {reason}")
    return Choice(_loaded(name)[operator], f"taken apart: {name} has it")


def _named(name: str, operators: Iterable[Operator]) -> list[Operator]:
    """Return those of the operators that a name, with or without an overload, means."""
    known = {str(each): each for each in operators}
    found = [each for text, each in known.items() if name in (text, text.rpartition(".")[0])]
    if not name or not found:
        raise ConfigError(
            f"decompositions names {name!r}{nearest(name, [*TABLES, *known])}; allowed: the tables "
            f"{' and '.join(TABLES)}, and operators that torch takes apart, as aten.gelu or "
            "aten.gelu.default, with a minus to keep them whole"
        )
    return found


@cache
def _loaded(name: str) -> Mapping[Operator, Decomposition]:
    return TABLES[name].load()
