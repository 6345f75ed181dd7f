"""Import `FILE.py`: capture a program as cases, one per graph that Dynamo hands to its backend.

The program runs once, under a backend that records each graph and returns it to Dynamo as it is, so
that later graphs get inputs computed in eager. Nothing is compiled or judged here.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import (
    CaptureError,
    CtkError,
    EagerError,
    LostAccelerator,
    NoGraphError,
    ProgramError,
)
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.capture_reasons import (
    Collected,
    collect_reasons,
    switched_off_by,
)
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.compiler.usercode.references import search_last, user_traceback
from ctk.repro_templates.graph.exceptions import alike, describe_error
from ctk.repro_templates.program.program_play import SEED, seed_all
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.roles import Role, roles_of
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.program import UserProgram, has_own_options, load_program
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.execution.private_copy import Eager, private_copy
from ctk.toolkit.importers.base import Importer, check_request
from ctk.toolkit.importers.child_capture import capture_in_child, needs_child
from ctk.toolkit.importers.no_graph import HINT, explain_no_graph, find_scripted_line, is_scripted
from ctk.toolkit.importers.plain_case import plain_case
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.processes.accelerator import has_lost_cuda
from ctk.toolkit.targets import capturing_for, refuse_gradients, target_of


def capture_cases(
    program: UserProgram,
    *,
    target: str = "ctk",
    config: Mapping[str, object] | None = None,
    backward: bool = False,
    dynamic: bool = False,
    keep: Callable[[Case], object] | None = None,
) -> list[Case]:
    """Run a program once under Dynamo and return one case per captured graph, in order.

    Cases: 1. graph breaks and recompilations give several graphs; 2. parts that are compiled
    already (`torch.compile` inside the model) are captured like the rest; 3. sizes marked with
    `mark_dynamic` become symbolic; 4. `backward=True` runs the backward pass of the summed outputs;
    5. without it a model in evaluation mode runs without gradients, as inference does.

    Dynamo is reset first: earlier compiles in this process would influence recompilations.

    Args:
        config: Options of the target; they win over those of the program's `config()`.
        backward: Run the backward pass; graphs that have one get `modes.backward`.
        keep: Called with each case before its graph is called, and again if the call shows that it
            has a backward pass.

    Raises:
        ProgramError: The program fails in eager, or `backward` has nothing to differentiate.
        CaptureError: Dynamo raises but eager does not, or captures no graph that a case can hold.
        ExportRefused: `backward` is set, and the target has no gradients.
        LostAccelerator: A kernel of the program's eager call has broken CUDA for this process.
    """
    captured: list[Captured] = []
    torch.compiler.reset()
    found = Collected()
    options = merge_options(program, target, config)

    case_of = partial(_case_of, program, target, options)

    def seen(number: int) -> None:
        with contextlib.suppress(NoGraphError):
            if keep is not None:
                keep(case_of(number, captured[number]))

    backward = backward or program.backward
    if backward:
        refuse_gradients(target)
    dynamic = (dynamic or program.compile.get("dynamic") is True) and not target_of(target).exports
    with (
        search_last(program.path.parent),
        set_options(program.settings),
        seed_all(),
        collect_reasons(found),
        capturing_for(target, options),
    ):
        target_of(target).check_config(options)
        _run_recorded(program, captured, seen, backward=backward, dynamic=dynamic)
    if has_lost_cuda():
        raise LostAccelerator(LOST.format(program.path.name))
    if not captured:
        raise _make_no_graph_error(program, found)
    return _cases_of(captured, case_of, program.path.name)


def _cases_of(
    captured: Sequence["Captured"], case_of: Callable[[int, "Captured"], Case], name: str
) -> list[Case]:
    """Return the cases of the graphs that have one; at least one has."""
    cases: list[Case] = []
    unheld: list[NoGraphError] = []
    for number, each in enumerate(captured):
        try:
            cases.append(case_of(number, each))
        except NoGraphError as error:
            unheld.append(error)
    if not cases:
        raise NoGraphError(UNHELD.format(name, unheld[0])) from unheld[0]
    return cases


LOST = """a kernel of the eager call of {} breaks CUDA for the process
  next: --isolate captures a FILE.py in a process of its own"""

UNHELD = "no case can hold the graphs of {}; its calls are compared as a whole: {}"


def _case_of(
    program: UserProgram,
    target: str,
    options: Mapping[str, object],
    number: int,
    captured: "Captured",
) -> Case:
    sources = source_files(target, options, program.path.parent)
    name = f"graph{number}"
    return plain_case(make_case(captured, name, target=target, config=options, sources=sources))


def _make_no_graph_error(program: UserProgram, found: Collected) -> CaptureError:
    first, *more = explain_no_graph(found, program.model)
    also = "".join(f"\n  also: {each}" for each in more)
    kind = CaptureError if switched_off_by() else NoGraphError
    return kind(f"Dynamo captured no graph of {program.path.name}: {first}{also}\n  {HINT}")


def merge_options(
    program: UserProgram, target: str, config: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the options of a target: `config` wins over the program's file."""
    asked = program.compile
    prefix = target_of(target).settings
    settings = {
        name.removeprefix(prefix): value
        for name, value in program.settings.items()
        if prefix and name.startswith(prefix)
    }
    mode = target_of(target).mode_options(str(asked["mode"])) if asked.get("mode") else {}
    own = asked.get("options")
    given = cast("dict[str, object]", own) if isinstance(own, dict) else {}
    return {**settings, **mode, **given, **program.config, **(config or {})}


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph of a running program: a private copy, and inputs and modes before its first call."""

    graph: GraphModule
    inputs: tuple[object, ...] = field(repr=False)
    modes: Modes
    roles: Mapping[str, Role]


def make_recording_backend(
    captured: list[Captured],
    seen: Callable[[int], object] = lambda _: None,
    *,
    backward: bool = False,
) -> Callable[..., object]:
    """Return a Dynamo backend that appends each graph to `captured` and runs it in eager.

    Args:
        seen: Called with the number of a graph before its first call, and after it if the modes
            changed.
        backward: Set `modes.backward` where an output can be differentiated.
    """

    def backend(gm: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        slot, graph, eager = len(captured), copy_graph_module(gm), Eager(gm)
        roles = roles_of(gm, example_inputs)
        captured.append(_capture(graph, replace_symbols(example_inputs), roles))
        called = [False]

        def run(*args: object) -> object:
            if called[0]:
                return eager(*args)
            called[0] = True
            captured[slot] = _capture(graph, args, roles)
            seen(slot)
            result = eager(*args)
            if backward and any(tensor.requires_grad for tensor in tensors_in(result)):
                modes = dataclasses.replace(captured[slot].modes, backward=True)
                captured[slot] = dataclasses.replace(captured[slot], modes=modes)
                seen(slot)
            return result

        return run

    return backend


def _capture(graph: GraphModule, inputs: Sequence[object], roles: Mapping[str, Role]) -> Captured:
    """Return a graph with copies of its inputs and state as they are now."""
    return Captured(*private_copy(graph, inputs, lazy=False), current_modes(seed=SEED), roles)


def make_case(
    captured: Captured,
    name: str,
    *,
    target: str,
    config: Mapping[str, object],
    sources: tuple[Path, ...] = (),
) -> Case:
    """Return the case of a captured graph."""
    return Case(
        graph=captured.graph,
        inputs=captured.inputs,
        target=target,
        config=config,
        modes=captured.modes,
        name=name,
        sources=sources,
        dynamic=describe_dynamic(captured.graph),
        roles=captured.roles,
    )


def replace_symbols(inputs: Iterable[object]) -> tuple[object, ...]:
    """Return example inputs with their hints for symbolic numbers (0 for unbacked ones)."""
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return tuple(
        (fake.symbol_and_hint(value)[1] or 0) if isinstance(value, symbolic) else value
        for value in inputs
    )


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists, dicts and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (
            t for item in cast("Mapping[object, object]", value).values() for t in tensors_in(item)
        )
    elif isinstance(value, tuple | list):
        yield from (t for item in cast("Sequence[object]", value) for t in tensors_in(item))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (f.name for f in dataclasses.fields(value))
        yield from (t for name in names for t in tensors_in(getattr(value, name)))


def _run_recorded(
    program: UserProgram,
    captured: list[Captured],
    seen: Callable[[int], object],
    *,
    backward: bool,
    dynamic: bool,
) -> None:
    if is_scripted(program.model):
        line = find_scripted_line(program.path)
        raise CaptureError(
            f"Dynamo captured no graph of {program.path.name}: {line}: its model "
            "is compiled by torch.jit already, and Dynamo does not look inside; "
            "give ctk the model before torch.jit"
        )
    backend = make_recording_backend(captured, seen, backward=backward)
    grad = torch.is_grad_enabled() and (backward or not _is_inference(program))
    # None, not False: False would forbid the sizes that inputs() has marked as dynamic.
    compiled = torch.compile(program.model, backend="eager", dynamic=True if dynamic else None)
    try:
        stance = torch.compiler.set_stance("default", force_backend=backend)
        with stance, torch.set_grad_enabled(grad), dynamo.specialized_floats(), fake.without_log():
            result = compiled(*program.inputs, **program.kwargs)
            if backward:
                _run_backward(result, program)
    except CtkError:
        raise
    except Exception as error:
        if captured and _raises_alike(program, error, backward=backward):
            return  # the exception is a result of the program: its last graph raises it
        _check_eager(program, backward=backward)
        raise CaptureError(
            f"Dynamo fails while it captures {program.path.name}, which runs in eager: "
            f"{type(error).__name__}: {first_line(error)}\n"
            "  no backend is involved; log Dynamo's decisions: TORCH_LOGS=dynamo,graph_breaks"
        ) from error


def _is_inference(program: UserProgram) -> bool:
    """Return whether the model of a program is in evaluation mode: it runs for its results only."""
    return isinstance(program.model, torch.nn.Module) and not program.model.training


def _run_backward(result: object, program: UserProgram) -> None:
    outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
    if not outputs:
        raise ProgramError(
            f"--backward: no output of {program.path.name} requires grad; "
            "give it parameters or inputs with requires_grad=True, outside of torch.no_grad()"
        )
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in outputs]
    torch.stack([part.sum().to(torch.float64) for part in parts]).sum().backward()


def _raises_alike(program: UserProgram, error: Exception, *, backward: bool) -> bool:
    """Return whether the program raises the same exception without Dynamo."""
    stance = eager_stance()
    own = _eager_error(program, stance, backward=backward)
    return own is not None and alike(describe_error(own), describe_error(error))


def _check_eager(program: UserProgram, *, backward: bool) -> None:
    """Run the program without a compiler in two ways, of which one must work.

    With the backend `eager`, Dynamo still captures the parts that the program itself compiles.
    """
    first = _eager_error(program, eager_stance(), backward=backward)
    if first is None:
        return
    stance = torch.compiler.set_stance("default", force_backend="eager")
    with fake.without_log():
        second = _eager_error(program, stance, backward=backward)
    if second is not None:
        raise EagerError(
            f"{program.path.name} fails in eager, before any compiler sees it: "
            f"{user_traceback(first, program.path)}"
        ) from first


def _eager_error(
    program: UserProgram, stance: AbstractContextManager[object], *, backward: bool
) -> Exception | None:
    try:
        with stance:
            result = program.model(*program.inputs, **program.kwargs)
            if backward:
                _run_backward(result, program)
    except CtkError:
        raise
    except Exception as error:
        return error
    return None


def capture_requested(program: UserProgram, request: CaseOptions) -> list[Case]:
    """Capture a program for the target and with the options of a request."""
    return capture_cases(
        program,
        target=request.target or "ctk",
        config=request.config,
        backward=request.backward,
        dynamic=request.dynamic,
    )


class ProgramFile(Importer):
    """A Python file, with or without the names of its functions."""

    form = "FILE.py or FILE.py:BUILD,EXAMPLE"
    is_program = True

    @staticmethod
    def accepts(spec: str) -> bool:
        file, _, _ = spec.rpartition(":")
        return not Path(spec).is_dir() and (spec.endswith(".py") or file.endswith(".py"))

    def cases(self, request: CaseOptions) -> list[Case]:
        check_request(request, brings_options=has_own_options(self.text))
        program = self.program()
        cases = capture_in_child(self.text, request) if needs_child(request) else None
        return cases or capture_requested(program, request)

    def program(self) -> UserProgram:
        return load_program(self.text)


IMPORTER = ProgramFile
