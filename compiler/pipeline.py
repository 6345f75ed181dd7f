"""compile_fx: the stages in order. The page to read first.

A stage is a whole graph plus its passes (`passes/__init__.py`). The methods of `Compile` are the
stages, in the order in which they run; AOTAutograd calls those from `joint` on
(`dispatch/autograd.py`).
The pipeline knows nothing of the toolkit: it announces events to an observer (`observe.py`), and
does no extra work without one. `resilience.py` defines the effect of a failure. Without an observer
a persistent cache precedes all stages (`cache/whole_graph.py`).
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ctk.compiler.cache.stored_compile import Made
from ctk.compiler.cache.whole_graph import cache_of
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.codegen.base import BoxedCallable, as_boxed, no_data
from ctk.compiler.codegen.deferral import deferred
from ctk.compiler.codegen.select import generate, generators
from ctk.compiler.dispatch.autograd import Stages, dispatch
from ctk.compiler.dispatch.decomposition_table import (
    Decomposition,
    Operator,
    decomposition_table,
    require_decompositions,
)
from ctk.compiler.errors import UnsupportedPlatform
from ctk.compiler.freezing.call import FrozenCall, fw_compiler_freezing
from ctk.compiler.fx.copy import copy_graph_module, pause_collection
from ctk.compiler.fx.inputs import flatten_inputs
from ctk.compiler.fx.outputs import flatten_outputs
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.installed_torch import warn_if_untested
from ctk.compiler.observe import Observer, PassId, Stage, first_line, mark_errors
from ctk.compiler.options.config import Config, patch, resolve
from ctk.compiler.partition import split
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.passes import PASSES
from ctk.compiler.phases import phase
from ctk.compiler.resilience import DISPATCH, attempt, attempt_on_graph, place_errors
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import enter_stage, run_stage
from ctk.compiler.rewriting.stage_passes import Step, partition_options, select_passes
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.torch_compat.aot import aot_compile
from ctk.compiler.torch_compat.dynamo import tensor_sources
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import Boxed

log = logging.getLogger("ctk.pipeline")

InnerCompile = Callable[..., Callable[..., object]]
"""Compiles a functional graph: `(gm, example_inputs, *, is_backward, is_inference)`, as Inductor's;
the callable takes the inputs, or, if its attribute `_boxed_call` is true, the list of them."""


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[object],
    config: Config | Mapping[str, object] | None = None,
    observer: Observer | None = None,
    *,
    inner_compile: InnerCompile | None = None,
    config_patches: Mapping[str, object] | None = None,
    decompositions: Mapping[Operator, Decomposition] | None = None,
) -> Callable[..., object]:
    """Compile a captured graph, for training if an input requires gradients, else for inference.

    Args:
        gm: FX graph of Dynamo, export or symbolic tracing. Not changed.
        example_inputs: The arguments of one call: tensors (real, or fake with symbolic sizes),
            ints, symbolic ints, and lists and dicts of them.
        config: Options of this compile: a whole `Config`, or a mapping that patches the ambient
            options.
        observer: Gets every stage, pass, rewrite and kernel, and may veto them.
        inner_compile: Compiles the functional graphs in place of the code generators, as
            `compile_fx_inner` does. Like `decompositions` it bypasses the persistent cache.
        config_patches: Options that patch those of `config`.
        decompositions: The decompositions of dispatch by operator, in place of the tables of
            `Config.decompositions`.

    Returns:
        A callable with the positional arguments and the result of the graph.

    Raises:
        UnsupportedPlatform: On Windows.
        ConfigError: An option is unknown or its value is not allowed.
        Exception: The error of a pass or code generator, with a note that names stage, pass,
            rewrite and node, unless `Config.on_failure` selects a fallback.
    """
    require_supported_platform()
    warn_if_untested()
    options = resolve(config).patch(config_patches)
    generators(options)  # an unknown name raises: it is not a failure to fall back from
    decomposition_table(options.decompositions)  # the same
    require_decompositions(decompositions or {})
    passes = select_passes(PASSES, options, CODEGEN_OPTIONS)
    observer = mark_errors(observer)
    numbering = Numbering(observer, options)
    user = UserFunctions(inner_compile, decompositions)
    make = partial(Compile, options, observer, passes, numbering, user=user)
    flat = flatten_inputs(gm, example_inputs)
    if flat is None:
        compile_ = make(gm, example_inputs)
        return attempt(options, "the compile", compile_.run, lambda: gm)
    compile_ = make(flat.graph, flat.inputs)
    return flat.call(attempt(options, "the compile", compile_.run, lambda: flat.graph))


def _no_data_of_user() -> CompiledGraph:
    return no_data(
        "inner_compile returned a function without a form as data; let it return the result of "
        "compile_fx_inner"
    )


def compile_fx_inner(
    gm: GraphModule, example_inputs: Sequence[object], *, is_backward: bool = False, **_: object
) -> BoxedCallable:
    """Generate code for a functional graph: the default `inner_compile` of `compile_fx`.

    Within an `inner_compile` it has the options of the compile.

    Args:
        gm: ATen graph with a recorded value on each node.
        example_inputs: One value per placeholder.
        is_backward: Whether it is the backward graph of training.

    Returns:
        A callable that takes the list of inputs, which it empties.
    """
    stage: Stage = "backward" if is_backward else "forward"
    return generate(gm, example_inputs, stage, Numbering(None, resolve(None)))


def require_supported_platform() -> None:
    """Raise `UnsupportedPlatform` on Windows, which has no pipeline."""
    if sys.platform == "win32":
        raise UnsupportedPlatform(
            "ctk does not run on Windows: torch.compile's CPU tool chain is not supported there. "
            "Use Linux, macOS or WSL2, or compile with backend='aot_eager'."
        )


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """The functions of the user that replace parts of a compile; None for those of ctk."""

    inner_compile: InnerCompile | None = None
    decompositions: Mapping[Operator, Decomposition] | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is one."""
        return self.inner_compile is not None or self.decompositions is not None


