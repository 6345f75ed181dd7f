"""Which folder the cache is in, and which one is not used."""

import logging
import os
from pathlib import Path

import pytest

from ctk.compiler.cache_folder.folder import (
    cache_folder,
    forget_warnings,
    private_folder,
    subfolder,
)
from ctk.compiler.errors import ConfigError, StorageError
from ctk.compiler.options.environment import cache_settings


@pytest.fixture(autouse=True)
def on_and_unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    forget_warnings()


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({"CTK_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/ctk")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "ctk"),
        ({}, Path.home() / ".cache" / "ctk"),
    ],
)
def test_where_it_is(environ: dict[str, str], expected: Path) -> None:
    assert cache_settings(environ).folder == expected


def test_its_size_and_its_switch() -> None:
    assert cache_settings({}).limit_nbytes == 2 << 30
    assert cache_settings({}).is_on is None
    settings = cache_settings({"CTK_CACHE": "0", "CTK_CACHE_SIZE": "5M"})
    assert (settings.is_on, settings.limit_nbytes) == (False, 5 << 20)
    for name, value in (("CTK_CACHE", "yes"), ("CTK_CACHE_SIZE", "0"), ("CTK_CACHE_DIR", __file__)):
        with pytest.raises(ConfigError, match=rf"{name} takes .*, not "):
            cache_settings({name: value})


def test_it_is_made_private(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    assert subfolder(made, "entries").stat().st_mode & 0o777 == 0o700


def test_a_link_to_it_is_resolved_and_one_within_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = private_folder(tmp_path / "link")
    assert root == (tmp_path / "real").resolve()
    (root / "entries").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="is not a folder"):
        subfolder(root, "entries")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_one_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path))
    with caplog.at_level(logging.WARNING, "ctk.cache"):
        assert cache_folder() is None
        assert cache_folder() is None
    assert len(caplog.records) == 1
    assert "can be written by others" in caplog.text
    assert "chmod go-w" in caplog.text


def test_one_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StorageError, match="belongs to another user"):
        private_folder(tmp_path)


def test_no_home_and_a_home_that_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder() is None
    assert "the cache is not used: " in caplog.text

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder() is None
    assert "this user has no home" in caplog.text
