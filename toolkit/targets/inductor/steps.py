"""The passes that Inductor announces nowhere, named and vetoed: the steps of `inductor_steps`.

A change that no step here and no announcement explains is an `unannounced_...` pass
(`compile_record`).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.fx import Graph

from ctk.compiler.freezing.freeze import note_frozen
from ctk.compiler.fx.walk import input_names
from ctk.compiler.torch_compat.inductor import inductor_steps
from ctk.compiler.torch_compat.inductor.inductor_steps import Step
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.regions import Call, Hook, begin_pass, divert, time_pass


def step_hooks(compile_record: CompileRecord) -> Iterator[Hook]:
    """Yield the hook around each step inside of a stage."""
    for step in inductor_steps.steps():
        yield step.site, divert(compile_record.watching, partial(_run_step, step))


def _run_step(step: Step, compile_record: CompileRecord, call: Call) -> Any:
    """Run a step; in another stage, or with keywords (`constant_fold`), it is part of a pass."""
    frame = compile_record.frame()
    if frame is None or frame.stage not in step.stages or frame.lowering is not None:
        return call()
    if call.keywords or compile_record.in_patterns:
        return call()
    gm = call.args[0]
    compile_record.frame_of(gm.owning_module if isinstance(gm, Graph) else gm)
    return observe_step(compile_record, frame, step, call)


def observe_step(compile_record: CompileRecord, frame: Frame, step: Step, call: Call) -> Any:
    """Run a step as a pass of a stage, unless it is vetoed."""
    pass_id = begin_pass(compile_record, frame, step.name)
    if not compile_record.numbering.allow_pass(pass_id):
        compile_record.refuse(frame, pass_id)
        return step.refused(*call.args)
    names = input_names(frame.root)
    with time_pass(compile_record, frame, pass_id):
        result: Any = call()
        if step.adopts:
            frame.root.graph = result  # as the caller does next; so the pass shows its effect
        if step.folds:
            note_frozen(frame.root, _folded_parameters(names, call.args[1], result))
    return result


def _folded_parameters(
    names: Sequence[str], parameters: Sequence[object], kept: Sequence[int]
) -> dict[str, Tensor]:
    """Return the tensors that `replace_params_with_constants` has folded, by name of their input.

    Args:
        names: The placeholders before it ran.
        parameters: Its arguments: one per placeholder, the first ones.
        kept: Its result: the positions of the remaining placeholders.
    """
    pairs = enumerate(zip(names, parameters, strict=False))
    left = set(kept)
    return {
        name: value for i, (name, value) in pairs if i not in left and isinstance(value, Tensor)
    }
