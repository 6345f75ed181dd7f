"""save_case: write a case, or the call of a model that has failed, as a folder.

In the `except` of a failing call:

    try:
        loss = compiled(x, mask=mask)
    except Exception:
        print(ctk.save_case(compiled, (x,), {"mask": mask}))
        raise

The call is captured as the importers do it: once in eager, under Dynamo, in the modes that are
active. The exception that is being handled becomes the signature. Each captured graph is compiled
and run, until one raises it. State of the model, arguments and random generators are
restored; Dynamo's caches are not, so the program compiles again afterwards.

The arguments are as they are now. A call that failed in the middle may have changed them; the case
then does not show the failure, and the answer reports that. A watched program (`ctk.install`, `ctk
run`, `CTK_RING`) has saved the arguments before the call already: that folder is returned.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import torch

from ctk.compiler.errors import ProgramError, TargetError
from ctk.compiler.options.choices import InputsMode
from ctk.compiler.torch_compat.dynamo.dynamo_api import take_apart
from ctk.toolkit.case import store
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import make_folder, temporary_folder, unique_folder
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.execution.execute import Outcome
from ctk.toolkit.execution.python_state import keep_state
from ctk.toolkit.importers.in_memory import Inputs, program_of
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.questions.judge import error_signature, judge
from ctk.toolkit.processes.scratch import scratch_root
from ctk.toolkit.targets import resolve_target
from ctk.toolkit.watch.announce import Subject, saved_folder
from ctk.toolkit.watch.hooks import make_subject, subject_of_backend
from ctk.toolkit.watch.watch_session import dump_folder


@dataclass(frozen=True, slots=True)
class SavedCase(os.PathLike[str]):
    """The folder of a saved call. As a string: folder, judgement and next command.

    Attributes:
        command: The next command.
        note: Whether the case shows the failure, in one sentence.
    """

    folder: Path
    command: str
    note: str = ""

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        note = f"\n  {self.note}" if self.note else ""
        return f"ctk: saved in {self.folder}{note}\n  next: {self.command}"


@overload
def save_case(
    subject: Case,
    args: str | Path,
    *,
    inputs: InputsMode | None = None,
    overwrite: bool = False,
) -> Path: ...


@overload
def save_case(
    subject: Callable[..., object],
    args: Inputs = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    folder: str | Path | None = None,
    target: str | None = None,
    inputs: InputsMode | None = None,
    overwrite: bool = False,
) -> SavedCase: ...


def save_case(
    subject: Case | Callable[..., object],
    args: Inputs | str | Path = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    folder: str | Path | None = None,
    target: str | None = None,
    inputs: InputsMode | None = None,
    overwrite: bool = False,
) -> Path | SavedCase:
    """Write a case to a folder, or a call of a model that has just failed.

    For a call, the exception that is being handled is recorded, and the case is run once.

    >>> import ctk, torch
    >>> (graph,) = ctk.repro(torch.relu, torch.ones(2)).graphs
    >>> ctk.load_case(ctk.save_case(graph.case, "relu")).target
    'ctk'

    Args:
        subject: A `Case`; or a model or function, compiled or not, with the arguments of a call.
        args: The folder of a `Case`, which must not exist, or be empty. Else the positional
            arguments, as they were before the call: a tuple or list, or a single tensor.
        kwargs: The keyword arguments of the call.
        folder: Of a call; the default is a new one in the dump folder (`CTK_DUMP`, `ctk_dumps`).
        target: Of a model that is not compiled; a compiled one has its own.
        inputs: The values that are kept (`full`, `recipe`, `none`). The default is `recipe` for a
            `Case`, and `full` for a call.
        overwrite: Write into a folder that may hold other files, and replace the case in it.

    Returns:
        The folder of a `Case`. For a call a `SavedCase`: folder, next command, and a note.

    Raises:
        ProgramError: The call raises in eager as well, or cannot be captured.
        TargetError: No other process can import the backend.
        CaseError: The folder is occupied, or a value cannot be saved.
        StorageError: It cannot be written.
    """
    if isinstance(subject, Case):
        place = _place_of_case(args, folder)
        return store.save_case(subject, place, inputs=inputs or "recipe", overwrite=overwrite)
    error = sys.exception()
    known = saved_folder(error) if error is not None else None
    if known is not None and folder is None:
        note = "by the watch of the program, with its arguments before the call"
        return SavedCase(known, command_on("diagnose", known), note)
    if isinstance(args, str | Path) or not callable(subject):
        raise _misuse(subject, args)
    parts = take_apart(subject)
    function = parts[0] if parts is not None else subject
    compiler = _find_subject(parts[1] if parts is not None else None, target)
    with keep_state([function, args, dict(kwargs or {})]):
        cases = _capture(function, args, kwargs, compiler)
        signature = _signature_of(error)
        return _save_failing(cases, signature, folder, inputs or "full", overwrite=overwrite)


def _misuse(subject: object, args: object) -> ProgramError:
    if not callable(subject):
        return ProgramError(
            "save_case takes a compiled model or function with the arguments of its call, not a "
            f"value of type {type(subject).__name__}"
        )
    return ProgramError(
        f"save_case: the arguments of the call are {str(args)!r}; pass a tuple of them, such as "
        "(x,), and name the folder by folder="
    )


def _place_of_case(args: Inputs | str | Path, folder: str | Path | None) -> str | Path:
    place = folder if folder is not None else args
    if not isinstance(place, str | Path):
        raise ProgramError("save_case: name the folder of the case: ctk.save_case(case, 'DIR')")
    return place


def _find_subject(backend: object, target: str | None) -> Subject:
    """Return the compiler of the call: the named target, else the backend, else `ctk`."""
    if backend is None or target is not None:
        return make_subject(resolve_target(target or "ctk"), {})
    compiler = subject_of_backend(backend)
    if compiler.advice:
        raise TargetError(f"save_case: {compiler.advice}")
    return compiler


def _capture(
    function: Callable[..., object],
    args: Inputs,
    kwargs: Mapping[str, object] | None,
    compiler: Subject,
) -> list[Case]:
    """Return the cases of a call; the definitions of a backend in the script are not run."""
    program = dataclasses.replace(program_of(function, args), kwargs=dict(kwargs or {}))
    target, config = compiler.target.name, compiler.saved_config
    name, options = (target, config) if compiler.can_recompile else ("aot_eager", {})
    cases = capture_cases(program, target=name, config=options, backward=_has_gradients(program))
    return [
        dataclasses.replace(case, target=target, config=config, sources=compiler.sources)
        for case in cases
    ]


def _has_gradients(program: UserProgram) -> bool:
    """Return whether the call may be followed by a backward pass."""
    model = program.model
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    tensors = (*program.inputs, *program.kwargs.values(), *weights)
    is_training = model.training if isinstance(model, torch.nn.Module) else True
    wanted = any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors)
    return torch.is_grad_enabled() and is_training and wanted


def _signature_of(error: BaseException | None) -> Signature | None:
    if error is None:
        return None
    is_compile = type(error).__name__ in ("BackendCompilerFailed", "InductorError")
    return error_signature(Outcome(None, error, "compile" if is_compile else "call"))


def _save_failing(
    cases: Sequence[Case],
    signature: Signature | None,
    folder: str | Path | None,
    inputs: InputsMode,
    *,
    overwrite: bool,
) -> SavedCase:
    """Save the first case that shows the failure, else the first of all."""
    judged: list[tuple[Case, Judgement]] = []
    for case in cases:
        judged.append((case, _judge_saved(case, signature)))
        if judged[-1][1].fails:
            break
    case, judgement = next((each for each in judged if each[1].fails), judged[0])
    found = judgement.signature if judgement.fails else signature
    place = Path(folder).expanduser() if folder is not None else unique_folder(_dumps(), "saved")
    store.save_case(
        dataclasses.replace(case, signature=found), place, inputs=inputs, overwrite=overwrite
    )
    note = _describe(judgement, signature, len(cases))
    return SavedCase(place, command_on("diagnose", place), note)


def _judge_saved(case: Case, signature: Signature | None) -> Judgement:
    """Judge a case as another process will: with the copies of the user's own files."""
    with temporary_folder("saved-", scratch_root()) as scratch:
        saved = store.save_case(case, scratch / "case", inputs="full")
        return judge(store.load_case(saved, trust=True), expected=signature)


def _dumps() -> Path:
    return make_folder(dump_folder().absolute())


def _describe(judgement: Judgement, signature: Signature | None, graphs: int) -> str:
    """Return whether a case shows the failure of the call, in one sentence."""
    if judgement.fails:
        seen = judgement.signature
        is_other = signature is not None and seen is not None and seen.kind != signature.kind
        return f"it fails in another way: {seen}" if is_other else f"it fails: {seen}"
    among = f"none of its {graphs} graphs fails" if graphs > 1 else "it does not fail"
    if signature is None:
        return f"run once, {among}"
    return (
        f"run once, {among}: the call may have changed its arguments before it raised; run the "
        "program with CTK_RING=1, which saves them before each call"
    )
