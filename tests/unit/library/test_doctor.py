"""The checks of `ctk doctor`: each can say no."""

import subprocess
from collections import namedtuple
from pathlib import Path

import pytest

from ctk.compiler.torch_compat.versions import NEWEST_TESTED_PYTHON
from ctk.toolkit.operations import doctor
from ctk.toolkit.operations.doctor import Health, examine

Usage = namedtuple("Usage", "total used free")


def test_this_machine_is_examined_completely() -> None:
    found = examine()
    assert [health.name for health in found] == [name for name, _ in doctor.CHECKS]
    assert [health for health in found if not health.is_fine] == []


@pytest.mark.parametrize(
    ("version", "has_gil", "is_fine", "text"),
    [
        ("3.10.2", True, False, "3.10.2 on Linux"),
        ("3.11.0", True, True, f"tested: 3.11 to {NEWEST_TESTED_PYTHON}"),
        ("3.99.0", True, True, "so not this one"),
        ("3.14.0", False, False, "free-threaded, which is untested"),
    ],
)
def test_pythons(
    version: str, has_gil: bool, is_fine: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.platform, "python_version", lambda: version)
    monkeypatch.setattr(doctor, "has_gil", lambda: has_gil)
    health = doctor.check_python("python")
    assert health.is_fine is is_fine
    assert text in health.detail


@pytest.mark.parametrize(
    ("version", "is_fine"),
    [
        ("2.11.0", True),
        ("2.13.0+cpu", True),
        ("2.12.0a0+git123", True),
        ("2.10.1", False),
        ("2.15.0", True),
        ("3.0.0", True),
    ],
)
def test_torch_versions(version: str, is_fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda _: version)
    health = doctor.check_torch("torch")
    assert health.is_fine is is_fine
    assert is_fine or "pip install 'torch>=" in health.advice or health.advice


def test_switched_off_compile_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    health = doctor.check_switches("torch.compile")
    assert not health.is_fine
    assert health.advice == "unset TORCHDYNAMO_DISABLE"


def test_no_cpp_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ctk.compiler.torch_compat.inductor.inductor_api.cpp_compiler", lambda: None
    )
    assert not doctor.check_cpp_compiler("C++ compiler").is_fine


def test_cpp_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "c++"
    script.write_text("#!/bin/sh\necho no license >&2\nexit 3\n")
    script.chmod(0o755)
    assert subprocess.run([script], capture_output=True, check=False).returncode == 3
    monkeypatch.setattr(
        "ctk.compiler.torch_compat.inductor.inductor_api.cpp_compiler", lambda: str(script)
    )
    health = doctor.check_cpp_compiler("C++ compiler")
    assert not health.is_fine
    assert "no license" in health.detail


def test_bad_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_FUEL", "-1")
    (health,) = [health for health in examine() if health.name == "CTK_ variables"]
    assert not health.is_fine
    assert "CTK_FUEL takes a count of rewrites from 0, not '-1'" in health.detail


def test_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_DMUP", "x")
    health = doctor.check_variables("CTK_ variables")
    assert not health.is_fine
    assert "CTK_DUMP" in health.detail


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_DUMP", str(tmp_path / "not" / "yet"))
    assert doctor.check_dump_folder("dump folder").is_fine
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 1 << 20))
    assert not doctor.check_dump_folder("dump folder").is_fine


def test_folder_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("CTK_DUMP", str(tmp_path))
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    health = doctor.check_dump_folder("dump folder")
    assert not health.is_fine
    assert "Permission denied" in health.detail


def test_wrong_pipeline_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(gm: object, inputs: object, config: object = None) -> object:
        return lambda x: (x.sum(dim=-1),)

    monkeypatch.setattr("ctk.compiler.pipeline.compile_fx", wrong)
    health = doctor.check_pipeline("pipeline")
    assert (health.is_fine, health.detail) == (False, "compiled != eager")


def test_check_that_fails_is_a_problem_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Health:
        raise ImportError("no module named x")

    monkeypatch.setattr(doctor, "CHECKS", (("probe", broken),))
    assert examine() == [Health("probe", False, "ImportError: no module named x")]


def test_a_cache_that_others_may_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "cache"))
    assert doctor.check_cache_folder("cache folder").is_fine
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    health = doctor.check_cache_folder("cache folder")
    assert not health.is_fine
    assert health.advice.startswith("chmod go-w ")
    monkeypatch.setenv("CTK_CACHE", "0")
    assert doctor.check_cache_folder("cache folder").is_fine
