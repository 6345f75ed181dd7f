"""compile_fx: the stages in order. The page to read first.

    captured -> pre_grad -> autograd dispatch -> joint -> partition -> forward, backward (-> frozen)
    -> lowered

A stage is a whole graph plus its passes (`passes/__init__.py`). The pipeline knows nothing of the
toolkit: it raises events (`observe.py`) when somebody watches, and does no extra work when nobody
does.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ctk.compiler import torch_compat
from ctk.compiler.choices import PassSlot
from ctk.compiler.codegen import generate
from ctk.compiler.config import Config, resolve
from ctk.compiler.dispatch import BoxedCallable, Stages, dispatch
from ctk.compiler.errors import UnsupportedPlatform, nearest
from ctk.compiler.freezing import freeze_parameters, without_frozen
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.outputs import flatten_outputs
from ctk.compiler.fx.properties import value_of
from ctk.compiler.observe import ErrorRecord, Observer, Stage, first_line
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.base import Fuel, Pass
from ctk.compiler.rewriting.run_stage import enter_stage, run_stage
from ctk.compiler.rewriting.user_passes import OpaquePass, resolve_pass

log = logging.getLogger("ctk.pipeline")
T = TypeVar("T")
Passes = Mapping[Stage, Sequence[Pass | OpaquePass]]

_SLOTS: Mapping[Stage, tuple[PassSlot, ...]] = {
    "pre_grad": ("pre_grad",),
    "joint": ("joint",),
    "forward": ("post_grad", "forward"),
    "backward": ("post_grad", "backward"),
    "frozen": ("frozen",),
}


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[object],
    config: Config | Mapping[str, object] | None = None,
    observer: Observer | None = None,
) -> Callable[..., object]:
    """Compile a captured graph, for training if an input requires gradients, else for inference.

    Args:
        gm: FX graph as Dynamo, export or symbolic tracing gives it. Not changed.
        example_inputs: One value per placeholder: tensors (real, or fake with symbolic sizes),
            ints, symbolic ints.
        config: Options of this compile: a whole `Config`, or a mapping that patches the ambient
            options.
        observer: Sees every stage, pass, rewrite and kernel, and may veto them.

    Returns:
        A callable that takes the graph's inputs as positional arguments and returns what the graph
        returns.

    Raises:
        UnsupportedPlatform: On Windows.
        ConfigError: An option is unknown or its value is not allowed.
        Exception: Whatever a pass or code generator raised, with a note that names stage, pass,
            rewrite and node, unless `Config.on_failure` asks for a fallback.
    """
    require_supported_platform()
    options = resolve(config)
    passes: Passes = {stage: _passes_of(stage, options) for stage in PASSES}
    _warn_of_unknown(options, passes)
    fuel = Fuel(options, observer)

    def compile_all() -> Callable[..., object]:
        graph = copy_graph_module(gm)
        restore = flatten_outputs(graph)
        _add_types(graph, example_inputs)
        enter_stage(graph, "captured", fuel, example_inputs)
        run_stage(graph, "pre_grad", passes["pre_grad"], fuel, inputs=example_inputs)
        run = dispatch(graph, example_inputs, _stages(graph, example_inputs, passes, fuel))
        return run if restore is None else lambda *args: restore(run(*args))

    def reported() -> Callable[..., object]:
        try:
            return compile_all()
        except Exception as error:
            if not is_control_flow(error):
                _report(error, fuel, gm)
            raise

    return _attempt(options, "compile", reported, lambda: gm)


def require_supported_platform() -> None:
    """Raise where the pipeline cannot run.

    Raises:
        UnsupportedPlatform: On Windows.
    """
    if sys.platform == "win32":
        raise UnsupportedPlatform(
            "ctk does not run on Windows: torch.compile's CPU tool chain is not supported there. "
            "Use Linux, macOS or WSL2, or compile with backend='aot_eager'."
        )


def _stages(
    captured: GraphModule,
    example_inputs: Sequence[object],
    passes: Passes,
    fuel: Fuel,
) -> Stages:
    options = fuel.config

    def joint(graph: GraphModule, inputs: Sequence[object]) -> None:
        _resilient_stage(graph, "joint", passes["joint"], fuel, inputs)

    def lower(stage: Stage) -> Callable[[GraphModule, Sequence[object]], BoxedCallable]:
        def compile_graph(graph: GraphModule, inputs: Sequence[object]) -> BoxedCallable:
            _resilient_stage(graph, stage, passes[stage], fuel, inputs)
            return _generate(graph, inputs, stage, fuel)

        return compile_graph

    def inference(graph: GraphModule, inputs: Sequence[object]) -> BoxedCallable:
        joint(graph, inputs)
        if not options.freezing:
            return lower("forward")(graph, inputs)
        _resilient_stage(graph, "forward", passes["forward"], fuel, inputs)
        kept = freeze_parameters(graph, captured, example_inputs)
        inputs = [inputs[i] for i in kept]
        _resilient_stage(graph, "frozen", passes["frozen"], fuel, inputs)
        return without_frozen(_generate(graph, inputs, "frozen", fuel), kept)

    return Stages(joint, lower("forward"), lower("backward"), inference)


def _generate(
    graph: GraphModule, inputs: Sequence[object], stage: Stage, fuel: Fuel
) -> BoxedCallable:
    enter_stage(graph, "lowered", fuel, inputs)
    options = fuel.config
    return generate(
        graph,
        inputs,
        stage=stage,
        name=stage,
        codegen=options.codegen,
        fallback=options.fallback,
        on_failure=options.on_failure,
        observer=fuel.observer,
    )


def _warn_of_unknown(options: Config, passes: Mapping[Stage, Sequence[Pass | OpaquePass]]) -> None:
    """Say so when `disable` names a pass that does not exist: it would be ignored."""
    known = {name for steps in passes.values() for name in (step.name for step in steps)}
    known |= {f"{stage}/{step.name}" for stage, steps in passes.items() for step in steps}
    for name in options.disable:
        if name.partition("#")[0] not in known:
            log.warning("ctk: disable=%r names no pass%s", name, nearest(name, known))


def _passes_of(stage: Stage, options: Config) -> list[Pass | OpaquePass]:
    """Return the stage's own passes, then the user's."""
    custom = [entry for slot in _SLOTS[stage] for entry in options.custom_passes.get(slot, ())]
    return [*PASSES[stage], *(resolve_pass(entry) for entry in custom)]


def _resilient_stage(
    graph: GraphModule,
    stage: Stage,
    passes: Sequence[Pass | OpaquePass],
    fuel: Fuel,
    inputs: Sequence[object],
) -> None:
    """Run a stage's passes; where failures fall back, a failing stage leaves the graph alone."""
    if fuel.config.on_failure == "raise":
        run_stage(graph, stage, passes, fuel, inputs=inputs)
        return
    backup = copy_graph_module(graph)

    def restore() -> None:
        graph.graph = backup.graph
        graph.recompile()

    _attempt(
        fuel.config,
        f"stage {stage}",
        lambda: run_stage(graph, stage, passes, fuel, inputs=inputs),
        restore,
    )


