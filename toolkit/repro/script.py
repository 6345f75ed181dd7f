"""Write the text of `repro.py` from a case, without touching files.

The program, its inputs and its compile come first. Below a line follow the functions that run and
judge it: those of `repro_templates/`, by which the toolkit itself judges, copied as source
(carry.py).
"""

import dataclasses
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from ctk.compiler.torch_compat.gpu.triton_launch import is_interpreting
from ctk.repro_templates.numbers.float64 import METHODS
from ctk.toolkit.case.carried_sources import FOLDER, SourcePlan
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.fillings import RECIPE_SEEDS
from ctk.toolkit.case.graphs.callables import is_file, modules_of_calls, modules_of_torch
from ctk.toolkit.case.graphs.process_groups import groups_of
from ctk.toolkit.case.inputs import named_inputs
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.processes.memory import default_limit_nbytes
from ctk.toolkit.repro.carry import carry
from ctk.toolkit.repro.header import (
    NO_VERDICT_IMPORTS,
    VERDICT_NEXT,
    CleanRun,
    Versions,
    current_versions,
    docstring_of,
    no_verdict_text,
)
from ctk.toolkit.repro.inputs import inputs_body, plan_marks
from ctk.toolkit.repro.module import ModuleText, module_text
from ctk.toolkit.repro.tensor_source import Sources, scalar_source
from ctk.toolkit.targets import target_of
from ctk.toolkit.targets.base import Target

DATA_FILE = "repro.safetensors"
TIMEOUT_SECONDS = 120.0
START_SECONDS = 30.0
"""Time of a script besides the compile: it starts Python, torch and the target."""

CARRIED = (
    "ctk.repro_templates.graph.values",
    "ctk.repro_templates.graph.loading",
    "ctk.repro_templates.graph.verdict",
    "ctk.repro_templates.graph.running",
    "ctk.repro_templates.graph.settings",
    "ctk.repro_templates.graph.random_draws",
    "ctk.repro_templates.numbers.float64",
    "ctk.repro_templates.graph.measured_verdict",
    "ctk.compiler.torch_compat.dynamo.nested_compile",
    "ctk.compiler.torch_compat.process.guarded_memory",
    "ctk.compiler.torch_compat.process.process_groups",
    "ctk.compiler.torch_compat.gpu.triton_kernels",
    "ctk.compiler.usercode.python_files",
)
"""The modules that define the names of a script."""

_IS_TORCH = re.compile(r"(from|import) torch\b")
_NAMES_DTYPES = re.compile(
    r"\btorch\.(b?float|complex|u?int|half|double|bool|q|(set|get)_default)|Tensor[\"']"
    rf"|graph\.|\.({'|'.join(METHODS)})\("
)
"""Parts of a program that a float64 run must change or refuse."""
_PLAIN_IMPORTS = frozenset({"import math", "import operator"})
"""Imports without dtypes; functions of other modules may name some."""
_LINE = f"# {'-' * 98}\n# From here on: how the program is run and judged, the toolkit's own code."
FREEZING_IMPORT = "import torch._inductor.config"
FREEZING = (
    "    # Dynamo reads the setting of the process, not the options.",
    "    torch._inductor.config.freezing = True",
)
"""Lines of a function that compiles with a target that freezes parameters."""

