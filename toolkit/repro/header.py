"""The docstring of `repro.py`: the failure, the versions, the result of a clean run."""

import platform
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import torch

from ctk.toolkit.case.carried_sources import SourcePlan
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.graphs.callables import foreign_operators
from ctk.toolkit.targets.base import Target

_NO_VERDICT = """
@atexit.register
def end_without_verdict():
    \"\"\"Report an import or a file that fails before the verdict.\"\"\"
    if __name__ != "__main__":
        return
    error = getattr(sys, "last_value", None)
    reason = "the script ended itself" if error is None else f"{{type(error).__name__}}: {{error}}"
    print(f"CANNOT TELL: {{' '.join(reason.split())}}; this script was written with torch {torch}")
    sys.stdout.flush()
    os._exit(125)
"""
NO_VERDICT_IMPORTS = ("import atexit", "import os", "import sys")
NOT_RUN = "not run"
VERDICT_NEXT = "    atexit.unregister(end_without_verdict)"

_PATH = re.compile(r"(?<![\w~.:/])/(?:[\w.+@-]+/)+([\w.+@-]+/[\w.+@-]+)")


@dataclass(frozen=True, slots=True)
class CleanRun:
    """The result of a run in a clean process.

    Attributes:
        needs: The modules that it had besides torch's and those of its folder.
        shows: Whether it showed the failure.
    """

    text: str
    needs: tuple[str, ...]
    shows: bool


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions with which a script was written."""

    torch: str
    python: str
    platform: str


def no_verdict_text(versions: Versions) -> str:
    """Return the code by which a script that ends before its verdict exits with 125."""
    return _NO_VERDICT.strip().format(torch=versions.torch)


def current_versions() -> Versions:
    """Return the versions of this process."""
    return Versions(
        torch=torch.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
    )


def shorten_paths(text: str) -> str:
    """Return a text with paths of this machine cut to their last two parts."""
    text = text.replace(str(Path.home()), "~")
    return _PATH.sub(r".../\1", text)


def docstring_of(
    case: Case,
    plan: SourcePlan,
    target: Target,
    culprit_pass: str | None,
    clean_run: CleanRun | None,
    versions: Versions,
    failure: str | None,
) -> str:
    """Return the docstring of a script."""
    signature = case.signature
    headline = f"{signature.kind} of {case.name}" if signature else f"{case.name}, not judged yet"
    headline = case.name if failure else headline
    run = f"python repro.py  (needs {needs_text(target, clean_run)})"
    made_up = ", ".join(case.synthetic)
    fields = {
        "Failure": failure or (str(signature) if signature else "not judged"),
        "Target": plan.target,
        "Culprit": culprit_pass,
        "Proof": _proof(target, culprit_pass),
        "Versions": f"torch {versions.torch}, Python {versions.python}, {versions.platform}",
        "Run": run,
        "Exit codes": "0 no failure, 1 failure, 125 cannot tell",
        "Clean run": clean_run.text if clean_run else NOT_RUN,
        "Missing": _cannot_travel(case),
        "Inputs": f"synthetic: {made_up} (not the program's own values)" if made_up else None,
    }
    lines = [_field(key, shorten_paths(one_line(text))) for key, text in fields.items() if text]
    title = one_line(f"Standalone repro: {headline} with {plan.target}.")
    text = f"{title}\n\n" + "\n".join(lines) + "\n"
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{escaped}"""'


def needs_text(target: Target, clean_run: CleanRun | None) -> str:
    """Return the packages that a script needs: `torch only` if a run with torch alone failed."""
    modules = clean_run.needs if clean_run else tuple(filter(None, [target.needs]))
    if not modules:
        return "torch only" if clean_run and clean_run.shows else "torch"
    return f"{', '.join(('torch', *modules[:-1]))} and {modules[-1]}"


def _cannot_travel(case: Case) -> str | None:
    """Return which operators of a graph a C++ library registers: a script does not carry it."""
    names = foreign_operators(case.graph)
    if not names:
        return None
    return f"the C++ library that registers {', '.join(names)}; load it in module()"


def _field(key: str, text: str) -> str:
    return textwrap.fill(
        f"{key + ':':<12}{text}",
        96,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _proof(target: Target, culprit_pass: str | None) -> str | None:
    setting = target.spell_disable([culprit_pass]) if culprit_pass is not None else ""
    return f"{setting} python repro.py  (leaves that pass out)" if setting else None
