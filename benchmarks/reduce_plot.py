"""The plot of `benchmarks.reduce`: questions and nodes left of both reducers, by family."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.reduce_measure import Row

FLOOR = 0.8
"""Where a logarithmic axis begins."""


def saved_plot(rows: Sequence[Row], path: Path) -> None:
    """Write the plot as SVG: two panels of bars, for each family at its largest size."""
    import pygal
    from pygal.style import CleanStyle

    largest: dict[str, list[Row]] = {}
    for row in rows:
        known = largest.setdefault(row.family, [])
        if known and row.size > known[0].size:
            known.clear()
        if not known or row.size == known[0].size:
            known.append(row)
    chart = pygal.HorizontalBar(
        logarithmic=True, style=CleanStyle, width=1000, height=60 + 46 * len(largest),
        title="Planted failures, reduced: medians, at the largest size", range=(FLOOR, 9000),
        legend_at_bottom=True, legend_at_bottom_columns=3, truncate_label=-1, truncate_legend=-1,
        disable_xml_declaration=True, js=(), show_y_guides=False,
    )  # fmt: skip
    groups = list(largest.values())[::-1]
    chart.x_labels = [f"{group[0].family} ({group[0].nodes})" for group in groups]
    for name, of in SERIES.items():
        chart.add(name, [_median(group, of) for group in groups])
    path.write_text(chart.render(is_unicode=True) + "\n")


SERIES: dict[str, Callable[[Row], float | None]] = {
    "questions, torch's minifier": lambda row: row.theirs.questions if row.theirs else None,
    "questions, ctk": lambda row: row.questions,
    "goal": lambda row: row.goal,
    "nodes left, torch's minifier": lambda row: row.theirs.left if row.theirs else None,
    "nodes left, ctk": lambda row: row.left,
    "least that fails": lambda row: row.best_left,
}


def _median(rows: Sequence[Row], of: Callable[[Row], float | None]) -> float | None:
    found = [number for row in rows if (number := of(row)) is not None]
    return statistics.median(found) if found else None
