"""The plots of `benchmarks.reduce`: questions and call nodes of both reducers, by family."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.reduce_measure import Row

Series = Mapping[str, Callable[[Row], float | None]]

PLOTS: Mapping[str, tuple[str, Series]] = {
    "questions": (
        "Questions that a reduction asks",
        {
            "goal": lambda row: row.goal,
            "torch's minifier": lambda row: row.theirs.questions if row.theirs else None,
            "ctk": lambda row: row.questions,
        },
    ),
    "left": (
        "Call nodes that are left",
        {
            "the least that fails": lambda row: row.best_left,
            "torch's minifier": lambda row: row.theirs.left if row.theirs else None,
            "ctk": lambda row: row.left,
        },
    ),
}
"""By the end of the file's name: a title and what is drawn."""

COLORS = ("#b0b0b0", "#e07b39", "#2b6cb0")


def saved_plots(rows: Sequence[Row], stem: Path) -> None:
    """Write `STEM_questions.svg` and `STEM_left.svg`: each family at its largest size."""
    groups = list(_largest(rows).values())[::-1]
    for name, (title, series) in PLOTS.items():
        path = stem.with_name(f"{stem.name}_{name}.svg")
        path.write_text(_drawn(groups, title, series) + "\n")


def _largest(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        known = found.setdefault(row.family, [])
        if known and row.size > known[0].size:
            known.clear()
        if not known or row.size == known[0].size:
            known.append(row)
    return found


def _drawn(groups: Sequence[Sequence[Row]], title: str, series: Series) -> str:
    import pygal
    from pygal.style import CleanStyle

    values = {name: [_median(group, of) for group in groups] for name, of in series.items()}
    most = max(value for each in values.values() for value in each if value is not None)
    chart = pygal.HorizontalBar(
        logarithmic=True, range=(0.5, 2 * most), zero=0.5, style=CleanStyle(colors=COLORS),
        title=f"{title}: medians, each family at its largest size (call nodes given)",
        width=1000, height=120 + 34 * len(groups), legend_at_bottom=True,
        legend_at_bottom_columns=3, truncate_label=-1, truncate_legend=-1, js=(),
        disable_xml_declaration=True,
    )  # fmt: skip
    chart.x_labels = [f"{group[0].family} ({group[0].nodes})" for group in groups]
    for name, each in values.items():
        chart.add(name, each)
    return chart.render(is_unicode=True)


def _median(rows: Sequence[Row], of: Callable[[Row], float | None]) -> float | None:
    found = [number for row in rows if (number := of(row)) is not None]
    return statistics.median(found) if found else None