_CACHES = (
    "# A cached graph would hide the passes that are under test.",
    'os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")',
    'os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")',
)
_INTERPRETS = 'os.environ.setdefault("TRITON_INTERPRET", "1")  # as the kernels of the program ran'
_INPUTS = '''def inputs():
    """Build the inputs of the program, by the names of its placeholders."""'''


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Limits of the compiled program; exceeding one is a failure."""

    seconds: float = TIMEOUT_SECONDS
    nbytes: int | None = None


def limits_of(
    signature: Signature | None, timeout_seconds: float | None, memory_nbytes: int | None
) -> ScriptLimits:
    """Return the limits of a script: those of the observed failure, plus time to start."""
    kind = signature.kind if signature is not None else None
    seconds = TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds + START_SECONDS
    return ScriptLimits(
        seconds if kind == "timeout" else TIMEOUT_SECONDS,
        (memory_nbytes or default_limit_nbytes()) if kind == "memory" else None,
    )


@dataclass(frozen=True, slots=True)
class ReproScript:
    """The text of a repro, and the tensors of its data file (none: no file)."""

    text: str
    data: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class ScriptForm:
    """How a script runs its program.

    Attributes:
        hands_over: It hands the graph to the target without Dynamo.
        is_guarded: It surrounds inputs and buffers with memory of known contents.
    """

    hands_over: bool = False
    is_guarded: bool = False


PLAIN = ScriptForm()


def render_script(
    case: Case,
    plan: SourcePlan,
    *,
    culprit_pass: str | None = None,
    clean_run: CleanRun | None = None,
    versions: Versions | None = None,
    limits: ScriptLimits | None = None,
    failure: str | None = None,
    form: ScriptForm = PLAIN,
) -> ReproScript:
    """Return the script of a case.

    Args:
        plan: Its sources, config and target as the script sees them.
        clean_run: The result of a run in a clean process, for the header.
        limits: Of time and memory; None: those of the failure.
        failure: Text of the failure for the header; None: the signature of the case.

    Raises:
        CaseError: The graph or an input cannot be written.
    """
    seeds = tuple(dict.fromkeys((case.modes.seed, *RECIPE_SEEDS)))
    sources = Sources(default_dtype=getattr(torch, case.modes.default_dtype), seeds=seeds)
    module = module_text(case, sources, hands_over=form.hands_over)
    marks = plan_marks(case, module.arguments)
    body = inputs_body(case, sources, marks)
    versions = versions or current_versions()
    target = target_of(plan.target)
    freezes = target.freezes(case.config) and not case.modes.grad
    own = "\n\n\n".join(
        (
            _settings(case, plan, target, has_data=bool(sources.data)),
            module.classes,
            _module(case, plan, module),
            f"{_INPUTS}\n{body}",
            _compile_function(
                plan,
                target,
                module,
                is_dynamic=marks.free,
                freezes=freezes,
                is_timed=case.signature is not None and case.signature.is_timed,
            ),
        )
    )
    limits = limits or limits_of(case.signature, None, None)
    used = _program_arguments(case, module, limits, shares_memory="shared" in sources.helpers)
    used += ["guards=guarded,"] if form.is_guarded else []
    ending = _ending(case, module.arguments, used)
    backend = target.repro_backend
    carried = carry(f"{own}\n{ending}", CARRIED, [(backend.__module__, backend.__name__)])
    imports = (*module.imports, *([FREEZING_IMPORT] if freezes else []))
    beginning = _beginning(carried.imports, imports, own, versions, plan.search)
    docstring = docstring_of(case, plan, target, culprit_pass, clean_run, versions, failure)
    parts = (f"{docstring}\n\n{beginning}\n\n{own}", _LINE, carried.source, ending)
    return ReproScript("\n\n\n".join(parts) + "\n", sources.data)


def _beginning(
    carried: Sequence[str],
    program: Sequence[str],
    own: str,
    versions: Versions,
    folders: Sequence[str],
) -> str:
    """Return the import statements: the standard library, then torch and the program's own."""
    plain = {line for line in carried if not _IS_TORCH.match(line)}
    plain |= {*NO_VERDICT_IMPORTS, "from pathlib import Path"}
    if "importlib." in own:
        plain.add("import importlib")
    math = [name for name in ("inf", "nan") if re.search(rf"\b{name}\b", own)]
    if math:
        plain.add(f"from math import {', '.join(math)}")
    torch_lines = {line for line in carried if _IS_TORCH.match(line)} | {"import torch", *program}
    lines = [*sorted(plain, key=_import_order), "", *_CACHES]
    lines += [_INTERPRETS] if "with_numbers(" in own and is_interpreting() else []
    lines += [f'sys.path.append(str(Path(__file__).resolve().parent / "{f}"))' for f in folders]
    late = sorted(torch_lines, key=_import_order)
    return "\n".join((*lines, "\n", no_verdict_text(versions), "", *late))


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from "), line