def is_control_flow(error: BaseException) -> bool:
    """Return whether Dynamo raises this to trace again: it is no failure, and must reach Dynamo."""
    return isinstance(error, torch_compat.dynamo_control_flow())


def _attempt(
    options: Config, what: str, action: Callable[[], T], fallback: Callable[[], object]
) -> T:
    """Return what `action` returns; when it fails, do as `Config.on_failure` says."""
    if options.on_failure == "raise":
        return action()
    try:
        return action()
    except Exception as error:
        if is_control_flow(error):
            raise
        message = (
            f"ctk: {what} failed and falls back to eager: {type(error).__name__}: "
            f"{first_line(error)}"
            f" (at {getattr(error, 'ctk_where', 'unknown place')})"
        )
        if options.on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            log.warning("%s", message)
        return cast("T", fallback())


def _report(error: Exception, fuel: Fuel, gm: GraphModule) -> None:
    """Announce an error of autograd dispatch or partitioning, which no pass and no codegen owns."""
    if getattr(error, "ctk_where", None) is not None:
        return
    error.ctk_where = "captured/autograd_dispatch"  # type: ignore[attr-defined]  # exceptions take attributes
    if fuel.observer is not None:
        fuel.observer.on_error(ErrorRecord(error, "captured", graph=copy_graph_module(gm)))


def _add_types(graph: GraphModule, example_inputs: Sequence[object]) -> None:
    """Record fake values, which passes and the verifier read, on a graph that came without them."""
    nodes = list(graph.graph.nodes)
    if any(value_of(node) is not None for node in nodes if node.op == "placeholder"):
        return
    mode = torch_compat.fake_mode_of(example_inputs) or torch_compat.new_fake_mode()
    fakes = [torch_compat.to_fake(value, mode) for value in example_inputs]
    try:
        FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*fakes)
    except Exception as error:
        log.debug("types of the captured graph are unknown: %s", first_line(error))
