"""The plan of a run: the parts that its compiles leave out, and the suspects that they announce.

Parent and children share a folder: `plan.json` holds a `Veto` per graph, and the book has a line
for each pass, rewrite and kernel that a compile announces. A graph is `graph0`, `graph1` ... in the
order in which the first compiling process captures them, `process1.graph0` in the second one.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.watch.child_start import BOOK

PLAN = "plan.json"

Kind = Literal["pass", "rewrite", "kernel"]


@document
@dataclass(frozen=True, slots=True)
class Suspect:
    """One part that a compile of the command may leave out.

    Attributes:
        id: The id of the pass or kernel; for a rewrite that of its pass.
        number: Of a rewrite, in the compile of its graph.
    """

    graph: str
    kind: Kind
    id: str
    number: int = 0
    rule: str = ""

    @property
    def stage(self) -> FailureOrigin:
        return cast("FailureOrigin", self.id.partition("/")[0])

    def __str__(self) -> str:
        rewrite = f", rewrite {self.number} ({self.rule})" if self.kind == "rewrite" else ""
        return f"{self.id}{rewrite} of {self.graph}"


def write_plan(folder: Path, left_out: Iterable[Suspect]) -> None:
    """Write the parts that the next run leaves out."""
    graphs: dict[str, dict[str, list[object]]] = {}
    for each in left_out:
        plan = graphs.setdefault(each.graph, {"pass": [], "rewrite": [], "kernel": []})
        plan[each.kind].append(each.number if each.kind == "rewrite" else each.id)
    (folder / PLAN).write_text(json.dumps(graphs), encoding="utf-8")


def read_vetoes(folder: Path) -> Mapping[str, Veto]:
    """Return the veto of each graph."""
    graphs = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    return {
        graph: Veto(
            passes=frozenset(plan["pass"]),
            rewrites=frozenset(plan["rewrite"]),
            kernels=frozenset(plan["kernel"]),
        )
        for graph, plan in graphs.items()
    }


def read_suspects(folder: Path) -> tuple[Suspect, ...]:
    """Return the suspects that the compiles of the last run announced, each once, in order."""
    suspects: dict[Suspect, None] = {}
    for line in (folder / BOOK).read_text(encoding="utf-8").splitlines():
        entry: Mapping[str, Any] = json.loads(line)
        if "asked" in entry:
            suspects.setdefault(Suspect(*entry["asked"]))
    return tuple(suspects)
