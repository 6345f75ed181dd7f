"""One question: run a script with an interpreter, and read its answer.

| end of the script | outcome |
|---|---|
| exit code 0 | good |
| exit code 1 | bad |
| `FAILURE: another failure: ...` of an emitted script | cannot tell |
| exit code 1 without a verdict, for a missing module, name of torch, or syntax | cannot tell |
| any other exit code, a signal, the time limit | cannot tell |
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.usercode.process_name import process_name
from ctk.toolkit.case.formats.files import temporary_folder
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.processes.commands import Outcome, describe_exit
from ctk.toolkit.processes.scratch import OWNER, scratch_root
from ctk.toolkit.releases.interpreters import Interpreter
from ctk.toolkit.repro.run import ReproRun, run_repro

SECONDS = 600.0

_CACHES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CTK_CACHE_DIR",
    "XDG_CACHE_HOME",
    "TMPDIR",
)
_EMITTED = "def end_without_verdict("
_ABSENT = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError)\b.*"
    r"|^AttributeError: (?:(?:module '|type object ')?torch.* has no attribute "
    r"|torch\S+ does not exist$|'_OpNamespace' |The underlying op of )"
)
_LOG = re.compile(r"[VDIWE]\d{4} \d\d:\d\d:\d\d\.\d+ |No CUDA runtime is found\b")
"""Log lines of torch; its CUDA builds write the second one on a machine without CUDA."""

_LENGTH = 300


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """The answer of a script.

    Attributes:
        reason: Its verdict, or how it ended.
    """

    outcome: Outcome
    reason: str


def ask_script(script: Path, interpreter: Interpreter, seconds: float = SECONDS) -> ScriptAnswer:
    """Run a script in its folder; caches and temporary files are in a new folder.

    A script of the user may import modules beside it, an emitted script may not: its folder may
    come from another person.
    """
    is_emitted = _EMITTED in script.read_text(encoding="utf-8", errors="replace")
    with temporary_folder("release-", scratch_root()) as folder:
        caches = {name: str(folder / name.lower()) for name in _CACHES}
        Path(caches["TMPDIR"]).mkdir()
        variables = {**interpreter.variables, **caches, OWNER: process_name()}
        if not is_emitted:
            variables["PYTHONSAFEPATH"] = ""
        run = run_repro(
            script, python=str(interpreter.python), timeout_seconds=seconds, variables=variables
        )
    return read_answer(run, is_emitted=is_emitted)


def read_answer(run: ReproRun, *, is_emitted: bool) -> ScriptAnswer:
    """Return the answer that the end of a script stands for."""
    if run.outcome == "reproduced":
        return ScriptAnswer("bad", _short(run.verdict))
    if run.verdict:
        is_good = run.outcome == "not reproduced" and run.exit_code == 0
        return ScriptAnswer("good" if is_good else "cannot tell", _short(run.verdict))
    lines = [line for line in run.output.splitlines() if line.strip() and not _LOG.match(line)]
    last = lines[-1] if lines else ""
    ended = describe_exit(run.exit_code)
    if is_emitted or run.exit_code not in (0, 1) or (run.exit_code and _ABSENT.match(last)):
        return ScriptAnswer("cannot tell", _short(f"{ended}: {last}" if last else ended))
    return ScriptAnswer("bad" if run.exit_code else "good", _short(ended))


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…"
