"""Import the scripts that torch writes for a failing compile; their `__main__` block is not run.

Cases: 1. `repro.py`, `minifier_launcher.py` and `checkpoints/*.py` of `TORCHDYNAMO_REPRO_AFTER=aot`
and `fx_graph_runnable.py` of `TORCH_COMPILE_DEBUG=1` (tlparse: `fx_graph_runnable_7.txt`) hold the
graph of ATen operators that AOTAutograd passes to Inductor. It is compiled from there:
decompositions, joint passes and partition see it again, as an inference graph, with little to do.
2. Scripts of `TORCHDYNAMO_REPRO_AFTER=dynamo` hold the graph that Dynamo captured and the name of
the backend; Dynamo captures it again, as in the script itself.

The inputs come from the script's folder of storages (stored_inputs.py). The options of Inductor
that it sets become the case's config; its other settings are restored.
"""

import ast
import dataclasses
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.fx import GraphModule, Tracer

from ctk.compiler.errors import ProgramError, count_of
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.process.settings import restore_settings
from ctk.compiler.usercode.python_files import load_file
from ctk.compiler.usercode.references import search_last, user_traceback
from ctk.repro_templates.program.program_play import SEED, seed_all
from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.base import Importer
from ctk.toolkit.importers.changed_options import filter_savable
from ctk.toolkit.importers.program import capture_cases, tensors_in
from ctk.toolkit.importers.stored_inputs import StoredInputs
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.targets import resolve_target, target_of

logger = logging.getLogger("ctk")

_MODULE = re.compile(r"^class Repro\(", re.MULTILINE)
_INPUTS = re.compile(r"^def load_args\(", re.MULTILINE)
_LOST = re.compile(r"self\.(\w+) = <lambda>\(\)")
"""The text of torch 2.11 and 2.13 for a sub-graph, which the script then lacks."""


@dataclass(frozen=True, slots=True)
class TorchScript:
    """The facts in the text of a script.

    Attributes:
        after: The layer that produced its graph: `aot` or `dynamo`.
    """

    path: Path
    after: str
    options: Mapping[str, Any]

    @property
    def target(self) -> str:
        backend = self.options.get("backend")
        return backend if self.after == "dynamo" and isinstance(backend, str) else "inductor"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders that may hold its inputs: the named one, or those beside a moved script."""
        said, here = self.options.get("save_dir"), self.path.parent
        first = [Path(said)] if isinstance(said, str) else []
        return (*first, here / "checkpoints", here, here.parent / "checkpoints")


class TorchRepro(Importer):
    """A file with a class `Repro` and a function `load_args`."""

    form = "repro.py, minifier_launcher.py or fx_graph_runnable.py of torch"

    @staticmethod
    def accepts(spec: str) -> bool:
        path = Path(spec).expanduser()
        if not spec.endswith((".py", ".txt")) or not path.is_file():
            return False
        text = path.read_text(encoding="utf-8", errors="replace")
        return bool(_MODULE.search(text) and _INPUTS.search(text))

    def cases(self, request: CaseOptions) -> list[Case]:
        return _load(read_script(Path(self.text).expanduser().resolve()), request)


def _load(script: TorchScript, request: CaseOptions) -> list[Case]:
    """Return the case of a script; after Dynamo one per graph that Dynamo captures of it.

    Raises:
        ProgramError: The script fails when it is loaded, or an input cannot be read.
    """
    target = request.target or script.target
    resolve_target(target)
    module, changed = _load_script(script.path)
    own = filter_savable(changed, script.path.name) if target_of(target).settings else {}
    config = {**own, **(request.config or {})}
    inputs = StoredInputs(script.folders)
    with seed_all():
        _call(partial(module.load_args, inputs), "load_args", script.path)
        made: Any = getattr(module, "mod", None)
        model = made if made is not None else _call(module.Repro, "Repro", script.path)
    if inputs.made_up:
        logger.warning(
            "ctk: %d of %d inputs of %s are made up: their storages are not beside the script",
            len(inputs.made_up), len(inputs.values), script.path.name,
        )  # fmt: skip
    if script.after == "dynamo":
        cases = _after_dynamo(script, model, inputs, target, config, request)
    else:
        logger.warning(
            "ctk: %s holds a graph of ATen operators, from after AOTAutograd: it is compiled from "
            "there, without the steps before", script.path.name,
        )  # fmt: skip
        cases = [_after_aot(script, model, inputs, target, config)]
    return cases


def read_script(path: Path) -> TorchScript:
    """Read the facts in the text of a script, without running it."""
    tree = _tree(path)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    options: dict[str, Any] = {}
    for call in calls:
        if getattr(call.func, "id", "") == "run_repro":
            options = {key.arg: _literal(key.value) for key in call.keywords if key.arg}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    after = "dynamo" if any("after_dynamo" in (node.module or "") for node in imports) else "aot"
    return TorchScript(path, after, options)


def _after_dynamo(
    script: TorchScript,
    model: torch.nn.Module,
    inputs: StoredInputs,
    target: str,
    config: Mapping[str, object],
    request: CaseOptions,
) -> list[Case]:
    """Return the cases that Dynamo captures; gradients are compared if there are any."""
    program = UserProgram(model, tuple(inputs.values), {}, script.path.stem, script.path)
    backward = request.backward or _has_gradients(program)
    dynamic = request.dynamic or script.options.get("tracing_mode") == "symbolic"
    cases = capture_cases(program, target=target, config=config, backward=backward, dynamic=dynamic)
    if script.options.get("autocast") and torch.cuda.is_available():
        region = Autocast("cuda", str(torch.get_autocast_dtype("cuda")).removeprefix("torch."))
        cases = [
            dataclasses.replace(case, modes=dataclasses.replace(case.modes, autocast=(region,)))
            for case in cases
        ]
    made_up = bool(inputs.made_up)
    return [
        dataclasses.replace(case, synthetic=_tensors(case)) if made_up else case for case in cases
    ]


def _tensors(case: Case) -> tuple[str, ...]:
    """Return the names of the tensor inputs of a graph: any of them may be made up."""
    nodes = case.graph.graph.find_nodes(op="placeholder")
    pairs = zip(nodes, case.inputs, strict=True)
    return tuple(node.name for node, value in pairs if isinstance(value, torch.Tensor))


def _has_gradients(program: UserProgram) -> bool:
    """Return whether the script's own run would do a backward pass."""
    if not any(tensor.requires_grad for tensor in tensors_in(program.inputs)):
        return False
    try:
        with eager_stance(), seed_all():
            copies = [
                value.detach().clone().requires_grad_(value.requires_grad)
                if isinstance(value, torch.Tensor)
                else value
                for value in program.inputs
            ]
            result = program.model(*copies)
    except Exception:  # raised again when the program is captured
        return False
    return any(tensor.requires_grad for tensor in tensors_in(result))


