"""The pins, the supported versions and the entry points agree wherever they are written."""

import re
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ctk.compiler.torch_compat.versions import NEWEST_TESTED, OLDEST_SUPPORTED, is_supported
from ctk.toolkit.operations.doctor import PACKAGES
from tests.helpers.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = [pin for pin in found if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in here}


def closure(requirements: list[str]) -> set[str]:
    """Return the distributions that some requirements lead to, all dependencies included.

    The dependencies of torch are those of the pinned release: another one brings its own.
    """
    is_pinned = metadata.version("torch").partition("+")[0] == pins()["torch"]
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                needs = (metadata.requires(name) or []) if is_pinned or name != "torch" else []
                waiting += [(Requirement(text), wanted) for text in needs]
    return {name for name, _ in seen}


def test_every_dependency_is_pinned() -> None:
    declared = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    assert not closure(declared) - set(pins()), "pin them in constraints.txt"


def test_pins_satisfy_what_is_declared() -> None:
    declared = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    pinned = pins()
    for requirement in map(Requirement, declared):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_pins_have_no_local_version() -> None:
    assert not [version for version in pins().values() if "+" in version]


def test_the_supported_torch_has_no_upper_bound() -> None:
    (torch,) = (text for text in PROJECT["dependencies"] if text.startswith("torch"))
    assert Requirement(torch).specifier == Requirement(f"torch>={OLDEST_SUPPORTED}").specifier
    assert is_supported(pins()["torch"])
    assert is_supported(NEWEST_TESTED)
    assert PROJECT["optional-dependencies"]["newest"] == [f"torch=={NEWEST_TESTED}"]
    assert not is_supported("2.10.1")


def test_doctor_looks_at_the_declared_packages() -> None:
    names = {Requirement(text).name for text in PROJECT["dependencies"]} - {"torch"}
    assert names | {"ctk"} == set(PACKAGES)


def test_entry_points_load() -> None:
    distribution = metadata.distribution("ctk")
    points = {(point.group, point.name): point for point in distribution.entry_points}
    expected = {
        ("console_scripts", "ctk"),
        ("torch_dynamo_backends", "ctk"),
        ("ctk.hooks", "environment"),
        ("pytest11", "ctk"),
    }
    assert set(points) == expected
    assert points.pop(("pytest11", "ctk")).load().pytest_addoption  # a module of hooks
    assert all(callable(point.load()) for point in points.values())


def test_changelog_mentions_the_version_or_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## (Unreleased|{re.escape(PROJECT['version'])})", text, re.MULTILINE)
