"""Write the script of a program that fails: `repro.py`, which needs torch and the target only."""

import ast
import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.usercode.references import files_of
from ctk.repro_templates.program.program_play import How
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import make_folder, write_text
from ctk.toolkit.execution.programs.program_protocol import Plan
from ctk.toolkit.reduce.program.renaming import bindings_of, clashing, rename_names
from ctk.toolkit.reduce.program.syntax import split_future
from ctk.toolkit.repro.bare import run_bare
from ctk.toolkit.repro.carry import carry
from ctk.toolkit.repro.header import (
    NO_VERDICT_IMPORTS,
    NOT_RUN,
    VERDICT_NEXT,
    CleanRun,
    Versions,
    current_versions,
    needs_text,
    no_verdict_text,
)
from ctk.toolkit.repro.run import REPRO, ReproRun
from ctk.toolkit.repro.script import FREEZING, FREEZING_IMPORT, ScriptLimits
from ctk.toolkit.repro.verified import clean_run_of, target_modules
from ctk.toolkit.targets import target_of

PROGRAM = "program.py"
_CARRIED = (
    "ctk.repro_templates.program.program_verdict",
    "ctk.repro_templates.program.program_play",
    "ctk.repro_templates.program.exported_model",
    "ctk.repro_templates.graph.loading",
)
_LINE = (
    f"# {'-' * 98}\n# From here on: how the program is played and judged, the toolkit's own code."
)
_CACHES = (
    'os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")',
    'os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")',
)
_SEEDED = ("import random", "import torch", "random.seed(0)", "torch.manual_seed(0)")
_SEEDED_NUMPY = ("import numpy.random", "numpy.random.seed(0)")
_BESIDE = ("sys.path.append(os.path.dirname(os.path.abspath(__file__)))",)


@dataclass(frozen=True, slots=True)
class ProgramFailure:
    """A program that fails.

    Attributes:
        path: The file that it comes from: files beside it that it imports are copied.
        blame: Who is to blame, in one line for the header; empty when it is not known.
    """

    text: str
    path: Path
    plan: Plan
    signature: Signature
    blame: str = ""
    limits: ScriptLimits = field(default_factory=ScriptLimits)


def write_program_repro(
    failure: ProgramFailure, folder: Path, *, timeout_seconds: float = 600.0
) -> tuple[Path, ReproRun]:
    """Write `program.py` and `repro.py`; run the script in a clean process, record its verdict."""
    make_folder(folder)
    for file in files_of(failure.path)[1:]:
        place = folder / file.relative_to(failure.path.resolve().parent)
        make_folder(place.parent)
        place.write_bytes(file.read_bytes())
    write_text(folder / PROGRAM, failure.text)
    path = folder / REPRO
    write_text(path, render_program(failure))
    seen = run_bare(path, target_modules(failure.plan.target), timeout_seconds=timeout_seconds)
    write_text(path, render_program(failure, clean_run_of(seen)))
    return path, seen.run


def render_program(
    failure: ProgramFailure, clean_run: CleanRun | None = None, versions: Versions | None = None
) -> str:
    """Return the text of the script; `versions` are of this process if None."""
    ending = _ending(failure)
    target = target_of(failure.plan.target)
    freezing = [FREEZING_IMPORT] if target.freezes(failure.plan.config) else []
    backend = target.repro_backend
    carried = carry(ending, _CARRIED, [(backend.__module__, backend.__name__)])
    tree = ast.parse(failure.text)
    versions = versions or current_versions()
    unless = no_verdict_text(versions)
    ours = "\n".join((*NO_VERDICT_IMPORTS, unless, *carried.imports, carried.source, ending))
    names = clashing(bindings_of(tree), bindings_of(ast.parse(ours)))
    program = ast.unparse(rename_names(tree, names)) if names else failure.text.strip()
    future, body = split_future(program)
    files = files_of(failure.path)
    has_numpy = any(b"numpy" in file.read_bytes() for file in files)
    numpys = _SEEDED_NUMPY if has_numpy or "numpy" in failure.text else ()
    parts = [
        _header(failure, clean_run, versions),
        *([future] if future else []),
        "\n".join((*NO_VERDICT_IMPORTS, "\n", unless)),
        "\n".join((*_CACHES, *(_BESIDE if files[1:] else ()), *_SEEDED, *numpys)),
        body,
        f"\n{_LINE}",
        "\n".join((*carried.imports, *freezing)),
        f"\n{carried.source}",
        f"\n{ending}",
    ]
    return "\n\n".join(parts) + "\n"


def _header(failure: ProgramFailure, clean_run: CleanRun | None, versions: Versions) -> str:
    target = target_of(failure.plan.target)
    lines = [
        f"A program that compiles wrongly: {failure.signature.kind} at {failure.signature.output}",
        f"seen:     {failure.signature.message}",
        *([f"blame:    {failure.blame}"] if failure.blame else []),
        f"run:      python {REPRO}   (0: no failure, 1: the failure, 125: cannot tell)",
        f"ran:      {clean_run.text if clean_run else NOT_RUN}",
        f"made of:  torch {versions.torch}, Python {versions.python}, {versions.platform}",
        f"target:   {failure.plan.target}; needs {needs_text(target, clean_run)}",
    ]
    wrapped = [each for line in lines for each in textwrap.wrap(line, 97, subsequent_indent="  ")]
    return "\n".join(f"# {line}" for line in wrapped)


def _ending(failure: ProgramFailure) -> str:
    plan, target = failure.plan, target_of(failure.plan.target)
    options = {**target.defaults, **plan.config}
    dynamic = f' | {{"dynamic": {plan.dynamic}}}' if plan.dynamic is not None else ""
    call = "export_model" if target.exports else "torch.compile"
    how = {
        "calls": plan.calls,
        "backward": plan.backward,
        "more": plan.more,
        "fresh": plan.fresh,
        "exported": target.exports,
    }
    given = [f"{name}={value}" for name, value in how.items() if value != getattr(How(), name)]
    judged: dict[str, object] = {"strides": plan.strides, "timeout_seconds": failure.limits.seconds}
    if failure.limits.nbytes is not None:
        judged["memory_nbytes"] = failure.limits.nbytes
    expected = {"kind": failure.signature.kind, "exception": failure.signature.exception}
    return "\n".join(
        (
            "HERE = Path(__file__).parent",
            f"TARGET = {json.dumps(plan.target)}",
            f"OPTIONS = {options!r}",
            "",
            "",
            "def compiled(model: Any) -> Any:",
            '    """Compile the model with the target."""',
            "    torch.compiler.reset()",
            *(FREEZING if target.freezes(plan.config) else ()),
            f"    keywords = compile_keywords(globals()){dynamic}",
            f"    backend = {target.repro_backend.__name__}(TARGET, HERE)",
            f"    return {call}(model, backend=backend, options=OPTIONS or None, **keywords)",
            "",
            "",
            'if __name__ == "__main__":',
            "    sys.path.append(str(HERE))",
            f"    how = How({', '.join(given)})",
            f"    expected = {expected!r}",
            f"    judged = {judged!r}",
            "    repro = ProgramRepro(globals(), compiled, how, expected, **judged)",
            VERDICT_NEXT,
            "    sys.exit(main_of_program(repro))",
        )
    )
