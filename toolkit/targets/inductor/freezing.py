"""Freezing as passes: each step by which Inductor folds parameters, named and vetoed.

Inductor announces none of them. Between them its pattern passes run, which do announce themselves:

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

from ctk.compiler.freezing.freeze import note_frozen
from ctk.compiler.fx.walk import input_names
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_freezing
from ctk.compiler.torch_compat.inductor.inductor_freezing import FreezingStep
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.regions import (
    Call,
    Hook,
    begin_pass,
    divert,
    example_values,
    failing_stage,
    time_pass,
)


def freezing_hooks(compile_record: CompileRecord) -> Iterator[Hook]:
    """Return the hooks around freezing and around each of its steps."""
    first = inductor_freezing.before_freezing()
    yield first.site, divert(compile_record.watching, partial(_run_first_step, first))
    yield inductor.sites().freeze, divert(compile_record.watching, _run_freeze)
    for step in inductor_freezing.freezing_steps():
        yield step.site, divert(compile_record.watching, partial(_run_inner_step, step))


def _run_first_step(step: FreezingStep, compile_record: CompileRecord, call: Call) -> Any:
    """Run the step before `freeze`; it opens the stage that `freeze` continues."""
    gm = call.args[0]
    frame = compile_record.open("frozen", gm, example_values(gm))
    try:
        return _observe_step(compile_record, frame, step, call)
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


def _run_inner_step(step: FreezingStep, compile_record: CompileRecord, call: Call) -> Any:
    """Run a step inside `freeze`; outside (`constant_fold`) it belongs to another pass."""
    frame = _find_frozen_frame(compile_record)
    if frame is None or call.keywords or compile_record.in_patterns:
        return call()
    return _observe_step(compile_record, frame, step, call)


def _find_frozen_frame(compile_record: CompileRecord) -> Frame | None:
    frame = compile_record.frame()
    return frame if frame is not None and frame.stage == "frozen" else None


def _observe_step(
    compile_record: CompileRecord, frame: Frame, step: FreezingStep, call: Call
) -> Any:
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
            folded = inductor_freezing.folded_parameters(names, call.args[1], result)
            note_frozen(frame.root, folded)
    return result