def _after_aot(
    script: TorchScript,
    model: torch.nn.Module,
    inputs: StoredInputs,
    target: str,
    config: Mapping[str, object],
) -> Case:
    """Return the case of an ATen graph: AOTAutograd made it, so no input requires grad."""
    graph = _trace(model, script.path)
    names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    if len(names) != len(inputs.values):
        raise ProgramError(
            f"{script.path.name}: forward() takes {count_of(len(names), 'input')}, but "
            f"load_args() gives {len(inputs.values)}"
        )
    values = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs.values]
    is_symbolic = script.options.get("tracing_mode") == "symbolic"
    return Case(
        graph=graph,
        inputs=tuple(values),
        target=target,
        config=config,
        modes=Modes(grad=False, seed=SEED),
        sources=source_files(target, config, script.path.parent),
        dynamic=_symbols(names, values) if is_symbolic else {},
        synthetic=tuple(names[index] for index in sorted(inputs.made_up)),
    )


def _symbols(names: Sequence[str], values: Sequence[object]) -> dict[str, tuple[str | None, ...]]:
    """Return the symbol of each size that equals the hint of a size input."""
    sizes: dict[int, str] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            sizes.setdefault(value, name)
    found = {
        name: tuple(sizes.get(size) for size in value.shape)
        for name, value in zip(names, values, strict=True)
        if isinstance(value, torch.Tensor)
    }
    return {name: symbols for name, symbols in found.items() if any(symbols)}


class _AtenTracer(Tracer):
    """Traces operators; sub-graphs (branches of `cond`) were traced before."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, GraphModule)


def _trace(model: torch.nn.Module, path: Path) -> GraphModule:
    """Return the module of a script, and those inside it, as graphs."""
    try:
        for name, child in list(model.named_children()):
            setattr(model, name, _trace(child, path))
        tracer = _AtenTracer()
        return GraphModule(model, tracer.trace(model))
    except ProgramError:
        raise
    except Exception as error:
        raise ProgramError(
            f"{path.name}: forward() of {type(model).__name__} cannot be traced as a graph: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error


def _load_script(path: Path) -> tuple[ModuleType, Mapping[str, object]]:
    """Run the file, not as `__main__`; return its module and Inductor's options that it sets."""
    try:
        with restore_settings() as changed, search_last(path.parent), seed_all():
            module = load_file(path, fresh=True)
    except (Exception, SystemExit) as error:
        lost = _LOST.search(path.read_text(encoding="utf-8", errors="replace"))
        if isinstance(error, SyntaxError) and lost:
            raise ProgramError(
                f"{path.name} is not whole: torch did not write its sub-graph {lost[1]} (a branch "
                "of torch.cond, a body of a loop), so nothing can run it\n"
                "next: give ctk the program itself: ctk run SCRIPT, or ctk check FILE.py"
            ) from error
        raise ProgramError(
            f"{path.name} fails when it is loaded: {user_traceback(error, path)}"
        ) from error
    return module, changed


def _call(function: Callable[[], Any], name: str, path: Path) -> Any:
    try:
        return function()
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"{name}() in {path.name} raised {user_traceback(error, path)}"
        ) from error


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):  # raised again when the file is loaded
        return None


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


IMPORTER = TorchRepro
