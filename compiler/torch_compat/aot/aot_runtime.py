"""AOTAutograd's wrappers of compiled graphs, captured as data and rebuilt around other graphs.

AOTAutograd traces a captured graph, passes functional graphs to a compiler, and wraps the compiled
ones: inputs are mutated, outputs become aliases of inputs again, `autograd.Function` has the
forward and the backward. All of that follows from a few records (`ViewAndMutationMeta`). From these
the wrappers can be rebuilt around compiled graphs of an earlier process without a trace:

    with capture(graph, inputs) as recorded:
        run = trace(graph, inputs, ...)
    data = recorded.as_json(graph)                             # in another process:
    run = rebuild(data, graph, forward=forward, backward=backward)

Cases that have no data form, with the reason in the message: inputs or outputs of a tensor
subclass, effect tokens, random numbers as inputs (`functionalize_rng_ops`), `BackwardState`, hooks
on saved tensors, `debug_assert`, a first call with fake tensors (DDPOptimizer), several compiles in
one, and a pass before autograd that gave the graph a tensor of its own.

Source: `aot_autograd_result.py` of torch 2.11 and 2.13, which pickles the same records. Here guards
on duplicate and overlapping inputs, which a trace gives to Dynamo, come back as well.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ctk.compiler.records import Json
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm, decode, encode
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fake import shape_guards
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed
from ctk.compiler.torch_compat.inductor.inductor_api import compile_lock
from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site

Run = Callable[..., Sequence[object]]

_FOR_MESSAGES = ("traced_tangents_descs", "tangent_source_stack_traces", "compile_id_str")
"""Attributes that only errors about tensor subclasses read, which cannot occur; they hold paths."""


def _aot(module: str) -> Any:
    return importlib.import_module(f"torch._functorch._aot_autograd.{module}")


@dataclass(slots=True)
class Recorded:
    """The wrappers of one trace; filled while the trace runs.

    Attributes:
        symbols: The symbolic sizes of its inputs before the trace.
        known_guards: Number of Dynamo's guards on inputs before the trace.
        wraps: One for each compile: its wrappers, configuration and metadata.
        trainings: One for each compile with a backward: the arguments of its wrapper.
    """

    graph: GraphModule
    symbols: Mapping[str, Any]
    known_guards: int
    is_any_autocast: bool
    reasons: list[str] = field(default_factory=list[str])
    wraps: list[tuple[Sequence[Any], Any, Any]] = field(
        default_factory=list[tuple[Sequence[Any], Any, Any]]
    )
    trainings: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def as_json(self, traced: GraphModule) -> Json:
        """Return all that `rebuild` needs, besides the compiled graphs.

        Args:
            traced: The traced graph: the captured one, or a copy of it that passes have changed.

        Raises:
            NoDataForm: The wrappers cannot be rebuilt.
        """
        for reason in self.reasons:
            raise NoDataForm(reason)
        if len(self.wraps) != 1 or len(self.trainings) > 1:
            raise NoDataForm(f"{len(self.wraps)} compiled functions instead of one")
        ((wrappers, config, metadata),) = self.wraps
        _require_plain(config, metadata)
        training = self.trainings[0] if self.trainings else None
        return {
            "autocast": self.is_any_autocast,
            "guards": shape_guards.guards_of(self.symbols),
            "input_guards": _input_guards(config, self.known_guards),
            "keep_input_mutations": config.keep_inference_input_mutations,
            "metadata": encode(_without_messages(metadata)),
            "parameters": self._parameters(traced),
            "training": None if training is None else _encode_training(training),
            "wrappers": [encode(wrapper) for wrapper in wrappers],
        }

    def backward_graph(self) -> GraphModule | None:
        """Return the backward graph before its passes, of which compiled autograd makes its own."""
        for noted in self.trainings:
            return noted["lazy_backward_info"].bw_module
        return None

    def _parameters(self, traced: GraphModule) -> list[str]:
        """Return the names, in the captured graph, of the tensors that become its first inputs.

        Raises:
            NoDataForm: The traced graph has a tensor that the captured one lacks: a pass computed
                it from others, whose numbers are not in the cache key.
        """
        names = {id(value): name for name, value in parameters_of(self.graph).items()}
        constants = {id(value) for value in _constants_of(self.graph)}
        held = parameters_of(traced).values()
        is_known = all(id(each) in names for each in held)
        if not is_known or not all(id(constant) in constants for constant in _constants_of(traced)):
            raise NoDataForm("a pass before autograd gave the graph a tensor")
        return [names[id(each)] for each in held]


@contextlib.contextmanager
def capture(graph: GraphModule, inputs: Sequence[object]) -> Generator[Recorded]:
    """Record the wrappers that a trace of `graph` inside the block puts around compiled graphs.

    The backward is compiled at once, and not at the first backward pass: the data is whole when the
    block ends. Dynamo and Inductor do not compile in other threads meanwhile.

    In torch: `graph_compile.post_compile`, `AOTDispatchAutograd.post_compile`.
    """
    context = torch._guards.TracingContext.try_get()
    known = 0 if context is None else len(context.guards_context.aotautograd_guards)
    symbols = shape_guards.symbols_of(fake.inputs_of_trace(inputs))
    any_autocast = torch._C._is_any_autocast_enabled()
    recorded = Recorded(graph, symbols, known, any_autocast, _reasons(context))
    lazily = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    wraps = Site(_aot("graph_compile"), "post_compile")
    training = Site(_aot("runtime_wrappers").AOTDispatchAutograd, "post_compile")
    with (
        compile_lock(),
        lazily,
        wrap_site(wraps, lambda original: _noting_wraps(recorded, original)),
        wrap_site(training, lambda original: staticmethod(_noting_training(recorded, original))),
    ):
        yield recorded


def rebuild(
    data: Json,
    graph: GraphModule,
    *,
    forward: Boxed,
    backward: Boxed | None = None,
    backward_graph: Callable[[], GraphModule] | None = None,
) -> Run:
    """Return the callable of an earlier `trace` around other compiled graphs, without a trace.

    Args:
        forward: The compiled forward, or the compiled graph of inference.
        backward_graph: Returns the graph of `Recorded.backward_graph`, for compiled autograd.

    Raises:
        NoDataForm: The data is malformed, or belongs to another graph.
    """
    parameters = parameters_of(graph)
    try:
        held = [parameters[name] for name in data["parameters"]]
    except (KeyError, TypeError) as error:
        raise NoDataForm("the entry is of a graph with other parameters") from error
    metadata = decode(data["metadata"])
    config = _configuration(data, graph, list(parameters), list(data["parameters"]))
    forward = forward if getattr(forward, "_boxed_call", False) else boxed(forward)
    if (data["training"] is None) != (backward is None):
        raise NoDataForm("the entry has a backward and the data has none, or the other way round")
    if backward is None:
        run = _inference(data, forward, config, metadata)
    else:
        run = _training(data, forward, backward, backward_graph, config, metadata)
    wrappers = [decode(each) for each in data["wrappers"]]
    run, _ = _aot("runtime_wrappers").post_compile(wrappers, run, config, runtime_metadata=metadata)
    _replay_input_guards(data["input_guards"], config)

    def call(*inputs: object) -> Sequence[object]:
        return run([*held, *inputs])

    return call


def _without_messages(metadata: Any) -> Any:
    """Return a copy that names no place of this machine; lists keep their length."""
    copy = object.__new__(type(metadata))
    for name, value in vars(metadata).items():
        kept = value
        if name in _FOR_MESSAGES:
            kept = [None] * len(value) if name == "traced_tangents_descs" else None
        object.__setattr__(copy, name, kept)
    return copy


def _reasons(context: Any) -> list[str]:
    """Return why, right now, no trace can be kept."""
    reasons: list[str] = []
    if context is not None and context.fakify_first_call:
        reasons.append("the first call gets fake tensors (DDPOptimizer)")
    if torch._functorch.config.functionalize_rng_ops:
        reasons.append("random numbers are inputs: torch._functorch.config.functionalize_rng_ops")
    if torch._functorch.config.debug_assert:
        reasons.append("torch._functorch.config.debug_assert is on")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        reasons.append("hooks on saved tensors are on")
    return reasons


def _require_plain(config: Any, metadata: Any) -> None:
    """Raise `NoDataForm` if the wrappers hold more than numbers and names."""
    if metadata.tokens or metadata.num_backward_tokens:
        raise NoDataForm("the graph has effect tokens")
    if _has_collective_inputs(metadata):
        raise NoDataForm("an input is an AsyncCollectiveTensor")
    if config.is_export or config.pre_dispatch:
        raise NoDataForm("the graph is traced for export")


def _has_collective_inputs(metadata: Any) -> bool:
    """Return whether a wrapper waits for inputs: `AsyncCollectiveTensor`.

    torch 2.12 and 2.13 note their indices, later ones their paths; 2.11 looks at each call.
    """
    names = ("act_input_indices", "act_input_paths")
    return any(getattr(metadata, name, None) for name in names)


def parameters_of(graph: GraphModule) -> dict[str, torch.Tensor]:
    """Return the tensors that AOTAutograd makes the first inputs of a graph, in its order."""
    parameters = dict[str, torch.Tensor](graph.named_parameters(remove_duplicate=False))
    return parameters | dict(graph.named_buffers(remove_duplicate=False))


def _constants_of(graph: GraphModule) -> Iterator[torch.Tensor]:
    """Yield the tensors of a graph that are neither parameters nor buffers."""
    for module in graph.modules():
        yield from (each for each in vars(module).values() if isinstance(each, torch.Tensor))


def _noting_wraps(recorded: Recorded, original: Callable[..., Any]) -> Callable[..., Any]:
    def post_compile(wrappers: Any, run: Any, config: Any, *, runtime_metadata: Any) -> Any:
        recorded.wraps.append((wrappers, config, runtime_metadata))
        return original(wrappers, run, config, runtime_metadata=runtime_metadata)

    return post_compile


_TRAINING: tuple[str, ...] = (
    "compiled_fw_func",
    "compiled_bw_func",
    "maybe_subclass_meta",
    "num_symints_saved_for_bw",
    "backward_state_indices",
    "disable_amp",
    "indices_of_inps_to_detach",
    "lazy_backward_info",
)
"""Arguments of `AOTDispatchAutograd.post_compile` in torch 2.11; from 2.12 on fields of its one."""


def _noting_training(recorded: Recorded, original: Any) -> Callable[..., Any]:
    def post_compile(*arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1:  # from torch 2.12 on
            noted = {name: getattr(arguments[0], name) for name in _TRAINING}
            metadata = arguments[0].fw_metadata
        else:
            noted = dict(zip(_TRAINING, arguments, strict=False))
            metadata = named["fw_metadata"]
        metadata.bw_donated_idxs = []  # the backward reuses no saved tensor: it may run again
        recorded.trainings.append(noted)
        return original.__func__(*arguments, **named)

    return post_compile


def _encode_training(noted: Mapping[str, Any]) -> Json:
    if noted["maybe_subclass_meta"] is not None:
        raise NoDataForm("an input or output is a tensor subclass")
    if noted["backward_state_indices"]:
        raise NoDataForm("an input is a BackwardState")
    if noted["compiled_bw_func"] is None:
        raise NoDataForm("torch has not compiled the backward yet")
    return {
        "detach": encode(noted["indices_of_inps_to_detach"]),
        "disable_autocast": noted["disable_amp"],
        "symbols_saved": noted["num_symints_saved_for_bw"],
    }


def _configuration(
    data: Json, graph: GraphModule, names: Sequence[str], wanted: Sequence[str]
) -> Any:
    """Return AOTAutograd's configuration of this compile, with the places of inputs in Dynamo."""
    schemas = _aot("schemas")
    count = len(names) + sum(node.op == "placeholder" for node in graph.graph.nodes)
    sources, static = _aot("frontend_utils")._try_get_metadata_from_dynamo(
        graph, dict.fromkeys(names).keys(), count, []
    )
    if sources is not None:
        places = dict(zip(names, sources, strict=False))
        sources = [*(places[name] for name in wanted), *sources[len(names) :]]
    return schemas.AOTConfig(
        fw_compiler=None,
        bw_compiler=None,
        inference_compiler=None,
        partition_fn=None,
        decompositions={},
        num_params_buffers=len(wanted),
        aot_id=next(importlib.import_module("torch._functorch.aot_autograd").AOT_COUNTER),
        keep_inference_input_mutations=data["keep_input_mutations"],
        aot_autograd_arg_pos_to_source=sources,
        static_input_indices=static,
    )