def _settings(case: Case, plan: SourcePlan, target: Target, *, has_data: bool) -> str:
    """Return the constants of the script: target, options, modes, the failure, folders."""
    lines = [f"TARGET = {literal(plan.target)}", f"CONFIG = {literal(plan.config)}"]
    if target.defaults:
        lines.append(f"DEFAULTS = {literal(dict(target.defaults))}")
    if functions := _functions(plan, target):
        note = "  # references of CONFIG, relative to this folder"
        lines.append(f"FUNCTIONS = {literal(functions)}{note}")
    lines.append(f"MODES = {literal(dataclasses.asdict(case.modes))}")
    lines.append(f"EXPECTED = {literal(_expected_failure(case))}")
    lines.append("HERE = Path(__file__).resolve().parent")
    if has_data:
        lines.append(f'DATA = HERE / "{DATA_FILE}"')
    return "\n".join(lines)


def _module(case: Case, plan: SourcePlan, module: ModuleText) -> str:
    """Return the function that builds the program; operators of the user are registered first."""
    lines = ["def module():", '    """Build the program with its constants."""']
    modules = [call for call in modules_of_calls(case.graph) if not is_file(call)]
    modules = dict.fromkeys([*modules, *modules_of_torch(case.graph)])
    imports = [f"importlib.import_module({literal(each)})" for each in modules]
    imports += [f"load_file(HERE / {literal(place)})" for place in plan.registering]
    lines += [f"    {line}  # its operators" for line in imports]
    lines += [
        f"    stand_in_for_group({literal(name)}, {group.rank}, {group.size})"
        for name, group in groups_of(case.graph).items()
    ]
    lines.append(f"    return Repro({textwrap.indent(module.constants, '    ').strip()})")
    return "\n".join(lines)


def _compile_function(
    plan: SourcePlan,
    target: Target,
    module: ModuleText,
    *,
    is_dynamic: bool,
    freezes: bool,
    is_timed: bool,
) -> str:
    """Return the function that compiles the program; if timed, it takes other programs as well."""
    options = "CONFIG"
    if _functions(plan, target):
        value = "loaded_function(name, HERE)" if target.takes_functions else "str(HERE / name)"
        options = f"replaced(CONFIG, {{name: {value} for name in FUNCTIONS}})"
    options = f"DEFAULTS | {options}" if target.defaults else f"{options} or None"
    lines = [f"def compiled({'program=None' if is_timed else ''}):"]
    lines += ['    """Return the module compiled by the target."""']
    lines.append("    torch.compiler.reset()")
    if freezes:
        lines.extend(FREEZING)
    lines.append(f"    options = {options}")
    lines.append(f"    backend = {target.repro_backend.__name__}(TARGET, HERE)")
    program = "program or module()" if is_timed else "module()"
    if is_timed and module.handed is not None:
        lines.append("    if program is not None:")
        lines.append("        return torch.compile(program, backend=backend, options=options)")
    if module.handed is not None:
        lines.append("    # Dynamo would not capture this graph again as it is.")
        lines.append(f"    return Handed(module(), backend, options, {module.handed!r})")
        return "\n".join(lines)
    arguments = f"{program}, backend=backend, fullgraph=True, options=options"
    if is_dynamic:
        lines.append("    # An int is symbolic; inputs() marks the fixed sizes.")
        arguments += ", dynamic=True"
    lines.append(f"    return torch.compile({arguments})")
    return "\n".join(lines)


