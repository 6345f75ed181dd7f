"""A stranger's case that would run for ever, and the command line with short limits for it.

python -c "from tests.helpers.endless import main; main(SECONDS)" check FOLDER
"""

from pathlib import Path
from typing import Any

import torch

from ctk.toolkit.case.store import save_case
from ctk.toolkit.cli import main as command_line
from ctk.toolkit.oracle import open_subject as several
from tests.helpers.case_zoo import capture
from tests.helpers.hostile import Canary, Craft


def endless_case(folder: Path, *, elements: int = 8) -> Path:
    """Return a case whose `while_loop` counts to the end of int64, and carries some floats."""

    def program(x: torch.Tensor) -> torch.Tensor:
        def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, y * 1

        start = (torch.tensor(0), torch.ones(8))
        _, last = torch.while_loop(lambda i, _: i < 3, step, start)
        return last.sum() + x

    (case,) = capture(program, torch.randn(2))
    craft = Craft(save_case(case, folder / "case", inputs="full"), Canary(folder))

    def change(graph: dict[str, Any]) -> None:
        (less,) = [n for n in graph["subgraphs"]["cond_fn_0"]["nodes"] if n["name"] == "lt"]
        less["args"][1] = 2**62
        (ones,) = [n for n in graph["nodes"] if n["target"] == "torch.ones"]
        ones["args"] = [elements]

    craft.graph(change)
    return craft.folder


def main(seconds: float) -> None:
    """Run `ctk` with another `SILENT_SECONDS`."""
    several.SILENT_SECONDS = float(seconds)
    command_line.main()
