"""Archives of torch.export, imported as cases."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import ProgramError, TrustError
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.constant = torch.ones(4) * 2

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": self.norm(self.linear(x)).relu() * self.constant, "b": x.sum() + y}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "y": None}
    arguments = ((torch.randn(3, 4),), {"y": torch.tensor(1.0)})
    exported = torch.export.export(Net().eval(), *arguments, dynamic_shapes=sizes)
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    torch.export.save(exported, path)
    return path


def with_entry(archive: Path, path: Path, end: str, data: bytes) -> Path:
    """Copy an archive with one entry replaced, or added."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if not name.endswith(end):
                new.writestr(name, old.read(name))
        new.writestr(f"net/{end}", data)
    return path


class TestLoad:
    def test_parameters_inputs_and_dynamic_sizes(self, archive: Path) -> None:
        (case,) = load_cases(archive)
        parameters = [v for v in case.inputs if isinstance(v, torch.nn.Parameter)]
        assert len(parameters) == 4
        assert any("s" in (sizes[0] or "") for sizes in case.dynamic.values())
        assert case.target == "ctk"

    def test_it_is_checked(self, archive: Path) -> None:
        report = ctk.check(archive, target="ctk")
        assert report.ok, report

    def test_one_that_is_packed_small_and_holds_much(self, tmp_path: Path) -> None:
        path = tmp_path / "bomb.pt2"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("net/data/weights/model_weights_config.json", b" " * (1 << 22))
        with pytest.raises(TrustError, match="its entries hold 4,194,304 bytes, packed into"):
            load_cases(path)

    def test_a_missing_one_has_a_near_name(self, archive: Path) -> None:
        with pytest.raises(ProgramError, match=r"no such file: .*net.pt2"):
            load_cases(archive.with_name("nett") / "net.pt2")
        with pytest.raises(ProgramError, match=r"did you mean 'net.pt2'"):
            load_cases(archive.with_name("nett.pt2"))

    def test_what_is_no_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "net.pt2"
        path.write_bytes(b"no zip")
        with pytest.raises(ProgramError, match="cannot be read as an archive"):
            load_cases(path)


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return os.putenv, ("CTK_HOSTILE", "1")


class TestTrust:
    def hostile(self, archive: Path, tmp_path: Path, end: str) -> Path:
        torch.save(Hostile(), tmp_path / "data")
        return with_entry(archive, tmp_path / "bad.pt2", end, (tmp_path / "data").read_bytes())

    def test_inputs_that_would_run_code(self, archive: Path, tmp_path: Path) -> None:
        path = self.hostile(archive, tmp_path, "data/sample_inputs/model.pt")
        with pytest.raises(TrustError, match=r"model\.pt is a pickle that may"):
            load_cases(path)

    def test_objects_are_refused(self, archive: Path, tmp_path: Path) -> None:
        path = self.hostile(archive, tmp_path, "data/constants/custom_obj_0")
        with pytest.raises(TrustError, match="custom_obj_0 is a pickle"):
            load_cases(path)

    def test_weights_that_say_they_are_pickled(self, archive: Path, tmp_path: Path) -> None:
        config = b'{"config": {"w": {"path_name": "weight_0", "use_pickle": true}}}'
        path = self.hostile(archive, tmp_path, "data/weights/weight_0")
        path = with_entry(
            path, tmp_path / "w.pt2", "data/weights/model_weights_config.json", config
        )
        with pytest.raises(TrustError, match="data/weights/weight_0 is a pickle"):
            load_cases(path)

    def test_trust_reads_it_all_the_same(self, archive: Path, tmp_path: Path) -> None:
        path = shutil.copy(archive, tmp_path / "net.pt2")
        (case,) = load_cases(path, None, CaseOptions(trust=True))
        assert case.inputs
