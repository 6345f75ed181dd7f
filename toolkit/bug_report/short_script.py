"""The short repro: a script as an engineer would write it, with torch and without code of ctk.

    class Repro(torch.nn.Module): ...                      the graph of the case (`repro/module.py`)
    def inputs(): return {"x": torch.tensor([255.0])}      its inputs (`repro/inputs.py`)

    model = Repro()
    expected = model(*inputs().values())
    actual = torch.compile(model, fullgraph=True)(*inputs().values())
    torch.testing.assert_close(actual, expected, equal_nan=True)

A program that fails while no graph of it does is taken as it is, its calls below. `NoShortForm`
has the reason where a script cannot be short; whether it shows the failure, only a run can answer
(`script_check`).
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch

from ctk.compiler.errors import CaseError
from ctk.repro_templates.graph.loading import registered_backend
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.graphs.callables import modules_of_calls, modules_of_torch
from ctk.toolkit.case.graphs.process_groups import groups_of
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.repro.carry import carry
from ctk.toolkit.repro.inputs import inputs_body, plan_marks
from ctk.toolkit.repro.module import ModuleText, module_text
from ctk.toolkit.repro.script import FREEZING_IMPORT, literal
from ctk.toolkit.repro.tensor_source import RECIPE_SEEDS, Sources
from ctk.toolkit.targets import target_of

HANG_SECONDS = 60
"""When a script that hangs prints its stack and ends."""

EAGER_RUNS = "eager runs it"
RAISES_NOTHING = "the compiled program raises nothing"

COMPARED: tuple[FailureKind, ...] = ("accuracy", "nan", "dtype", "shape", "stride", "structure")
"""Kinds that `torch.testing.assert_close` sees."""

RAISED: tuple[FailureKind, ...] = ("compile-error", "runtime-error")
SHORT_KINDS = (*COMPARED, *RAISED, "missing-error", "signal", "timeout")

_WIDTH = 80
_HELPERS = ("ctk.repro_templates.graph.values",)
_SPREAD = """def run(call, given):
    return call(*given) if isinstance(given, tuple) else call(given)"""
_BARE_INIT = "    def __init__(self, constants):\n        super().__init__()\n\n"

DEFAULT_BACKEND = "inductor"
"""The backend of `torch.compile` without one."""


class NoShortForm(Exception):
    """A script cannot be short; its text is the reason, for the sentence `... because REASON`."""


@dataclass(frozen=True, slots=True)
class ShortProgram:
    """The parts from which the script and the regression test are made.

    Attributes:
        imports: Import statements besides `import torch`.
        text: Helpers, classes and `inputs()`; for a whole program its file.
        settings: Statements that set the state of the process.
        run: The function `run(call)`, if a plain call is not enough; else empty.
        prepare: Statements before the two calls.
        eager: The expression of the call in eager.
        compiled: That of the compiled call.
        loop: The statements of a loop above, or none.
    """

    signature: Signature
    imports: tuple[str, ...]
    text: str
    settings: tuple[str, ...] = ()
    run: str = ""
    prepare: tuple[str, ...] = ()
    eager: str = ""
    compiled: str = ""
    loop: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The whole script."""
        inside = "    " if self.loop else ""
        ending = [*self.prepare, *self.loop, *(f"{inside}{line}" for line in self._compare())]
        parts = [self.text, self.run, "\n".join(ending)]
        return "\n\n\n".join(filter(None, (self.head(self._imports()), *parts))) + "\n"

    def head(self, imports: Collection[str] = (), after: str = "") -> str:
        """Return the import statements, `after` as the last, and the settings of the process."""
        lines = sorted({*imports, *self.imports} - {"import torch"})
        has_torch = re.search(r"^import torch$", self.text, re.MULTILINE) is not None
        late = [*["import torch"] * (not has_torch), *filter(None, [after])]
        parts = (lines, late, self.settings)
        return "\n\n".join("\n".join(part) for part in parts if part)

    def _imports(self) -> tuple[str, ...]:
        return ("import faulthandler",) * (self.signature.kind in ("signal", "timeout"))

    def _compare(self) -> Iterator[str]:
        kind = self.signature.kind
        if kind == "missing-error":
            yield from ("try:", f"    {self.eager}", "except Exception as error:")
            yield '    print(f"eager raises {type(error).__name__}: {error}")'
            yield self.compiled
            yield f'raise AssertionError("{RAISES_NOTHING}")'
        elif kind in COMPARED:
            strides = ", check_stride=True" * (kind == "stride")
            yield f"expected = {self.eager}"
            yield f"actual = {self.compiled}"
            yield f"torch.testing.assert_close(actual, expected, equal_nan=True{strides})"
        else:
            yield self.eager
            yield f'print("{EAGER_RUNS}")'
            yield from ["faulthandler.enable()"] * (kind == "signal")
            hangs = f"faulthandler.dump_traceback_later({HANG_SECONDS}, exit=True)"
            yield from [hangs] * (kind == "timeout")
            yield self.compiled