def _inference(data: Json, forward: Boxed, config: Any, metadata: Any) -> Any:
    wrapper = _aot("runtime_wrappers").RuntimeWrapper(
        indices_of_inps_to_detach=[], trace_joint=False, disable_amp=data["autocast"]
    )
    return wrapper.post_compile(forward, config, runtime_metadata=metadata)


def _training(
    data: Json, forward: Boxed, backward: Boxed, backward_graph: Any, config: Any, metadata: Any
) -> Any:
    """Return the autograd function of a forward and a backward, with its wrapper."""
    runtime = _aot("runtime_wrappers")
    training = data["training"]
    values = (
        forward,
        backward,
        None,
        training["symbols_saved"],
        [],
        training["disable_autocast"],
        decode(training["detach"]),
        runtime.CachedAutogradLazyBackwardCompileInfo(backward_graph),
    )
    values = dict(zip(_TRAINING, values, strict=True))
    return _post_compile(values, config, metadata)


def _post_compile(values: Mapping[str, Any], config: Any, metadata: Any) -> Any:
    """Return the wrapper of a training step.

    torch 2.11 takes the values one by one, 2.12 takes them as one object, and from 2.13 on that
    object also has the compiler of backward graphs.
    """
    runtime = _aot("runtime_wrappers")
    post_compile = runtime.AOTDispatchAutograd.post_compile
    more = {"fw_metadata": metadata, "try_save_cache_entry": None}
    if not hasattr(runtime, "AOTDispatchAutogradCompileSpec"):
        return post_compile(*values.values(), config, **more)
    specification = runtime.AOTDispatchAutogradCompileSpec
    known = {field.name for field in dataclasses.fields(specification)}
    more |= {"bw_compiler": None} if "bw_compiler" in known else {}
    return post_compile(specification(**values, aot_config=config, **more))


