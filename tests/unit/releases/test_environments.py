"""Environments on disk: built once, whole or not counted, locked, removed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from ctk.compiler.errors import InstallError, StorageError
from ctk.toolkit.releases import environments as module
from ctk.toolkit.releases.environments import (
    STAMP,
    Environments,
    environment_folders,
    is_whole,
    lock_of,
    open_root,
    remove_environments,
)
from ctk.toolkit.releases.interpreters import read_versions
from ctk.toolkit.releases.pip_commands import Release, open_source
from tests.helpers.fake_index import write_torch, write_triton

OLD, NEW = Release("2.13.0"), Release("2.14.0")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environments:
    wheels = tmp_path / "wheels"
    write_torch(wheels, "2.13.0", triton="3.7.0")
    write_torch(wheels, "2.14.0", requires="absent-package==1")
    for version in ("3.6.0", "3.7.0"):
        write_triton(wheels, version)
    monkeypatch.setenv("CTK_ENVIRONMENTS", str(tmp_path / "environments"))
    return Environments(open_root(), open_source(str(wheels)), (), lambda _: None)


def test_an_environment_is_built_once(store: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.hold(OLD) as interpreter:
        versions = read_versions(interpreter)
    assert (versions.torch, versions.triton) == ("2.13.0", "3.7.0")
    assert versions.commit == "2130" * 4
    folder = store.folder_of("2.13.0")
    assert store.made == {"2.13.0": folder}
    assert json.loads((folder / STAMP).read_text())["nbytes"] > 0
    assert not (folder / "tmp").exists()
    monkeypatch.setattr(module, "install", None)
    with store.hold(OLD) as interpreter:
        assert read_versions(interpreter) == versions


def test_triton_of_another_release(store: Environments) -> None:
    with store.hold(OLD, "triton==3.6.0") as interpreter:
        versions = read_versions(interpreter)
    assert (versions.torch, versions.triton) == ("2.13.0", "3.6.0")
    with store.hold(OLD) as interpreter:
        assert read_versions(interpreter).triton == "3.7.0"


@pytest.mark.parametrize("error", [KeyboardInterrupt, InstallError])
def test_an_interrupted_installation_is_done_again(
    error: type[BaseException], store: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module, "install", interrupt)
        with pytest.raises(error), store.hold(OLD):
            pass
    assert environment_folders(store.root) == []
    with store.hold(OLD) as interpreter:
        assert read_versions(interpreter).torch == "2.13.0"


def test_a_folder_without_a_stamp_is_not_whole(store: Environments) -> None:
    folder = store.folder_of("2.13.0")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("not a program")
    assert not is_whole(folder)
    with store.hold(OLD) as interpreter:
        assert read_versions(interpreter).torch == "2.13.0"


def test_a_changed_environment_is_installed_again(store: Environments) -> None:
    with store.hold(OLD):
        pass
    file = next(store.folder_of("2.13.0").glob("lib/python*/site-packages/torch/version.py"))
    text = file.read_text()
    file.write_text(f"{text}#")
    with store.hold(OLD):
        assert file.read_text() == f"{text}#"  # compared once by each process
    said: list[str] = []
    again = Environments(store.root, store.source, (), said.append)
    with again.hold(OLD):
        assert file.read_text() == text
    assert said[0].startswith(f"install {store.folder_of('2.13.0').name} again: torch 2.13.0: ")


def test_a_changed_triton_is_installed_again(store: Environments) -> None:
    with store.hold(OLD, "triton==3.6.0"):
        pass
    folder, said = store.folder_of("2.13.0"), list[str]()
    places = [*folder.glob("lib/python*/site-packages/triton"), folder / "triton-3.6.0" / "triton"]
    for place in places:
        (place / "added.py").write_text("")
        again = Environments(store.root, store.source, (), said.append)
        with again.hold(OLD, "triton==3.6.0"):
            assert not (place / "added.py").exists()
    assert [text.split(":")[0] for text in said if "again" in text] == [
        f"install {folder.name} again",
        "install triton-3.6.0 again",
    ]


def test_an_environment_without_its_interpreter_is_installed_again(store: Environments) -> None:
    with store.hold(OLD):
        pass
    python, said = store.folder_of("2.13.0") / "bin" / "python", list[str]()
    python.unlink()
    python.symlink_to("gone")
    with Environments(store.root, store.source, (), said.append).hold(OLD) as interpreter:
        assert read_versions(interpreter).torch == "2.13.0"
    assert said[0].endswith("again: its interpreter is gone")


def test_a_root_that_cannot_be_written_to(
    store: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    pattern = r"cannot be written to \(Permission denied\); next: let CTK_ENVIRONMENTS name"
    with pytest.raises(StorageError, match=pattern), store.hold(OLD):
        pass


def test_a_release_that_does_not_install(store: Environments) -> None:
    with pytest.raises(InstallError, match="absent-package"), store.hold(NEW):
        pass
    assert not store.made


def free(nbytes: int) -> Callable[[Path], int]:
    return lambda _: nbytes


def test_the_disk_is_checked_before_each_installation(
    store: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_nbytes", free(8 << 30))
    pattern = r"too little space for torch==2.13.0: .* 9G .* 8G are free; next: .*--clean"
    with pytest.raises(StorageError, match=pattern), store.hold(OLD):
        pass
    with store.hold(Release("2.13.0", is_for_cpu=True)):
        pass
    monkeypatch.setattr(module, "free_nbytes", free(100 << 20))
    with pytest.raises(StorageError, match=r"triton==3\.6\.0"), store.hold(OLD, "triton==3.6.0"):
        pass
    with pytest.raises(InstallError), store.hold(NEW):  # 2.13.0 took little
        pass


def test_installations_that_run_count_together(
    store: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_nbytes", free(10 << 30))
    with (
        store._reserve(6 << 30, "torch==1"),
        pytest.raises(StorageError, match="4G are free"),
        store._reserve(6 << 30, "torch==2"),
    ):
        pass
    with store._reserve(6 << 30, "torch==2"):
        pass


def test_removal_spares_environments_in_use(store: Environments) -> None:
    with store.hold(OLD):
        pass
    folder = store.folder_of("2.13.0")
    with FileLock(lock_of(folder)):
        assert remove_environments([folder], print).busy == (folder,)
    assert is_whole(folder)
    store.remove_made(spare=["2.13.0"])
    assert store.removed.count == 0
    store.remove_made()
    assert (store.removed.count, store.removed.busy) == (1, ())
    assert store.removed.nbytes > 0
    assert list(store.root.iterdir()) == []
