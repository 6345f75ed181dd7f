"""Test suites of users: backends with planted faults, and pytest with the plugin."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

BACKENDS = '''
import os, pdb, signal, time
import torch

def right(gm, inputs):
    return gm.forward

def wrong(gm, inputs):
    """Add a hundredth to each result."""
    return lambda *args: tuple(each + 0.01 for each in gm(*args))

def low(gm, inputs):
    return lambda *args: tuple(each.bfloat16() for each in gm(*args))

def strided(gm, inputs):
    return lambda *args: tuple(each.mT.contiguous().mT for each in gm(*args))

def copied(gm, inputs):
    return lambda *args: tuple(each.clone() for each in gm(*args))

def no_mutation(gm, inputs):
    return lambda *args: gm(*[a.clone() for a in args])

class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return 2 * grad

def bad_gradient(gm, inputs):
    return lambda *args: tuple(Leaky.apply(each) for each in gm(*args))

def refuses(gm, inputs):
    raise NotImplementedError("no kernel")

def raises_later(gm, inputs):
    def call(*args):
        raise ValueError("no such buffer")
    return call

def crashes(gm, inputs):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(gm, inputs):
    """Hang until the time limit passes, which is now."""
    signal.raise_signal(signal.SIGALRM)
    time.sleep(600)

def f(x):
    return torch.sin(x) * 2

class Quits(pdb.Pdb):
    """A debugger that asks nothing."""
    def interaction(self, *args): pass

def run(backend, *shape):
    return torch.compile(f, backend=backend)(torch.ones(shape or (3,)))
'''


@dataclass(frozen=True)
class Result:
    """The result of one test: `passed`, `failed`, `error` or `skipped`, and its properties."""

    outcome: str
    message: str
    properties: dict[str, str]


@dataclass(frozen=True)
class SuiteRun:
    """One run of pytest on a suite."""

    code: int
    output: str
    results: dict[str, Result]
    out: Path

    @property
    def blamed(self) -> set[str]:
        """The tests that fail because of a compile."""
        return {
            name
            for name, each in self.results.items()
            if each.outcome in ("failed", "error") and "ctk_verdict" in each.properties
        }


def run_suite(
    folder: Path, suite: str, *options: str, python: Path | str = "", out: str = "out"
) -> SuiteRun:
    """Run pytest on a suite, in a process of its own, with `--ctk=check` unless given otherwise."""
    folder.mkdir(exist_ok=True)
    (folder / "backends.py").write_text(BACKENDS)
    (folder / "test_suite.py").write_text(f"from backends import *\nimport pytest\n{suite}")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    mode = () if any(each.startswith("--ctk") for each in options) else ("--ctk=check",)
    done = subprocess.run(
        [
            *(str(python or warm_python()), "-m", "pytest", "-p", "ctk_pytest", "-q"),
            *("-p", "no:cacheprovider", "--junitxml=junit.xml", f"--ctk-out={out}"),
            *(*mode, *options),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    report = folder / "junit.xml"
    results = _read(report) if report.exists() else {}
    return SuiteRun(done.returncode, done.stdout + done.stderr, results, folder / out)


def _read(report: Path) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        found = [each for each in case if each.tag in ("failure", "error", "skipped")]
        outcome = {"failure": "failed"}.get(found[0].tag, found[0].tag) if found else "passed"
        properties = {
            str(each.get("name")): str(each.get("value")) for each in case.iter("property")
        }
        message = str(found[0].get("message")) if found else ""
        results[str(case.get("name"))] = Result(outcome, message, properties)
    return results
