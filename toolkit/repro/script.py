"""Render the text of `repro.py` from a case: the pure part, which touches no file.

The templates are in `repro_templates/`; they hold everything that is the same in all scripts,
this module what differs.
"""

import json
import platform
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import jinja2
import torch

from ctk.repro_templates.errors import FACTOR
from ctk.repro_templates.tolerance import tolerance_for
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.sources import FOLDER, SourcePlan
from ctk.toolkit.formats.buildable import RECIPE_SEEDS
from ctk.toolkit.repro.inputs import inputs_body, named_inputs, plan_marks
from ctk.toolkit.repro.module import module_text
from ctk.toolkit.repro.tensor_source import Sources, scalar_source
from ctk.toolkit.targets.inductor.options import COMPARABLE

DATA_FILE = "repro.safetensors"
TIMEOUT_SECONDS = 120
_NOT_RUN = "not run"
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_PATH = re.compile(r"(?<![\w~.:/])/(?:[\w.+@-]+/)+([\w.+@-]+/[\w.+@-]+)")


@dataclass(frozen=True, slots=True)
class Versions:
    """What a script was written with."""

    torch: str
    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class Script:
    """The text of a repro and the tensors of its data file (none: no file)."""

    text: str
    data: Mapping[str, torch.Tensor]


def current_versions() -> Versions:
    """Return the versions of this process."""
    return Versions(
        torch=torch.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
    )


def render_script(
    case: Case,
    plan: SourcePlan,
    *,
    culprit_pass: str | None = None,
    clean_run: str = _NOT_RUN,
    versions: Versions | None = None,
) -> Script:
    """Return the script of a case.

    Args:
        case: The failure; nothing of it is changed.
        plan: Its sources, config and target as the script sees them.
        culprit_pass: The guilty pass, if known (`joint/fold`).
        clean_run: What a run in a clean process showed, for the header.
        versions: Those of this process when None.

    Raises:
        CaseError: The graph or an input cannot be written.
    """
    seeds = tuple(dict.fromkeys((case.modes.seed, *RECIPE_SEEDS)))
    sources = Sources(default_dtype=getattr(torch, case.modes.default_dtype), seeds=seeds)
    module = module_text(case, sources)
    marks = plan_marks(case, module.arguments)
    body = inputs_body(case, sources, marks)
    versions = versions or current_versions()
    context: dict[str, object] = {
        **_target_context(plan, has_data=bool(sources.data)),
        "docstring": _docstring(case, plan, culprit_pass, clean_run, versions),
        "modes": literal(_modes(case.modes)),
        "expected": literal(_expected(case)),
        "classes": module.classes,
        "imports": module.imports,
        "constants": textwrap.indent(module.constants, "    ").strip(),
        "sizes": literal([name for name in named_inputs(case) if name not in module.arguments]),
        "inputs_body": body,
        "helpers": sources.helpers,
        "data_file": DATA_FILE if sources.data else "",
        "needs_math": _names_of_math(f"{module.constants}\n{body}"),
        "in_child": case.signature is not None and case.signature.kind in ("signal", "timeout"),
        "timeout_seconds": TIMEOUT_SECONDS,
        "dynamic_ints": marks.free,
        "backward": case.modes.backward,
        "has_reference": not sources.helpers & {"shared"},
        "tolerance_lines": _tolerance_lines(),
        "factor": FACTOR,
        "torch_version": versions.torch,
    }
    text = _environment().get_template("repro.py.j2").render(context)
    return Script(text.rstrip("\n") + "\n", sources.data)


def _target_context(plan: SourcePlan, *, has_data: bool) -> dict[str, object]:
    """Return what the template asks of the target, its config and the files beside the script."""
    kind = _target_kind(plan.target)
    functions = _functions(plan)
    is_inductor = plan.target == "inductor"
    loads = kind in ("module", "file") or bool(functions and is_inductor)
    return {
        "target": {"spec": plan.target, "source": literal(plan.target), "kind": kind},
        "config": literal(plan.config),
        "needs_here": bool(has_data or plan.copies or loads),
        "has_sources": bool(plan.copies),
        "functions": literal(functions),
        "resolves": bool(functions),
        "loads_functions": loads,
        "defaults": literal(dict(COMPARABLE)) if is_inductor else "",
    }