def exception_name(signature: Signature) -> str:
    """Return the exception type of a failure as a test names it."""
    return signature.exception if hasattr(builtins, signature.exception or "") else "Exception"  # type: ignore[return-value]  # a builtin has a name


# --- a graph ------------------------------------------------------------------------------------


def short_program(case: Case, *, ones: bool = True) -> ShortProgram:
    """Return the short form of a case.

    Args:
        ones: Start gradients from ones, as `out.sum().backward()` does; else from seeded randn.

    Raises:
        NoShortForm: It has none.
    """
    signature = _refuse(case)
    sources = Sources(
        default_dtype=getattr(torch, case.modes.default_dtype),
        seeds=tuple(dict.fromkeys((case.modes.seed, *RECIPE_SEEDS))),
    )
    try:
        module = module_text(case, sources)
        marks = plan_marks(case, module.arguments)
        body = inputs_body(case, sources, marks, only=module.arguments)
    except CaseError as error:
        raise NoShortForm(str(error)) from error
    if module.handed is not None:
        raise NoShortForm("Dynamo cannot capture this graph again from its source")
    if "stored" in sources.helpers:
        raise NoShortForm("the values of its inputs are in a data file")
    text = f"{_classes(module)}\n\n\ndef inputs():\n{_inline(body)}"
    helpers = carry(text, _HELPERS)
    draws = signature.kind not in ("missing-error",) and run_eager(case).drew_random
    run = _run_function(case.modes, signature, draws=draws, ones=ones)
    build, compiled = _build(module), _compile_call(case, is_dynamic=marks.free, draws=draws)
    return ShortProgram(
        signature,
        (*helpers.imports, *module.imports, *[FREEZING_IMPORT] * _freezes(case)),
        "\n\n\n".join(filter(None, (helpers.source, text))),
        tuple(_settings(case)),
        run,
        (f"model = {build}", f"compiled = {compiled}"),
        "run(model)" if run else "model(*inputs().values())",
        "run(compiled)" if run else "compiled(*inputs().values())",
    )


def program_text(case: Case) -> str:
    """Return the classes of a case for reading; its graph as text, if they cannot be written."""
    try:
        return _classes(module_text(case, Sources()))
    except CaseError:
        return str(case.graph.graph)


def _refuse(case: Case) -> Signature:
    """Return the failure of a case that may have a short form."""
    signature, target = case.signature, target_of(case.target)
    if signature is None:
        raise NoShortForm("the case was never judged")
    if signature.kind not in SHORT_KINDS:
        raise NoShortForm(f"a few lines cannot compare a failure of kind {signature.kind}")
    if target.repro_backend is not registered_backend or target.needs:
        raise NoShortForm("the compiler under test is not part of torch")
    plan = plan_sources(case)
    if plan.references or plan.copies or modules_of_calls(case.graph):
        raise NoShortForm("it needs code of the user besides torch")
    if modules_of_torch(case.graph) or groups_of(case.graph):
        raise NoShortForm("it calls operators that torch registers late")
    if case.modes.settings:
        raise NoShortForm("it needs settings of torch: " + ", ".join(case.modes.settings))
    held = (signature.output or "").startswith("held_")
    if held or (case.modes.inference and case.modes.backward):
        raise NoShortForm(f"{signature.output} is a tensor that the program holds")
    return signature


def _classes(module: ModuleText) -> str:
    """Return the classes; a graph without constants and sub-graphs needs no constructor."""
    is_bare = module.classes.count("constants") == 1 and _BARE_INIT in module.classes
    return module.classes.replace(_BARE_INIT, "") if is_bare else module.classes


def _build(module: ModuleText) -> str:
    takes_none = "constants" not in _classes(module)
    return "Repro()" if takes_none else f"Repro({module.constants})"


def _inline(body: str) -> str:
    """Return the body of `inputs()`, without a variable that is only returned."""
    start, ending = "    values = ", "\n    return values"
    inner = body.removeprefix(start).removesuffix(ending)
    is_plain = body.startswith(start) and body.endswith(ending) and "values" not in inner
    return f"    return {inner}" if is_plain else body


