"""The lines and the table of `benchmarks.reduce`."""

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.reduce_measure import Row, Theirs

HEAD = (
    "family                nodes seed  questions (goal)   left (best)  elements (best)"
    "  not zero (best)  ms own      MB  ended"
)


def line(row: Row) -> str:
    """Return one problem's line."""
    return (
        f"{row.family:20} {row.nodes:6} {row.seed:4}"
        f"  {row.questions:9} {row.goal:>6}"
        f"  {row.left:5} {row.best_left:>6}"
        f"  {row.elements:8} {said(row.best_elements):>6}"
        f"  {row.non_zeros:8} {said(row.best_non_zeros):>6}"
        f"  {row.milliseconds:6.1f}  {row.megabytes:6.0f}  {row.reason}"
        + (f", {row.invalid} invalid" if row.invalid else "")
        + (
            f"; torch: {row.theirs.questions} questions, {their_left(row)} left"
            if row.theirs
            else ""
        )
    )


def their_left(row: Row) -> str:
    """Return how many nodes torch's minifier has left, and why it ended."""
    theirs = row.theirs
    if theirs is None:
        return "-"
    return f"{theirs.left}" + ("" if theirs.ended == "finished" else f" ({theirs.ended})")


def table(rows: Sequence[Row], about: str, torch_seconds: float) -> str:
    """Return the whole table: a line per family and size, medians (and the most)."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.family, row.size), []).append(row)
    head = (
        f"{'':27}|{'questions':^30}|{'call nodes left':^30}|{'elements':^15}|{'not zero':^13}"
        f"|{'ms own':>7}|{'MB':>6}\n"
        f"{'family':20} {'nodes':>6}|{'ctk':>12}{'goal':>6}{'torch':>12}"
        f"|{'ctk':>9}{'best':>5}{'torch':>16}|{'ctk':>9}{'best':>6}|{'ctk':>7}{'best':>6}"
        f"|{'ctk':>7}|{'ctk':>6}"
    )
    notes = (
        f"{about}; medians (most of the seeds). A question runs a graph in eager, nothing is "
        f"compiled.\ntorch: its minifier (fx_minifier), at most {torch_seconds:.0f} s of CPU each; "
        "!: this limit ended it in some seed, x: it raised in some.\n"
        "elements, not zero: of all inputs and constants that are left. ms own: beside the "
        "oracle, for each question; MB: on top of the case."
    )
    return "\n".join([notes, "", head, *(_line_of(group) for group in groups.values())])


def _line_of(rows: Sequence[Row]) -> str:
    first = rows[0]
    theirs = [row.theirs for row in rows if row.theirs]
    mark = "".join(
        sign
        for sign, ended in (("!", "time"), ("x", "raised"))
        if any(each.ended == ended for each in theirs)
    )
    return (
        f"{first.family:20} {round(statistics.median(row.nodes for row in rows)):6}"
        f"|{_both(row.questions for row in rows):>12}{first.goal:6}"
        f"{_theirs(theirs, 'questions'):>12}"
        f"|{_both(row.left for row in rows):>9}{first.best_left:5}"
        f"{_theirs(theirs, 'left') + mark:>16}"
        f"|{round(statistics.median(row.elements for row in rows)):9}"
        f"{said(first.best_elements):>6}"
        f"|{round(statistics.median(row.non_zeros for row in rows)):7}"
        f"{said(first.best_non_zeros):>6}"
        f"|{statistics.median(row.milliseconds for row in rows):7.1f}"
        f"|{max(row.megabytes for row in rows):6.0f}"
    )


def _theirs(rows: Sequence[Theirs], field: str) -> str:
    return _both(getattr(row, field) for row in rows) if rows else "-"


def _both(numbers: Iterable[int]) -> str:
    found = list(numbers)
    return f"{round(statistics.median(found))} ({max(found)})"


def said(number: int | None) -> str:
    """Return a number, or a dash."""
    return "-" if number is None else str(number)
