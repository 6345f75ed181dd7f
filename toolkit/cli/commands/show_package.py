"""`ctk show PACKAGE`: list the contents of a package, without loading it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from ctk.toolkit.cli.commands.cache_ls import spoken_size
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table

if TYPE_CHECKING:
    from ctk.compiler.packages.description import (
        Description,
        EntryDescription,
        ValueDescription,
    )
    from ctk.compiler.packages.input_guard import Dimension

_MOST_WEIGHTS = 20


def show_package(path: Path) -> Answer:
    """Return the answer for a package."""
    from ctk.compiler.packages.description import describe

    found = describe(path)
    count = len(found.entries)
    points = "1 entry point" if count == 1 else f"{count} entry points"
    size = spoken_size(found.nbytes)
    runs = "it does not run here" if found.why_not_here else "it runs here"
    headline = f"package {path.name}: {points}, {size}, {runs}"
    body: list[RenderableType] = [_facts(found)]
    for entry in found.entries:
        body += _entry(entry)
    body += _weights(found)
    data = {"package": str(path)} | {k: v for k, v in asdict(found).items() if k != "path"}
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(body))


def _facts(found: "Description") -> Table:
    machine = found.machine
    kept, out = len(found.weights), len(found.weights_left_out)
    bind = f"; {out} left out, to be bound: package.bind(model.state_dict())" if out else ""
    facts = {
        "does not run here": found.why_not_here,
        "made by": ", ".join(f"{name} {version}" for name, version in found.made_by.items()),
        "needs": f"{machine['system']} on {machine['processor']}, torch {machine['torch']}",
        "features of the CPU": ", ".join(machine["cpu_features"]),
        "GPUs of compute capability": ", ".join(machine["compute_capabilities"]),
        "weights": f"{kept} kept, {spoken_size(found.weights_nbytes)}{bind}",
        "sha256": found.digest,
    }
    return table("what", "value", rows=(fact for fact in facts.items() if fact[1]))


def _entry(entry: "EntryDescription") -> list[RenderableType]:
    called = f"not from C: {entry.why_not_c}" if entry.why_not_c else "from Python and C"
    rows = table("", "name", "dtype", "shape or value", "device", "")
    for value in entry.inputs:
        note = "by keyword" if value.name in entry.keywords else ""
        _add(rows, "in", value, "written" if value.is_written else note)
    for value in entry.outputs:
        _add(rows, "out", value, "")
    sizes = ", ".join(map(_range, entry.sizes))
    more = [f"  sizes that vary: {sizes}"] if sizes else []
    return [f"\n{entry.name}: called {called}", *more, rows]


def _add(rows: Table, which: str, value: "ValueDescription", note: str) -> None:
    is_fixed = not value.dtype
    said = [note] * bool(note) + ["fixed"] * is_fixed
    rows.add_row(which, value.name, value.dtype, value.shape, value.device, ", ".join(said))


def _range(size: "Dimension") -> str:
    return f"{size.name} from {size.low}" + ("" if size.high is None else f" to {size.high}")


def _weights(found: "Description") -> list[RenderableType]:
    named = [(weight, "") for weight in found.weights]
    named += [(each, "left out") for each in found.weights_left_out]
    if not named:
        return []
    cells = ((w.name, w.dtype, w.shape, w.device, note) for w, note in named[:_MOST_WEIGHTS])
    rows = table("weight", "dtype", "shape", "device", "", rows=cells)
    hidden = len(named) - _MOST_WEIGHTS
    more = [f"and {hidden} more weights: --json lists them"] if hidden > 0 else []
    return ["", rows, *more]
