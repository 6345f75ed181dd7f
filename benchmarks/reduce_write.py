"""Problems as folders, for other reducers: `python -m benchmarks.reduce --write DIR`."""

import dataclasses
import json
import shutil
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.reduce_measure import case_of
from ctk.toolkit.case.store import save_case
from tests.helpers.reduce_families import FAMILIES, predicates
from tests.helpers.reduce_families.predicates import description_of

README = Path(__file__).parent / "data" / "reduce" / "README.md"
LOADER = Path(__file__).parent / "data" / "reduce" / "load.py"


def write(
    folder: Path, names: Iterable[str], sizes: Sequence[int] | None, seeds: Iterable[int]
) -> str:
    """Write problems, and what is needed to load them; return one line that says so."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name in names:
        for size in sizes or FAMILIES[name].sizes:
            for seed in seeds:
                write_problem(folder / f"{name}_{size}_{seed}", name, size, seed)
                count += 1
    for file in (README, LOADER, Path(predicates.__file__)):
        target = folder / ("oracle.py" if file.stem == "predicates" else file.name)
        if not (target.exists() and target.samefile(file)):
            shutil.copyfile(file, target)
    return f"{count} problems in {folder}; load one with: python {folder / 'load.py'} PROBLEM"


def write_problem(folder: Path, name: str, size: int, seed: int) -> None:
    """Write one problem: its case, what its failure needs, and the least that fails."""
    planted = FAMILIES[name].build(size, seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    case = dataclasses.replace(case_of(planted), target="ctk")
    save_case(case, folder / "case", inputs="full")
    problem = {
        "family": name,
        "size": size,
        "seed": seed,
        "needs": description_of(planted.fails),
        "optimum": {
            "call_nodes": planted.optimum.nodes,
            "elements": planted.optimum.elements,
            "non_zeros": planted.optimum.non_zeros,
        },
        "questions": planted.questions,
        "written_by": f"ctk {version('ctk')}",
    }
    (folder / "problem.json").write_text(json.dumps(problem, indent=1) + "\n")