def _freezes(case: Case) -> bool:
    return target_of(case.target).freezes(case.config) and not case.modes.grad


def _settings(case: Case) -> Iterator[str]:
    modes = case.modes
    if _freezes(case):
        yield "torch._inductor.config.freezing = True"
    if not modes.grad and not modes.inference:
        yield "torch.set_grad_enabled(False)"
    if modes.deterministic:
        yield "torch.use_deterministic_algorithms(True)"
    if modes.default_dtype != "float32":
        yield f"torch.set_default_dtype(torch.{modes.default_dtype})"
    if modes.default_device:
        yield f"torch.set_default_device({modes.default_device!r})"


def _compile_call(case: Case, *, is_dynamic: bool, draws: bool) -> str:
    is_random = draws and "fallback_random" in target_of(case.target).defaults
    options = {**({"fallback_random": True} if is_random else {}), **case.config}
    arguments = ["model", "fullgraph=True"]
    arguments += [f"backend={literal(case.target)}"] * (case.target != DEFAULT_BACKEND)
    arguments += ["dynamic=True"] * is_dynamic
    arguments += [f"options={literal(options)}"] * bool(options)
    call = f"torch.compile({', '.join(arguments)})"
    if len(call) <= _WIDTH:
        return call
    lines = textwrap.indent("".join(f"{each},\n" for each in arguments), "    ")
    return f"torch.compile(\n{lines})"


def _run_function(modes: Modes, signature: Signature, *, draws: bool, ones: bool) -> str:
    """Return `run(call)`, or nothing where `call(*inputs().values())` is enough."""
    name = signature.output or ""
    wants_gradients = modes.backward and (
        name.startswith("grad_") or signature.kind not in COMPARED
    )
    wants_inputs = name.startswith("in") and signature.kind in COMPARED
    regions = [f"torch.autocast({r.device_type!r}, torch.{r.dtype})" for r in modes.autocast]
    if not (wants_gradients or wants_inputs or regions or draws or modes.inference):
        return ""
    lines = ["values = list(inputs().values())"]
    lines += [f"torch.manual_seed({modes.seed})"] * draws
    around = [*regions, *["torch.inference_mode()"] * modes.inference]
    lines += [f"with {', '.join(around)}:"] * bool(around)
    lines += [f"{'    ' * bool(around)}outputs = call(*values)"]
    if wants_gradients:
        lines += _gradient_lines(ones=ones)
    else:
        kept = "values" if wants_inputs else "outputs"
        lines.append(f"return {kept}")
    return "def run(call):\n" + textwrap.indent("\n".join(lines), "    ")


def _gradient_lines(*, ones: bool) -> Sequence[str]:
    tangent = "torch.ones_like(x)" if ones else "torch.randn_like(x)"
    return (
        "outputs = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]",
        *["torch.manual_seed(0)"] * (not ones),
        f"tangents = [{tangent} for x in outputs]",
        "leaves = [x for x in values if isinstance(x, torch.Tensor) and x.requires_grad]",
        "found = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)",
        "return [x for x in found if x is not None]",
    )


# --- a whole program ----------------------------------------------------------------------------


def short_whole_program(text: str, whole: EndToEnd) -> ShortProgram:
    """Return the short form of a program that fails while no graph of it does.

    Eager and compiled calls alternate on one program, as a user sees such a failure.

    Args:
        text: Its file: `model()`, `inputs()`, perhaps `warmups()` and `between(model)`.

    Raises:
        NoShortForm: It has none.
    """
    signature, backend = whole.judgement.signature, whole.backend or whole.target
    if signature is None or signature.kind not in (*COMPARED, *RAISED):
        raise NoShortForm("the failure is more than a result of one call")
    if whole.more:
        raise NoShortForm(f"the failing call changes the program's own ({whole.more})")
    if target_of(backend).repro_backend is not registered_backend:
        raise NoShortForm("the compiler under test is not a backend of torch.compile")
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    chosen = f", backend={literal(backend)}" if backend != DEFAULT_BACKEND else ""
    calls = "[*warmups(), inputs()]" if "warmups" in names else f"[inputs()] * {max(whole.call, 2)}"
    loop = ["for number, given in enumerate(calls, 1):"]
    if "between" in names:
        loop += ["    if number == len(calls):", "        between(program)"]
    return ShortProgram(
        signature,
        (),
        text.strip(),
        run=_SPREAD,
        prepare=(
            "program = model()",
            f"compiled = torch.compile(program{chosen})",
            f"calls = {calls}",
        ),
        eager="run(program, given)",
        compiled="run(compiled, given)",
        loop=tuple(loop),
    )