@dataclass(slots=True)
class Compile:
    """One compile: the state that its stages share, and the stages.

    Attributes:
        passes: The passes of each stage with their options: the built-in ones, then the user's.
        numbering: Numbers pass runs and rewrites; applies fuel and vetoes.
        graph: The captured graph: the caller's, then a copy for the first two stages to change.
        inputs: Example inputs of the captured graph.
        made: The compiled graphs, by stage.
        user: Functions of the user in place of those of ctk.
    """

    config: Config
    observer: Observer | None
    passes: Mapping[Stage, Sequence[Step]]
    numbering: Numbering
    graph: GraphModule
    inputs: Sequence[object]
    made: dict[Stage, BoxedCallable] = field(default_factory=dict["Stage", "BoxedCallable"])
    user: UserFunctions = UserFunctions()
    _restore: Callable[[Sequence[object]], object] | None = field(default=None, init=False)
    _frozen: FrozenCall | None = field(default=None, init=False)
    _is_training: bool = field(default=False, init=False)
    _failures: list[str] = field(default_factory=list[str], init=False)

    def run(self) -> Callable[..., object]:
        """Return the captured graph compiled: from the cache, or by the stages."""
        with pause_collection():
            return self._run()

    def _run(self) -> Callable[..., object]:
        if aot_compile.is_saving():
            from ctk.compiler.cache.saved_function import compile_to_save  # loads Dynamo

            return compile_to_save(self.graph, self.inputs, self.compile, self.outcome)
        is_cached = self.config.cache and self.observer is None and not self.user.is_any
        if not is_cached:
            return self.compile()
        with phase("cache", "key"):
            cache = cache_of(self.graph, self.inputs, self.config, self.passes)
        return self.compile() if cache is None else cache.run(self.compile, self.outcome)

    def outcome(self) -> Made:
        """Return the artifacts of the compile for the cache."""
        return Made(self.graph, self.made, self._failures)

    def compile(self) -> Callable[..., object]:
        """Compile the captured graph, stage by stage."""
        # An observer sees each kernel when it is made; a fallback replaces the graph that failed.
        may_defer = self.observer is None and self.config.on_failure == "raise"
        with place_errors(DISPATCH, self.graph, self.observer):
            with deferred(enabled=may_defer):
                self.captured()
                self.pre_grad()
                run = self.dispatch()
            if self._frozen is not None:
                is_needed = self.observer is not None  # an observer may run the program again
                self._frozen.settle(discard=self.config.freezing_discard and not is_needed)
            return run

    def captured(self) -> None:
        """The captured graph, with flat outputs and a type on each node."""
        with phase("captured", "copy of the graph"):
            captured, self.graph = self.graph, copy_graph_module(self.graph)
            tensor_sources.copy_sources(captured, self.graph)
            self._restore = flatten_outputs(self.graph)
        with phase("captured", "types of the graph"):
            _add_types(self.graph, self.inputs)
        enter_stage(self.graph, "captured", self.numbering, self.inputs)

    def pre_grad(self) -> None:
        """Torch-level calls, not functional, before autograd."""
        run_stage(
            self.graph, "pre_grad", self.passes["pre_grad"], self.numbering, inputs=self.inputs
        )

    def dispatch(self) -> Callable[..., object]:
        """Trace to functional ATen graphs: calls `joint` ... `backward`, or `inference`."""
        stages = Stages(self.joint, self.forward, self.backward, self.inference, self.partition)
        table = self.user.decompositions
        table = decomposition_table(self.config.decompositions) if table is None else table
        tensor_sources.name_new_attributes(self.graph)
        with phase("dispatch", "trace"):
            run = dispatch(self.graph, self.inputs, stages, self.numbering, table)
        restore = self._restore
        return run if restore is None else lambda *args: restore(run(*args))

    def joint(self, graph: GraphModule, inputs: Sequence[object]) -> None:
        """Forward and backward in one functional ATen graph."""
        self._transform(graph, "joint", inputs)

    def partition(
        self, joint: GraphModule, joint_inputs: object, options: Mapping[str, object]
    ) -> tuple[GraphModule, GraphModule]:
        """Split the joint graph in two; vetoed, at the program's own boundary."""
        self._is_training = True
        chosen = partition_options(self.config)
        if not self.numbering.allow_pass(PassId("joint", "partition")):
            chosen = PartitionOptions(algorithm="default")
        with phase("joint", "partition"):
            return split.partition(joint, joint_inputs, chosen, options)

    def forward(self, graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        """The forward graph of training, or the graph of inference without freezing."""
        self._transform(graph, "forward", inputs)
        return self.lower(graph, inputs, "forward")

    def backward(self, graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        """The backward graph; torch may compile it as late as the first backward pass."""
        self._transform(graph, "backward", inputs)
        return self.lower(graph, inputs, "backward")

    def inference(self, graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        """The graph of inference, which needs no partition."""
        self.joint(graph, inputs)
        return (self.frozen if self.config.freezing else self.forward)(graph, inputs)

    def frozen(self, graph: GraphModule, inputs: Sequence[object]) -> Boxed:
        """The forward graph of inference with its parameters as constants."""
        self._transform(graph, "forward", inputs)
        self._frozen = fw_compiler_freezing(
            graph,
            inputs,
            captured=self.graph,
            example_inputs=self.inputs,
            transform=lambda graph, inputs: self._transform(graph, "frozen", inputs),
            inner_compile=lambda graph, inputs: self.lower(graph, inputs, "frozen"),
        )
        return self._frozen

    def lower(self, graph: GraphModule, inputs: Sequence[object], stage: Stage) -> Boxed:
        """Generate code for a graph."""
        enter_stage(graph, "lowered", self.numbering, inputs)
        if self.user.inner_compile is not None:
            return self._inner_compile(graph, inputs, stage)
        self.made[stage] = generate(graph, inputs, stage, self.numbering)
        return self.made[stage]

    def _inner_compile(self, graph: GraphModule, inputs: Sequence[object], stage: Stage) -> Boxed:
        """Compile a graph by the function of the user, which may return a boxed callable."""
        assert self.user.inner_compile is not None
        is_inference = not self._is_training and stage != "backward"
        with patch(self.config.differences()):
            run = self.user.inner_compile(
                graph, inputs, is_backward=stage == "backward", is_inference=is_inference
            )
        if not hasattr(run, "ctk_data"):
            is_boxed = getattr(run, "_boxed_call", False)
            own = cast("Callable[..., Sequence[object]]", run)
            run = as_boxed(
                lambda args: own(args) if is_boxed else own(*args), lambda: "", _no_data_of_user
            )
        self.made[stage] = cast("BoxedCallable", run)
        return self.made[stage]

    def _transform(self, graph: GraphModule, stage: Stage, inputs: Sequence[object]) -> None:
        """Run a stage's passes; with a fallback, a failing stage leaves the graph unchanged."""
        is_done = attempt_on_graph(
            self.config,
            f"stage {stage}",
            graph,
            lambda: run_stage(graph, stage, self.passes[stage], self.numbering, inputs=inputs),
        )
        if not is_done:
            self._failures.append(f"stage {stage} failed")


def _add_types(graph: GraphModule, example_inputs: Sequence[object]) -> None:
    """Record the fake values that passes and the verifier read, unless the graph has some."""
    if any(value_of(node) is not None for node in placeholders(graph)):
        return
    mode = fake.mode_of(example_inputs) or fake.new_fake_mode()
    fakes = [fake.to_fake(value, mode) for value in example_inputs]
    try:
        FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*fakes)
    except Exception as error:
        log.debug("types of the captured graph are unknown: %s", first_line(error))
