"""The sections of a page about a dump folder: its cost, fallbacks, graph breaks and recompiles."""

from collections.abc import Iterator, Sequence

from ctk.compiler.errors import count_of
from ctk.toolkit.page.page import Absent, Block, Facts, Prose, Rows, Section, section
from ctk.toolkit.watch.dump_index import DumpIndex, Spent

_MOST = 100
"""Rows of a table; the first ones are the most expensive or the most frequent."""

_SECONDS = 5e-5
"""Least time of a row that makes no change."""


def dump_sections(index: DumpIndex) -> Iterator[Section]:
    """Yield the sections of a dump; none for folders that hold no compiles."""
    compiled = [each for each in index.graphs if each.passes or each.kernels]
    if not compiled and not index.breaks and not index.recompiles:
        return
    yield section("Compiles", [Facts(_sums(index, len(compiled))), *map(Prose, index.cut)])
    yield section("Seconds", [*_costs("pass", "rewrites", index.by_pass)], _NO_SECONDS)
    modules = [*_costs("module", "kernel nodes", index.by_module)]
    yield section("Modules", [*modules, *_costs("kernel", "nodes", index.by_kernel)], _NO_SECONDS)
    yield section("Graph breaks", _breaks(index), Absent("No graph break was recorded."))
    yield section("Recompiles", _recompiles(index), Absent("No function was compiled again."))
    yield section("Fallbacks", _fallbacks(index), Absent("No kernel fell back to another code."))


_NO_SECONDS = Absent("No seconds were recorded.")


def _sums(index: DumpIndex, compiled: int) -> tuple[tuple[str, str], ...]:
    again = sum(each.count for each in index.recompiles)
    return (
        ("graphs", f"{compiled:,} compiled, {len(index.failing):,} failing"),
        ("seconds", f"{index.seconds:.2f} of passes and kernels"),
        ("graph breaks", f"{sum(each.count for each in index.breaks):,}"),
        ("recompiles", f"{again:,} of {count_of(len(index.recompiles), 'function')}"),
        ("fallbacks", f"{len(index.fallbacks):,}"),
    )


def _costs(name: str, changes: str, costs: Sequence[Spent]) -> Iterator[Block]:
    if costs:
        rows = tuple(
            (each.name, f"{each.count:,}", f"{each.changes:,}", f"{each.seconds * 1000:.1f}")
            for each in costs[:_MOST]
            if each.seconds >= _SECONDS or each.changes
        )
        label = f"By {name}, the most time first ({len(costs):,} in all)"
        yield Rows(label, (name, "count", changes, "ms"), rows, numbers=frozenset({1, 2, 3}))


def _breaks(index: DumpIndex) -> list[Block]:
    rows = tuple(
        (each.place, each.function, f"{each.count:,}", each.reason) for each in index.breaks[:_MOST]
    )
    columns = ("line", "function", "compiles", "reason")
    label = "Lines that break a graph"
    return [Rows(label, columns, rows, numbers=frozenset({2}))] if rows else []


def _recompiles(index: DumpIndex) -> list[Block]:
    rows = tuple(
        (
            each.place,
            each.function,
            f"{each.count:,}",
            f"{each.seconds:.2f}",
            "; ".join(f"{guard} ({count})" for guard, count in each.guards[:4]),
        )
        for each in index.recompiles[:_MOST]
    )
    columns = ("line", "function", "compiles", "seconds", "failed guards")
    label = "Functions that were compiled again"
    return [Rows(label, columns, rows, numbers=frozenset({2, 3}))] if rows else []


def _fallbacks(index: DumpIndex) -> list[Block]:
    rows = tuple((each.case.name, each.kernel, each.reason) for each in index.fallbacks[:_MOST])
    label = "Kernels of another code generator than the first"
    return [Rows(label, ("graph", "kernel", "reason"), rows)] if rows else []
