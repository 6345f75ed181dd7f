"""The site builds without a warning, loads nothing from other hosts, and has a page per task."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ctk.toolkit.cli.app import COMMANDS
from tests.helpers.project import ROOT, copy_project

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements for which a browser loads a resource, and the attribute with its address."""


class Resources(HTMLParser):
    """The addresses from which a page loads something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address and dict(attrs).get("rel") != "canonical":
            self.addresses.append(address)


def build(project: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


def is_foreign(address: str) -> bool:
    return re.match(r"[a-z+]+:(?!image/)|//", address) is not None


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    foreign = {
        f"{page.name}: {address}"
        for page in pages
        for address in Resources(page.read_text(encoding="utf-8")).addresses
        if is_foreign(address)
    }
    assert not foreign
    assert not {f"{sheet}: {url}" for sheet in site.rglob("*.css") for url in foreign_urls(sheet)}


def foreign_urls(sheet: Path) -> Iterator[str]:
    """Yield the addresses of other hosts that a style sheet loads."""
    text = sheet.read_text(encoding="utf-8")
    found = re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s]+)""", text)
    yield from (url for url in found if is_foreign(url) and not url.startswith("data:"))


def test_a_foreign_resource_is_noticed() -> None:
    page = '<script src="//cdn.example/x.js"></script><img src="a.png"><a href="https://x.example">'
    assert list(filter(is_foreign, Resources(page).addresses)) == ["//cdn.example/x.js"]
    assert is_foreign("https://x.example") and not is_foreign("data:image/png;base64,AA")


def test_broken_links_are_errors(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    with (project / "docs" / "proof.md").open("a", encoding="utf-8") as file:
        file.write("\n[1](no_page.md) [2](tutorial.md#no-heading) [3](/absolute.md)\n")
    done = build(project, tmp_path / "site")
    assert done.returncode != 0
    for target in ("no_page.md", "#no-heading", "/absolute.md"):
        assert re.search(rf"WARNING.*proof\.md.*{target}", done.stderr), done.stderr


def test_each_command_has_a_home() -> None:
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "how-to").glob("*.md")
    )
    homeless = [each.name for each in COMMANDS if not re.search(rf"\bctk {each.name}\b", text)]
    assert not homeless, "no page of docs/how-to shows these commands"
