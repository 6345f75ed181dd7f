"""Files of a distribution against its RECORD: each way to differ, on a distribution of its own."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ctk.toolkit.operations import doctor
from ctk.toolkit.releases.installed_files import LARGEST_NBYTES, check_files


@dataclass
class Installed:
    """A distribution `ctkfake` 1.0, as pip installs it."""

    root: Path

    @property
    def package(self) -> Path:
        return self.root / "ctkfake"

    @property
    def info(self) -> Path:
        return self.root / "ctkfake-1.0.dist-info"

    def record(self) -> None:
        """Write the sizes and digests of all files."""
        lines = [
            f"{path.relative_to(self.root).as_posix()},{digest(path)},{path.stat().st_size}"
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.name != "RECORD"
        ]
        own = "ctkfake-1.0.dist-info/RECORD,,"
        (self.info / "RECORD").write_text("\n".join([*lines, own, "ctkfake/old.pyc,,"]) + "\n")

    def problems(self) -> tuple[str, ...]:
        found = check_files("ctkfake")
        assert found is not None
        return found.problems


def digest(path: Path) -> str:
    value = hashlib.sha256(path.read_bytes()).digest()
    return f"sha256={base64.urlsafe_b64encode(value).rstrip(b'=').decode()}"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    installed = Installed(tmp_path)
    (installed.package / "inner").mkdir(parents=True)
    (installed.package / "__init__.py").write_text("VALUE = 1\n")
    (installed.package / "inner" / "code.py").write_text("def f(): return 2\n")
    (installed.package / "large.so").write_bytes(b"x" * (LARGEST_NBYTES + 1))
    installed.info.mkdir()
    (installed.info / "METADATA").write_text("Metadata-Version: 2.1\nName: ctkfake\nVersion: 1.0\n")
    installed.record()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield installed


def test_an_unchanged_installation(fake: Installed) -> None:
    assert fake.problems() == ()
    assert str(check_files("ctkfake")) == "ctkfake 1.0: 4 files as recorded"


def test_a_patched_file_of_the_same_size(fake: Installed) -> None:
    (fake.package / "inner" / "code.py").write_text("def f(): return 3\n")
    assert fake.problems() == ("changed ctkfake/inner/code.py",)


def test_a_large_file_is_compared_by_its_size(fake: Installed) -> None:
    (fake.package / "large.so").write_bytes(b"y" * (LARGEST_NBYTES + 1))
    assert fake.problems() == ()
    (fake.package / "large.so").write_bytes(b"y")
    assert fake.problems() == ("changed ctkfake/large.so",)


def test_a_missing_file(fake: Installed) -> None:
    (fake.package / "inner" / "code.py").unlink()
    assert fake.problems() == ("missing ctkfake/inner/code.py",)


def test_an_added_file(fake: Installed) -> None:
    (fake.package / "inner" / "more.py").write_text("")
    (fake.package / "notes.txt").write_text("is not code")
    cache = fake.package / "__pycache__"
    cache.mkdir()
    (cache / "code.cpython-311.pyc").write_bytes(b"")
    assert fake.problems() == ("added ctkfake/inner/more.py",)


def test_a_package_of_another_place(
    fake: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "ctkfake").mkdir(parents=True)
    (other / "ctkfake" / "__init__.py").write_text("VALUE = 2\n")
    monkeypatch.syspath_prepend(str(other))
    (problem,) = fake.problems()
    assert problem == f"shadowed ctkfake, imported from {other / 'ctkfake'}"


def test_two_versions_in_one_folder(fake: Installed) -> None:
    second = fake.root / "ctkfake-2.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: ctkfake\nVersion: 2.0\n")
    (problem,) = (each for each in fake.problems() if each.startswith("doubled"))
    assert problem in ("doubled by ctkfake 2.0", "doubled by ctkfake 1.0")


def test_an_editable_installation_is_not_compared(fake: Installed) -> None:
    url = {"url": "file:///somewhere", "dir_info": {"editable": True}}
    (fake.info / "direct_url.json").write_text(json.dumps(url))
    (fake.package / "inner" / "code.py").unlink()
    assert str(check_files("ctkfake")) == "ctkfake 1.0: not compared: editable"


def test_an_installation_without_a_list(fake: Installed) -> None:
    (fake.info / "RECORD").unlink()
    assert "installed without a list of files" in str(check_files("ctkfake"))


def test_a_package_that_is_not_installed() -> None:
    assert check_files("ctk-no-such-distribution") is None


def test_many_problems_are_counted(fake: Installed) -> None:
    for number in range(5):
        (fake.package / f"more{number}.py").write_text("")
    assert str(check_files("ctkfake")).endswith("added ctkfake/more2.py and 2 more")


def test_doctor_names_the_changed_distribution(
    fake: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "COMPARED", ("ctkfake", "ctk-no-such-distribution"))
    assert doctor.check_installed_files("files").is_fine
    (fake.package / "__init__.py").write_text("VALUE = 7\n")
    health = doctor.check_installed_files("files")
    assert not health.is_fine
    assert health.detail == "ctkfake 1.0: changed ctkfake/__init__.py"
    assert health.advice.endswith("pip install --force-reinstall --no-deps ctkfake==1.0")


def test_the_installed_torch_is_as_released() -> None:
    found = check_files("torch")
    assert found is not None
    assert found.problems == ()


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (b"", "empty RECORD"),
        (b"\xe6\xff\x00,", "unreadable RECORD"),
        (b"ctkfake/__init__.py,sha256=zz,abc\n", "unreadable RECORD"),
    ],
)
def test_a_damaged_record(fake: Installed, record: bytes, problem: str) -> None:
    (fake.info / "RECORD").write_bytes(record)
    assert fake.problems() == (problem,)
