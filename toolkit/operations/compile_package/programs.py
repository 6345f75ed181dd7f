"""Programs for entry points: `FILE.pt2` of torch.export, or a program file, exported here.

The earlier calls (`warmups()`) and `between()` of a program file run first, so that the model has
its state at the call with `inputs()`. Sizes vary as in `dynamic_shapes()`, else as `inputs()` marks
them (`torch._dynamo.mark_dynamic`), else all of them on request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ctk.compiler.errors import CaptureError, CtkError, EagerError, ProgramError
from ctk.compiler.packages.write import module_of, program_of
from ctk.compiler.torch_compat.aot.exported import sizes_that_vary
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.compiler.usercode.references import search_last, user_traceback
from ctk.repro_templates.program.program_play import seed_all
from ctk.toolkit.case.usercode.program import UserProgram, load_program
from ctk.toolkit.importers import exported
from ctk.toolkit.importers.program import ProgramFile, merge_options

_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Source:
    """A program to compile.

    Attributes:
        config: Options that the file asks for.
    """

    program: torch.export.ExportedProgram = field(repr=False)
    config: Mapping[str, object] = field(default_factory=dict[str, object])


def read_source(spec: str, *, dynamic: bool, trust: bool) -> Source:
    """Load a program, and export it if it is not.

    Args:
        spec: `FILE.pt2`, `FILE.py` or `FILE.py:build,example`.
        dynamic: Sizes of a FILE.py vary where its model lets them.
        trust: An archive may hold pickles that run code when they are read.

    Raises:
        ProgramError: It is neither, there is no such file, or it cannot be loaded.
        TrustError: An archive is refused.
        CaptureError: torch.export cannot trace it.
    """
    if exported.Archive.accepts(spec):
        return Source(exported.read_archive(exported.find_archive(spec), trust=trust))
    if not ProgramFile.accepts(spec):
        raise ProgramError(
            f"{spec!r} is nothing to compile: name a FILE.pt2 of torch.export, or a FILE.py with "
            "model() and inputs()"
        )
    program = load_program(spec)
    return Source(_export_program(program, dynamic), merge_options(program, "ctk", None))


def _export_program(program: UserProgram, dynamic: bool) -> torch.export.ExportedProgram:
    model, path = program.model, program.path
    if isinstance(model, torch.export.ExportedProgram):
        return model
    with search_last(path.parent), set_options(program.settings), seed_all():
        for each in program.warmups:
            _call(program, each.args, each.kwargs)
        if program.between is not None:
            program.between(program.model)
        call = program.inputs, program.kwargs
        if program.dynamic_shapes is not None:
            shapes = program.dynamic_shapes()
        else:
            all_ = dynamic or program.compile.get("dynamic") is True
            shapes = sizes_that_vary(module_of(model), *call, all_=all_)
        try:
            return program_of(model, *call, shapes)
        except CtkError:
            raise
        except Exception as error:
            _call(program, *call)  # it may not even run in eager
            raise CaptureError(
                f"torch.export cannot trace {path.name}: {_shorten(user_traceback(error, path))}"
                "\n  no backend of ctk is involved; see where: TORCH_LOGS=export"
            ) from error


def _call(program: UserProgram, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Call a program in eager.

    Raises:
        EagerError: The call raises.
    """
    try:
        with torch.no_grad():
            program.model(*args, **kwargs)
    except Exception as error:
        raise EagerError(
            f"{program.path.name} fails in eager, before any compiler sees it: "
            f"{user_traceback(error, program.path)}"
        ) from error


def _shorten(text: str) -> str:
    """Return a long message without its middle; the last line is the user's."""
    lines = [line for line in text.splitlines() if line.strip()]
    hidden = len(lines) - _MOST_LINES
    if hidden > 0:
        lines[_MOST_LINES - 1 : -1] = [f"  ({hidden} more lines)"]
    return "\n".join(lines)
