"""pip lists and installs: from its configuration, an index, a folder of wheels."""

import functools
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctk.compiler.errors import InstallError
from ctk.toolkit.releases.pip_commands import Release, list_releases, open_source, run_pip
from tests.helpers.fake_index import write_torch

JSON_PAGE = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    for version in ("2.11.0", "2.9.1", "2.13.0+cpu", "2.14.0rc1"):
        write_torch(folder, version)
    return folder


@pytest.fixture
def index(wheels: Path) -> Iterator[str]:
    """The URL of an index whose pages are JSON, with dates."""
    files = [
        {
            "filename": path.name,
            "url": f"../../{path.name}",
            "hashes": {},
            "upload-time": f"2026-0{number}-01T10:00:00.000000Z",
        }
        for number, path in enumerate(sorted(wheels.iterdir()), 1)
    ]
    page = {"meta": {"api-version": "1.1"}, "name": "torch", "files": files}

    class Pages(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/simple/torch/":
                super().do_GET()
                return
            data = json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Type", JSON_PAGE)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None: ...

    handler = functools.partial(Pages, directory=wheels)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def test_a_folder_of_wheels(wheels: Path) -> None:
    found = list_releases("torch", open_source(str(wheels)))
    assert [each.version for each in found] == ["2.9.1", "2.11.0", "2.13.0", "2.14.0rc1"]
    assert [each.is_for_cpu for each in found] == [False, False, True, False]
    assert {each.date for each in found} == {""}
    assert list_releases("torch", open_source(wheels.as_uri())) == found


def test_an_index_with_dates(index: str) -> None:
    found = list_releases("torch", open_source(index))
    assert found == [
        Release("2.9.1", "2026-04-01"),
        Release("2.11.0", "2026-01-01"),
        Release("2.13.0", "2026-02-01", is_for_cpu=True),
        Release("2.14.0rc1", "2026-03-01"),
    ]


def test_the_configuration_of_pip_decides(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert [each.version for each in list_releases("torch", open_source())] == [
        "2.9.1",
        "2.11.0",
        "2.13.0",
    ]
    other = tmp_path / "other"
    write_torch(other, "3.0.0")
    assert [each.version for each in list_releases("torch", open_source(str(other)))] == ["3.0.0"]


def test_an_index_keeps_the_other_settings(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\ntimeout = 17\nfind-links = /nowhere\n[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    environ = open_source(str(wheels)).environ
    assert environ["PIP_TIMEOUT"] == "17"
    assert environ["PIP_USER"] == "0"
    assert "PIP_FIND_LINKS" not in environ and "PIP_TARGET" not in environ


def test_nothing_is_listed(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"cannot list .*\nnext: .*pip index versions torch"):
        list_releases("torch", open_source((tmp_path / "empty").as_uri()))


def test_there_is_no_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(InstallError, match=r"has no pip.*\nnext: .*ensurepip"):
        run_pip(["list"], open_source())


def test_a_place_that_does_not_answer() -> None:
    with pytest.raises(InstallError, match=r"\(connection broken: .*refused"):
        list_releases("torch", open_source("http://127.0.0.1:9/simple"))


def test_a_nightly_build_has_its_date(tmp_path: Path) -> None:
    write_torch(tmp_path, "2.16.0.dev20261102+cpu")
    found = list_releases("torch", open_source(str(tmp_path)))
    assert found == [Release("2.16.0.dev20261102", "2026-11-02", is_for_cpu=True)]
    assert found[0].is_nightly
