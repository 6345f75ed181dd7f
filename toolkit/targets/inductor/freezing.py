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

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.freezing.freeze import note_frozen
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import input_names, placeholders
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_freezing
from ctk.compiler.torch_compat.inductor.inductor_freezing import FreezingStep
from ctk.compiler.torch_compat.inductor.patch_sites import Site
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.regions import Function, begin_pass, failing_stage, time_pass

Hook = tuple[Site, Callable[[Function], Function]]


def freezing_hooks(session: CompileRecord) -> Iterator[Hook]:
    """Return the hooks around freezing and around each of its steps."""
    first = inductor_freezing.before_freezing()
    yield first.site, partial(_first_step, session, first)
    yield inductor.sites().freeze, partial(_freeze, session)
    for step in inductor_freezing.freezing_steps():
        yield step.site, partial(_inner_step, session, step)


def _first_step(session: CompileRecord, step: FreezingStep, original: Function) -> Function:
    """Wrap the step before `freeze`; it opens the stage that `freeze` continues."""

    def run(gm: GraphModule, *args: Any) -> Any:
        if not session.is_watching():
            return original(gm, *args)
        inputs = tuple(value_of(node) for node in placeholders(gm))
        frame = session.open("frozen", gm, inputs)
        try:
            return _observe_step(session, frame, step, original, (gm, *args))
        except BaseException:
            session.drop(frame)
            raise

    return run


def _freeze(session: CompileRecord, original: Function) -> Function:
    """Wrap freezing: `(dynamo_gm, gm, inputs) -> (gm, kept)`."""

    def run(dynamo_gm: GraphModule, gm: GraphModule, inputs: Any) -> Any:
        if not session.is_watching():
            return original(dynamo_gm, gm, inputs)
        frame = _find_frozen_frame(session) or session.open("frozen", gm, inputs)
        with failing_stage(session, frame):
            result = original(dynamo_gm, gm, inputs)
            session.close(frame, result[0])
        return result

    return run


def _inner_step(session: CompileRecord, step: FreezingStep, original: Function) -> Function:
    """Wrap a step inside `freeze`; outside (`constant_fold`) it belongs to another pass."""

    def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
        frame = _find_frozen_frame(session)
        if frame is None or kwargs or session.in_patterns:
            return original(graph, *args, **kwargs)
        return _observe_step(session, frame, step, original, (graph, *args))

    return run


def _find_frozen_frame(session: CompileRecord) -> Frame | None:
    frame = session.frame()
    return frame if frame is not None and frame.stage == "frozen" else None


def _observe_step(
    session: CompileRecord,
    frame: Frame,
    step: FreezingStep,
    original: Function,
    args: tuple[Any, ...],
) -> Any:
    pass_id = begin_pass(session, frame, step.name)
    if not session.numbering.allow_pass(pass_id):
        session.refuse(frame, pass_id)
        return step.refused(*args)
    names = input_names(frame.root)
    with time_pass(session, frame, pass_id):
        result: Any = original(*args)
        if step.adopts:
            frame.root.graph = result  # as the caller does next; so the pass shows its effect
        if step.folds:
            note_frozen(frame.root, inductor_freezing.folded_parameters(names, args[1], result))
    return result
