"""The choice of operators that dispatch decomposes.

    Config(decompositions=("core_aten", "-aten.gelu", "aten.silu.default"))

decomposes the operators of the table `core_aten` except `gelu`, and also `silu`. By default
operators stay whole: the code generators call eager's kernels, which round like eager.

1. A name of `TABLES` adds its operators, except operators with a reason in `KEPT`.
2. `namespace.operator` or `namespace.operator.overload` adds one, even with a reason in `KEPT`.
3. The same behind a minus keeps the operator or the whole table undecomposed.
Later entries win. An operator inside its own decomposition, by way of another table's, stays whole.
Composite operators of C++ (`linear`) are decomposed before this table applies.
AOTAutograd applies the table during the trace (`decompositions.py`).

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
from ctk.compiler.torch_compat.fx.operators import declared_by, kind_of

Operator = Callable[..., object]
Decomposition = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Table:
    """Decompositions that are chosen together; `about` describes the operators that remain."""

    about: str
    load: Callable[[], Mapping[Operator, Decomposition]]


TABLES: Mapping[str, Table] = {
    "core_aten": Table("to the core ATen operators, as torch.export does", torch_tables.core_aten),
    "inductor": Table("to the operators that Inductor lowers", torch_tables.inductor),
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
    """The choice for one operator: its decomposition (None: it stays whole), and the reason."""

    function: Decomposition | None
    why: str


def decomposition_table(chosen: tuple[str, ...]) -> Mapping[Operator, Decomposition]:
    """Return the chosen decompositions by operator.

    Raises:
        ConfigError: An entry is neither a table nor an operator with a decomposition.
    """
    choices = _choices(chosen)
    return {
        each: _once(each, choice.function) for each, choice in choices.items() if choice.function
    }


def require_decompositions(table: Mapping[Operator, Decomposition]) -> None:
    """Raise `ConfigError` for an entry of a user's table that no trace would use."""
    for operator, function in table.items():
        if kind_of(operator) in (None, "packet"):
            raise ConfigError(
                f"decompositions has the key {operator!r}, which is not an operator that a graph "
                "calls; name an overload, as torch.ops.aten.sin.default"
            )
        if not callable(function):
            raise ConfigError(
                f"decompositions has {function!r} for {operator}; give a function that takes the "
                "arguments of the operator"
            )


_AT_WORK: ContextVar[frozenset[Operator]] = ContextVar(
    "decompositions at work", default=frozenset()
)


def _once(operator: Operator, function: Decomposition) -> Decomposition:
    """Return a decomposition that keeps its operator whole inside itself.

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
    """Return the choice for an operator, with its reason.

    Raises:
        ConfigError: As `decomposition_table`.
    """
    known = _choices(chosen).get(operator)
    if known is not None:
        return known
    having = [name for name in TABLES if operator in _load(name)]
    if having:
        return Choice(None, f"it stays whole: only {' and '.join(having)} would take it apart")
    if operator in torch_tables.every():
        return Choice(None, "it stays whole: no table has it, only its name would take it apart")
    return Choice(None, "it stays whole: torch has no decomposition of it")


def decomposable() -> Iterable[Operator]:
    """Return the operators that can be decomposed by name."""
    return torch_tables.every().keys()


@cache
def _choices(chosen: tuple[str, ...]) -> Mapping[Operator, Choice]:
    choices: dict[Operator, Choice] = {}
    for entry in chosen:
        name = entry.removeprefix("-")
        why_whole = f"it stays whole: {entry} is named"
        if name in TABLES:
            whole = Choice(None, why_whole) if entry != name else None
            choices.update({each: whole or _of_table(name, each) for each in _load(name)})
        elif entry == name:
            every = torch_tables.every()
            why = f"taken apart: {name} is named"
            choices.update({each: Choice(every[each], why) for each in _select(name, every)})
        else:
            known = [*choices, *torch_tables.every()]
            choices.update(dict.fromkeys(_select(name, known), Choice(None, why_whole)))
    return choices


def _of_table(name: str, operator: Operator) -> Choice:
    reason = next((why for why, holds in KEPT.items() if holds(operator)), None)
    if reason is not None:
        return Choice(None, f"it stays whole, though {name} has it: {reason}")
    return Choice(_load(name)[operator], f"taken apart: {name} has it")


def _select(name: str, operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators of a name with or without an overload."""
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
def _load(name: str) -> Mapping[Operator, Decomposition]:
    return TABLES[name].load()
