"""Run a repro where only torch and named packages can be imported, and find which it needs.

    needs torch only     no other package and none of the user's folders was there, and it failed
    needs torch, numpy   the first run missed numpy, the second one had it

A `sitecustomize.py` hides the other packages, in the script and in the processes that it starts.
"""

import contextlib
import importlib.metadata
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.usercode.closure import reachable
from ctk.toolkit.repro.run import ReproRun, run_repro

_MISSING = re.compile(r"No module named '([A-Za-z_]\w*)")
_SITE = """
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

ALLOWED, INSTALLED, HERE = {allowed!r}, {installed!r}, Path.cwd()
STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
PACKAGES = ("site-packages", "dist-packages")


def is_hidden(name, spec):
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    if not places or name in ALLOWED:
        return False
    place = Path(places[0]).resolve()
    if place.is_relative_to(HERE):
        return False
    installed = [n for n, part in enumerate(place.parts) if part in PACKAGES]
    if installed:  # setuptools, which torch requires, has packages of others in a folder of its own
        return place.parts[installed[-1] + 1].partition(".")[0] not in ALLOWED
    return not place.is_relative_to(STDLIB)


class Named:
    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        for finder in self.finders:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                is_shown = path is not None or not is_hidden(name, spec)
                return spec if is_shown else self.find_behind(name)
        return None

    def find_behind(self, name):
        specs = (PathFinder.find_spec(name, [entry]) for entry in sys.path)
        return next((spec for spec in specs if spec and not is_hidden(name, spec)), None)

    def find_distributions(self, *context):
        for found in PathFinder.find_distributions(*context):
            if (found.metadata["Name"] or "").lower().replace("_", "-") in INSTALLED:
                yield found

    def invalidate_caches(self):
        PathFinder.invalidate_caches()


sys.meta_path[:] = [Named(list(sys.meta_path))]
"""


@dataclass(frozen=True, slots=True)
class BareRun:
    """A run of a repro, and the modules that it had besides torch's and its own."""

    run: ReproRun
    needs: tuple[str, ...]


def run_bare(path: Path, modules: Sequence[str], *, timeout_seconds: float = 600.0) -> BareRun:
    """Run a repro with torch and modules that it needs; allow a missing one in another run.

    Args:
        modules: Modules that it needs, as far as known.
    """
    needs = [*modules]
    while True:
        run = _run_with(path, needs, timeout_seconds)
        found = _MISSING.search(run.verdict)
        if found is None:
            return BareRun(run, tuple(needs))
        if found[1] in needs:  # perhaps on the user's PYTHONPATH
            return BareRun(run_repro(path, timeout_seconds=timeout_seconds), tuple(needs))
        needs.append(found[1])


def _run_with(path: Path, modules: Iterable[str], timeout_seconds: float) -> ReproRun:
    owners = importlib.metadata.packages_distributions()
    needed = [_normal(name) for each in ("torch", *modules) for name in owners.get(each, [each])]
    installed = set(reachable(needed, _requirements))
    brought = {top for top, names in owners.items() if installed.intersection(map(_normal, names))}
    allowed = {*modules, "torch", *brought}
    with tempfile.TemporaryDirectory() as folder:
        text = _SITE.format(allowed=sorted(allowed), installed=sorted(installed))
        (Path(folder) / "sitecustomize.py").write_text(text, encoding="utf-8")
        places = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]  # of allowed modules
        variables = {"PYTHONPATH": os.pathsep.join(places), "PYTHONNOUSERSITE": "1"}
        return run_repro(path, timeout_seconds=timeout_seconds, variables=variables)


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _requirements(name: str) -> Iterator[str]:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for text in importlib.metadata.requires(name) or ():
            if "extra ==" not in text:
                yield _normal(re.split(r"[^\w.-]", text, maxsplit=1)[0])
