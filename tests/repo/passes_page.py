"""Write `docs/passes.md` from the tables of passes: `python -m tests.repo.passes_page`.

The page consists of the docstrings of the modules: rules, preconditions, source.
"""

import dataclasses
import inspect
import sys
from collections.abc import Iterator

from ctk.compiler.observe import Stage
from ctk.compiler.passes import PASSES, freezing, joint, post_grad, pre_grad
from ctk.compiler.rewriting.base import Pass
from tests.helpers.inductor_rows import Row, table
from tests.helpers.project import ROOT

PAGE = ROOT / "docs" / "passes.md"

HEAD = """# Passes

Generated from the tables by `python -m tests.repo.passes_page`: do not edit. The passes of each
stage in the order in which they run and are bisected. `exact` passes keep every bit; `reassociates`
may round otherwise, within the tolerance that `ctk check` allows such a pass. Set an option with
`--config NAME.OPTION=VALUE`, leave a pass out with `--config disable=["NAME"]` or
`CTK_DISABLE=NAME`, and run that one only with `*,-NAME` in its place. `ctk show CASE --times` lists
the rewrites and seconds of each in a compile.
"""

BESIDE = """## Beside Inductor

The passes and patterns of Inductor (files and functions of `torch/_inductor/fx_passes`), and the
pass of ctk that serves the same programs. `tests/repo/test_inductor_passes.py` reads the names from
the installed torch, and runs a program for each row that a CPU can show: ours rewrites it. A slow
test shows Inductor at work on most of them.
"""

STAGES: dict[Stage, object] = {
    "pre_grad": pre_grad,
    "joint": joint,
    "forward": post_grad,
    "frozen": freezing,
}
"""One stage for each table; `backward` runs the table of `forward`."""


def page() -> str:
    """Return the text of the page."""
    sections = (line for name in STAGES for line in section(name))
    return "\n".join([HEAD, *overview(), "", *sections, *beside_inductor()])


def beside_inductor() -> Iterator[str]:
    """Yield the table of Inductor's passes and ours."""
    yield BESIDE
    yield "| Inductor | ctk | remark |"
    yield "|---|---|---|"
    yield from dict.fromkeys(map(_row, table()))
    yield ""


def _row(row: Row) -> str:
    theirs = ", ".join(f"`{each}`" for each in row.theirs)
    ours = ", ".join(f"`{each}`" if "/" in each else each for each in row.ours) or "none"
    since, place = row.since and f"torch {row.since}.", row.gpu and "On a GPU."
    remarks = " ".join(filter(None, (since, place, row.note)))
    return f"| {theirs} | {ours} | {remarks} |"


def overview() -> Iterator[str]:
    """Yield one row per pass of each stage."""
    yield "| stage | pass | numerics | options | summary |"
    yield "|---|---|---|---|---|"
    for stage in STAGES:
        name = "forward, backward" if stage == "forward" else stage
        for step in PASSES[stage]:
            options = ", ".join(f"`{each}`" for each in options_of(step))
            first = document_of(step).partition("\n")[0]
            yield f"| {name} | `{step.name}` | {step.numerics} | {options} | {first} |"


def section(stage: Stage) -> Iterator[str]:
    """Yield the docstrings of the passes that run in a stage and in none before it."""
    before = list(STAGES)[: list(STAGES).index(stage)]
    told = {type(step) for each in before for step in PASSES[each]}
    purpose = inspect.getdoc(STAGES[stage])
    yield f"## {stage}"
    yield f"{purpose}"
    yield ""
    for step in dict.fromkeys(PASSES[stage]):
        if type(step) in told:
            continue
        yield f"### {step.name}"
        yield "```text"
        yield document_of(step)
        yield "```"
        for name, default, meaning in described(step):
            yield f"- `{step.name}.{name}` (default {default}): {meaning}"
        yield ""


def options_of(step: Pass) -> list[str]:
    """Return the names of a pass's options."""
    return [field.name for field in dataclasses.fields(step)]


def described(step: Pass) -> Iterator[tuple[str, object, str]]:
    """Yield each option of a pass with its default and what its class says of it."""
    text = " ".join((inspect.getdoc(type(step)) or "").split())
    names = options_of(step)
    for name in names:
        said = text.partition(f" {name}: ")[2]
        for other in names:
            said = said.partition(f" {other}: ")[0]
        yield name, getattr(step, name), said


def document_of(step: Pass) -> str:
    """Return what the module of a pass says."""
    return inspect.getdoc(sys.modules[type(step).__module__]) or ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
