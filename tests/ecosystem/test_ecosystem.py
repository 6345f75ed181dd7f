"""Each section of `docs/how-to/ecosystem.md` is run: ctk beside another library.

Sections whose library is not part of torch are marked `ecosystem`, and need the extra of this name.
"""

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.document_steps import run_step, steps_of
from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

DOCUMENT = ROOT / "docs" / "how-to" / "ecosystem.md"
SECTIONS = re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", DOCUMENT.read_text("utf-8"), re.MULTILINE)
PACKAGES = {
    "Transformers": ("transformers",),
    "Lightning": ("lightning",),
    "torchvision": ("torchvision",),
    "timm": ("timm", "torchvision"),
    "torchao": ("torchao",),
    "torch.export": (),
    "DDP": (),
    "FSDP2": (),
}


def test_each_section_has_its_packages() -> None:
    assert [title for title, _ in SECTIONS] == list(PACKAGES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("title", "text"),
    [
        pytest.param(*each, id=each[0], marks=[pytest.mark.ecosystem] if PACKAGES[each[0]] else [])
        for each in SECTIONS
    ],
)
def test_commands_of_a_section(title: str, text: str, tmp_path: Path) -> None:
    for package in PACKAGES[title]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make test-ecosystem installs it")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignored)
    own = Path(sys.executable).parent
    executables = (own,) if PACKAGES[title] else (warm_python().parent, own)
    steps = steps_of(text)
    assert steps
    for step in steps:
        run_step(step, tmp_path, executables)
