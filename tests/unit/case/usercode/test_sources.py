"""place_sources: neighbours stay neighbours; two of one name do not meet."""

from pathlib import Path

import torch
from torch import fx

from ctk.compiler.usercode.references import load
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.case.usercode.named_sources import place_sources
from ctk.toolkit.case.usercode.references import reference_to


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def two_folders(tmp_path: Path) -> list[Path]:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder}.py").write_text("import helper\nname = helper.name\n")
        (tmp_path / folder / "helper.py").write_text(f"name = {folder!r}\n")
    return [tmp_path / "a/of_a.py", tmp_path / "b/of_b.py"]


def test_places(tmp_path: Path):
    a, b = two_folders(tmp_path)
    assert place_sources([a, b], {}) == {
        "of_a.py": a,
        "helper.py": a.with_name("helper.py"),
        "1/of_b.py": b,
        "1/helper.py": b.with_name("helper.py"),
    }


def test_a_saved_case_carries_the_neighbours_and_again(tmp_path: Path):
    files = two_folders(tmp_path)
    graph = fx.symbolic_trace(add_one)
    case = Case(graph=graph, inputs=(torch.ones(2),), target="ctk", sources=tuple(files))
    for name in ("first", "second"):
        case = load_case(save_case(case, tmp_path / name))
        assert [
            path.relative_to(tmp_path / name / "sources").as_posix() for path in case.sources
        ] == [
            "of_a.py",
            "1/of_b.py",
        ]
        assert [load(f"{path}:name") for path in case.sources] == ["a", "b"]


def test_a_function_of_a_file_is_named_by_the_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def f(): ...\n")
    assert reference_to(load(f"{tmp_path}/mine.py:f")) == f"{tmp_path}/mine.py:f"