def _program_arguments(
    case: Case, module: ModuleText, limits: ScriptLimits, *, shares_memory: bool
) -> list[str]:
    """Return the arguments of `GraphProgram` that few programs need, because each carries code."""
    names_dtypes = _NAMES_DTYPES.search(module.classes) or set(module.imports) - _PLAIN_IMPORTS
    ends_process = case.signature is not None and case.signature.ends_process
    breaks_eager = case.signature is not None and case.signature.breaks_eager
    eager = None if breaks_eager else run_eager(case)
    may_draw = eager is not None and (eager.drew_random or eager.run is None)
    has_autocast = case.modes.autocast or "autocast" in module.classes
    is_needed = {
        "default_device": case.modes.default_device,
        "settings": case.modes.settings,
        "deterministic": case.modes.deterministic,
        "autocast": has_autocast,
    }
    states = [name for name, is_set in is_needed.items() if is_set]
    arguments = {
        f"states=({', '.join(states)},),": states,
        "casts=InFloat64,": names_dtypes,
        "shares_memory=True,": shares_memory,
        "draws=same_draws,": may_draw,
        f"crash=lambda: crash_of_child({limits.seconds:g}, {limits.nbytes}),": ends_process,
        f"survives=lambda: survives_in_child({limits.seconds:g}, {limits.nbytes}),": breaks_eager,
        **dict.fromkeys(_measure(case.signature), True),
    }
    return [text for text, is_used in arguments.items() if is_used]


def _measure(signature: Signature | None) -> list[str]:
    """Return the argument that carries the code of measurements, for a measured failure."""
    if signature is None or signature.limit is None:
        return []
    calls = {
        "slow": f"slow_failure(program, {signature.limit!r}, compiled)",
        "peak-memory": f"peak_failure(program, {signature.limit!r})",
        "slow-compile": f"slow_compile_failure(program, {signature.limit!r}, compiled)",
    }
    return [f"measure=lambda program: {calls[signature.kind]},"] if signature.is_measured else []


def _ending(case: Case, arguments: Sequence[str], used: Sequence[str]) -> str:
    sizes = [name for name in named_inputs(case) if name not in arguments]
    lines = ["module,", "inputs,", "compiled,", "MODES,", "EXPECTED,"]
    if sizes:
        lines += ["# inputs that are sizes of others"]
        lines += [f"sizes={literal(sizes)},"]
    lines += used
    inner = textwrap.indent("\n".join(lines), " " * 12)
    call = f"        GraphProgram(\n{inner}\n        )"  # a name could be that of a user's module
    ending = f"    sys.exit(main(\n{call}\n    ))"
    return f'if __name__ == "__main__":\n{VERDICT_NEXT}\n{ending}'


def _functions(plan: SourcePlan, target: Target) -> list[str]:
    """Return the references of the config that the script must resolve.

    A target either takes functions, or loads references itself and needs the places of files.
    """
    return [
        text for text in plan.references if target.takes_functions or text.startswith(f"{FOLDER}/")
    ]


def _expected_failure(case: Case) -> dict[str, object]:
    names = ("kind", "exception", "signal")
    return {name: getattr(case.signature, name, None) for name in names}


def literal(value: object, room: int = 80) -> str:
    """Return JSON-like data as Python source, on one line if it fits, else one item per line."""
    if isinstance(value, str):  # invisible characters are escaped
        return json.dumps(value, ensure_ascii=False) if value.isprintable() else ascii(value)
    if not isinstance(value, (Mapping, list, tuple)):
        return scalar_source(value, "of the options")
    is_mapping = isinstance(value, Mapping)
    if is_mapping:
        pairs = cast("Mapping[str, object]", value).items()
        items = [f"{literal(key)}: {literal(item, room - 4)}" for key, item in pairs]
    else:
        items = [literal(item, room - 4) for item in cast("Sequence[object]", value)]
    opening, closing = "{}" if is_mapping else "[]"
    line = f"{opening}{', '.join(items)}{closing}"
    if len(line) <= room and "\n" not in line:
        return line
    inner = textwrap.indent("".join(f"{item},\n" for item in items), "    ")
    return f"{opening}\n{inner}{closing}"
