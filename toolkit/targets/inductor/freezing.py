"""Freezing as a stage: each step by which Inductor folds parameters is a pass (`steps`).

Between the steps its pattern passes run, which announce themselves:

    frozen/convert_conv_weights_to_channels_last       before `freeze`, opens the stage
    frozen/replace_params_with_constants               the inputs become constants
    frozen/fx_graph_cse
    frozen/constant_fold
    frozen/binary_folding...                           a pattern
    frozen/constant_fold, second run: constant_fold#2
    frozen/mkldnn_fusion...                            a pattern

Patterns are reported by `patterns`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_steps
from ctk.compiler.torch_compat.inductor.inductor_steps import Step
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.regions import (
    Call,
    Hook,
    divert,
    example_values,
    failing_stage,
)
from ctk.toolkit.targets.inductor.steps import observe_step


def freezing_hooks(compile_record: CompileRecord) -> Iterator[Hook]:
    """Return the hooks around freezing and around the step before it."""
    first = inductor_steps.before_freezing()
    yield first.site, divert(compile_record.watching, partial(_run_first_step, first))
    yield inductor.sites().freeze, divert(compile_record.watching, _run_freeze)


def _run_first_step(step: Step, compile_record: CompileRecord, call: Call) -> Any:
    """Run the step before `freeze`; it opens the stage that `freeze` continues."""
    gm = call.args[0]
    frame = compile_record.open("frozen", gm, example_values(gm))
    try:
        return observe_step(compile_record, frame, step, call)
    except BaseException:
        compile_record.drop(frame)
        raise


def _run_freeze(compile_record: CompileRecord, call: Call) -> Any:
    """Run freezing: `(dynamo_gm, gm, inputs) -> (gm, kept)`."""
    _, gm, inputs = call.args
    frame = _find_frozen_frame(compile_record) or compile_record.open("frozen", gm, inputs)
    with failing_stage(compile_record, frame):
        result = call()
        compile_record.close(frame, result[0])
    return result


def _find_frozen_frame(compile_record: CompileRecord) -> Frame | None:
    frame = compile_record.frame()
    return frame if frame is not None and frame.stage == "frozen" else None