def _input_guards(config: Any, known: int) -> Json:
    """Return the guards of the trace for Dynamo: equal inputs, and inputs that share memory.

    Raises:
        NoDataForm: There is a guard of another kind, or on no input.
    """
    context = torch._guards.TracingContext.try_get()
    guards = [] if context is None else context.guards_context.aotautograd_guards[known:]
    sources = config.aot_autograd_arg_pos_to_source or []

    def places(wanted: Sequence[Any]) -> list[int]:
        return [sources.index(each) for each in wanted]

    found: list[Json] = []
    for guard in guards:
        name = type(guard).__name__
        if name == "DuplicateInputs":
            found.append([name, [places([guard.input_source_a]), places([guard.input_source_b])]])
        elif name == "StorageOverlap":
            groups = (guard.overlapping_sources, guard.non_overlapping_sources)
            found.append([name, [places(group) for group in groups]])
        else:
            raise NoDataForm(f"a guard {name} on inputs")
    return found


def _replay_input_guards(guards: Json, config: Any) -> None:
    """Give Dynamo the guards on inputs that a trace would have given."""
    context = torch._guards.TracingContext.try_get()
    sources = config.aot_autograd_arg_pos_to_source
    if context is None or not sources:
        return
    for name, (first, second) in cast("list[Any]", guards):
        groups = ([sources[place] for place in first], [sources[place] for place in second])
        if name == "DuplicateInputs":
            guard = torch._guards.DuplicateInputs(groups[0][0], groups[1][0])
        else:
            guard = torch._guards.StorageOverlap(*groups)
        context.guards_context.aotautograd_guards.append(guard)