def _names_of_math(source: str) -> str:
    """Return which of `inf` and `nan` a source uses, as an import lists them."""
    return ", ".join(name for name in ("inf", "nan") if re.search(rf"\b{name}\b", source))


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("ctk.repro_templates", ""),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )


def _target_kind(target: str) -> str:
    if target in ("ctk", "torchscript"):
        return target
    if target.startswith(f"{FOLDER}/"):
        return "file"
    return "module" if ":" in target else "dynamo"


def _functions(plan: SourcePlan) -> list[str]:
    """Return the references of the config that the script must resolve.

    The pipeline takes references itself, and needs to be told only where a file is; Inductor takes
    functions.
    """
    is_ours = plan.target == "inductor"
    return [text for text in plan.references if is_ours or text.startswith(f"{FOLDER}/")]


def _modes(modes: Modes) -> dict[str, object]:
    regions = [
        {"device_type": r.device_type, "dtype": r.dtype, "cache_enabled": r.cache_enabled}
        for r in modes.autocast
    ]
    return {
        "grad": modes.grad,
        "inference": modes.inference,
        "backward": modes.backward,
        "autocast": regions,
        "deterministic": modes.deterministic,
        "seed": modes.seed,
        "default_dtype": modes.default_dtype,
    }


def _expected(case: Case) -> dict[str, object]:
    signature = case.signature
    return {
        "kind": signature.kind if signature else None,
        "exception": signature.exception if signature else None,
        "signal": signature.signal if signature else None,
    }


def literal(value: object, room: int = 80) -> str:
    """Return JSON-like data as Python source, on one line if it fits, else one item per line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
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


def _tolerance_lines() -> list[str]:
    rows = [(dtype, tolerance_for(dtype, "reassociates")) for dtype in _DTYPES]
    lines = [
        line
        for dtype, row in rows
        for line in (f"    # {row.source}", f"    {dtype}: ({row.rtol!r}, {row.atol!r}),")
    ]
    return ["TOLERANCES = {", *lines, "}"]


def shorten_paths(text: str) -> str:
    """Return a text with paths of this machine cut to their last two parts."""
    text = text.replace(str(Path.home()), "~")
    return _PATH.sub(r".../\1", text)


def _docstring(
    case: Case, plan: SourcePlan, culprit_pass: str | None, clean_run: str, versions: Versions
) -> str:
    signature = case.signature
    headline = f"{signature.kind} of {case.name}" if signature else f"{case.name}, not judged yet"
    needs = {
        "ctk": "torch and the package ctk",
        "torchscript": "torch and the package ctk",
        "module": f"torch and the module {plan.target.partition(':')[0]}",
    }.get(_target_kind(plan.target), "torch only")
    run = f"python repro.py  (needs {needs})"
    fields = {
        "Failure": str(signature) if signature else "not judged",
        "Target": plan.target,
        "Culprit": culprit_pass,
        "Proof": _proof(plan.target, culprit_pass),
        "Versions": f"torch {versions.torch}, Python {versions.python}, {versions.platform}",
        "Run": run,
        "Exit codes": "0 no failure, 1 failure, 125 cannot tell",
        "Clean run": clean_run,
        "Inputs": _inputs_note(case),
    }
    lines = [_field(key, shorten_paths(text)) for key, text in fields.items() if text]
    text = f"Standalone repro: {headline} with {plan.target}.\n\n" + "\n".join(lines) + "\n"
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{escaped}"""'


def _field(key: str, text: str) -> str:
    """Return a line of the header, folded under its own text."""
    return textwrap.fill(
        f"{key + ':':<12}{text}",
        96,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _proof(target: str, culprit_pass: str | None) -> str | None:
    if culprit_pass is None or target != "ctk":
        return None
    return f"CTK_DISABLE={culprit_pass} python repro.py  (leaves that pass out)"


def _inputs_note(case: Case) -> str | None:
    if not case.synthetic:
        return None
    return f"synthetic: {', '.join(case.synthetic)} (not the program's own values)"
