"""The only module that touches torch's private names; each accessor says in which versions it was
seen.

Everything else in ctk goes through these functions, so that a new torch is a change of one file.
What it does not do: no logic of ctk, and no import of anything heavy before it is asked for.
"""

# What pyright says of private names is what this file is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import importlib
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

# --- safe case formats: names of functions, ops and symbols -------------------------------------


def native_function_names() -> tuple[str, ...]:
    """Return the names of the native functions bound on `torch` (`add`, `zeros`, `_foreach_add`).

    Seen in torch 2.11 and 2.13: `torch._C._VariableFunctions`.
    """
    names = dir(_resolve("_C._VariableFunctions"))
    return tuple(name for name in names if not name.startswith("__"))


_INTERNAL_FUNCTIONS = """
    _C._set_grad_enabled
    amp.autocast_mode._enter_autocast
    amp.autocast_mode._exit_autocast
    autograd.grad_mode._enter_inference_mode
    autograd.grad_mode._exit_inference_mode
    _C._autograd._get_data_attr
    _C._autograd._saved_tensors_hooks_disable
    _C._autograd._saved_tensors_hooks_enable
    _C._functorch._grad_decrement_nesting
    _C._functorch._grad_increment_nesting
    _C._functorch._jvp_decrement_nesting
    _C._functorch._jvp_increment_nesting
    _C._functorch._unwrap_for_grad
    _C._functorch._wrap_for_grad
    _C._functorch._vmap_increment_nesting
    _C._functorch._vmap_decrement_nesting
    _C._functorch._add_batch_dim
    _C._functorch._remove_batch_dim
    _C._functorch.set_inplace_requires_grad_allowed
    _functorch.eager_transforms._autograd_grad
    _functorch.eager_transforms._set_tensor_requires_grad
    _functorch.eager_transforms._assert_wrapped_functional
    _functorch.predispatch.lazy_load_decompositions
    _functorch.predispatch._add_batch_dim
    _functorch.predispatch._remove_batch_dim
    _functorch.predispatch._vmap_increment_nesting
    _functorch.predispatch._vmap_decrement_nesting
    _functorch.predispatch._unwrap_for_grad
    _functorch.predispatch._jvp_increment_nesting
    _functorch.predispatch._jvp_decrement_nesting
    _functorch.predispatch._make_dual
    _functorch.predispatch._unpack_dual
    _functorch.predispatch._enter_dual_level
    _functorch.predispatch._exit_dual_level
    _functorch.vmap.lazy_load_decompositions
"""


def internal_functions() -> dict[str, Callable[..., Any]]:
    """Return torch's internal functions that Dynamo writes into graphs, by their dotted name.

    Cases: `torch._C._nn` (`linear`); autocast, grad and inference regions; `torch.func.grad`,
    `vmap` and `jvp`. One that this torch lacks is left out. Seen in torch 2.11 and 2.13.
    """
    module = _resolve("_C._nn")
    names = [f"_C._nn.{name}" for name in dir(module) if not name.startswith(("__", "_test"))]
    found = {f"torch.{name}": _resolve(name) for name in [*names, *_INTERNAL_FUNCTIONS.split()]}
    return {name: value for name, value in found.items() if callable(value)}


def _resolve(dotted: str) -> object | None:
    """Return `torch.<dotted>`, importing torch's own sub-modules on the way; None if absent."""
    found: object = torch
    path = "torch"
    for part in dotted.split("."):
        path = f"{path}.{part}"
        if not hasattr(found, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(path)
        found = getattr(found, part, None)
    return found


def op_kind(target: object) -> str | None:
    """Return `overload`, `packet` or `higher_order` for an op of `torch.ops`, else None.

    Seen in torch 2.11 and 2.13: the three classes of `torch._ops`.
    """
    kinds = (
        (torch._ops.OpOverload, "overload"),
        (torch._ops.OpOverloadPacket, "packet"),
        (torch._ops.HigherOrderOperator, "higher_order"),
    )
    return next((kind for cls, kind in kinds if isinstance(target, cls)), None)


def op_qualified_name(target: Any) -> str:
    """Return `aten::add.Tensor` for an overload, `aten::add` for a packet (torch 2.11, 2.13)."""
    if op_kind(target) == "packet":
        return str(target._qualified_op_name)
    # `OpOverload.name()` leaves out `.default`.
    return str(target._schema.name) + "." + str(target._overloadname)


def op_argument_names(target: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of each argument of an overload, or of all overloads of a packet."""
    names = target.overloads() if op_kind(target) == "packet" else ()
    overloads = [getattr(target, name) for name in names] or [target]
    found = (argument for each in overloads for argument in each._schema.arguments)
    return tuple((str(argument.name), str(argument.type)) for argument in found)


def is_dispatcher_op(target: Any) -> bool:
    """Return whether the dispatcher knows this op (for a packet: one of its overloads).

    `torch.ops` also reaches TorchScript's builtins (`aten::save` writes a pickle), which it does
    not. Seen in torch 2.11 and 2.13: `torch._C._dispatch_has_kernel`.
    """
    if op_kind(target) == "packet":
        return any(is_dispatcher_op(getattr(target, name)) for name in target.overloads())
    return bool(torch._C._dispatch_has_kernel(target.name()))


def higher_order_op(name: str) -> object | None:
    """Return `torch.ops.higher_order.<name>`, importing torch's own module that registers it.

    Seen in torch 2.11 and 2.13: `torch._higher_order_ops` imports most of them.
    """
    importlib.import_module("torch._higher_order_ops")
    return getattr(torch.ops.higher_order, name, None)


def custom_op_module(qualified: str) -> str | None:
    """Return the module that defined a custom op (`mylib::f`), if torch remembers it.

    Seen in torch 2.11 and 2.13: `torch._library.custom_ops.OPDEFS`, for `torch.library.custom_op`.
    """
    registry = getattr(importlib.import_module("torch._library.custom_ops"), "OPDEFS", {})
    definition = registry.get(qualified)
    function = getattr(definition, "_init_fn", None)
    return getattr(function, "__module__", None)


def placeholder_source(node: Node) -> str | None:
    """Return where Dynamo found a graph input (`L['self']._buffers['b']`), if it says so.

    Seen in torch 2.11 (`source.name()`) and 2.13 (`source.name`).
    """
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    name = name() if callable(name) else name
    return name if isinstance(name, str) else None


def symbol_and_hint(value: Any) -> tuple[str, int | float | bool | None]:
    """Return the expression of a SymInt, SymFloat or SymBool, and its hint (None: unbacked).

    Seen in torch 2.11 and 2.13: `SymNode.expr`, `SymNode.has_hint()`, `SymNode.hint`.
    """
    node = value.node
    hint = node.hint if node.has_hint() else None
    return str(node.expr), hint if isinstance(hint, int | float | bool) else None


def is_fake_tensor(value: object) -> bool:
    """Return whether a value is a FakeTensor: it has a shape and no numbers (torch 2.11, 2.13)."""
    return isinstance(value, torch._subclasses.fake_tensor.FakeTensor)


# --- Inductor: the compile, its options, and the places where it announces its passes -------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """A function that can be wrapped for the time of one compile: `getattr(owner, name)`."""

    owner: object
    name: str


@dataclass(frozen=True, slots=True)
class InductorSites:
    """Where Inductor's passes start and end.

    Attributes:
        pre_grad: `(gm, example_inputs) -> gm`; recurses into sub-graphs through the same name, as
            the next two do.
        joint: `(gm, ...) -> gm`; called before the partition, or on the one graph of inference.
        post_grad: `(gm, ...) -> None`; called for the forward and for the backward graph.
        freeze: `(dynamo_gm, gm, example_inputs) -> (gm, kept input indices)`.
        gm_pass, graph_pass, enter, exit: Methods of `GraphTransformObserver`, by which passes are
        announced.
        pattern_pass: `PatternMatcherPass.apply(gm or graph) -> int`.
        pattern_setup: Functions that trace the patterns themselves, on their first call; what
            they announce is not about the user's graph.
    """

    pre_grad: Site
    joint: Site
    post_grad: Site
    freeze: Site
    gm_pass: Site
    graph_pass: Site
    enter: Site
    exit: Site
    pattern_pass: Site
    pattern_setup: tuple[Site, ...]


def _inductor(name: str) -> Any:
    """Import a module of Inductor, without torch's deprecation notices about itself meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"torch._inductor.{name}")


def inductor_sites() -> InductorSites:
    """Return the places to wrap. Seen in torch 2.11 and 2.13."""
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    compile_fx, freezing = _inductor("compile_fx"), _inductor("freezing")
    families = ("pre_grad", "joint_graph", "post_grad", "freezing_patterns")
    modules = [_inductor(f"fx_passes.{family}") for family in families]
    pattern_pass = _inductor("pattern_matcher").PatternMatcherPass
    return InductorSites(
        pre_grad=Site(compile_fx, "_recursive_pre_grad_passes"),
        joint=Site(compile_fx, "_recursive_joint_graph_passes"),
        post_grad=Site(compile_fx, "_recursive_post_grad_passes"),
        freeze=Site(freezing, "freeze"),
        gm_pass=Site(GraphTransformObserver, "apply_gm_pass"),
        graph_pass=Site(GraphTransformObserver, "apply_graph_pass"),
        enter=Site(GraphTransformObserver, "__enter__"),
        exit=Site(GraphTransformObserver, "__exit__"),
        pattern_pass=Site(pattern_pass, "apply"),
        pattern_setup=tuple(Site(m, "lazy_init") for m in modules if hasattr(m, "lazy_init")),
    )


InnerCompile = Callable[..., Any]
"""Inductor's compile of one graph: `(gm, example_inputs, **kwargs) -> boxed callable`;
`is_backward` is in kwargs.
"""


def inductor_inner_compile() -> InnerCompile:
    """Return Inductor's own `inner_compile`. Seen in torch 2.11 and 2.13."""
    return _inductor("compile_fx").compile_fx_inner


def inductor_compile(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config_patches: Mapping[str, object],
    inner_compile: InnerCompile,
) -> Callable[..., object]:
    """Run Inductor's Dynamo backend on a graph, without Dynamo and without AOTAutograd's own cache.

    `inner_compile` is called once per graph, for a lazy backward long after this returns, each
    time under `config_patches`. Seen in torch 2.11 and 2.13.
    """
    from torch._functorch import config as functorch_config

    caches = ("enable_autograd_cache", "enable_remote_autograd_cache", "bundled_autograd_cache")
    off = {name: False for name in caches if hasattr(functorch_config, name)}
    with functorch_config.patch(off):
        return cast(
            Callable[..., object],
            _inductor("compile_fx").compile_fx(
                gm,
                cast(Any, list(example_inputs)),
                inner_compile=inner_compile,
                config_patches=dict(config_patches),
            ),
        )


def inductor_options() -> dict[str, tuple[object, object]]:
    """Return each Inductor option's value and declared type. Seen in torch 2.11 and 2.13."""
    config = _inductor("config")
    values = config.get_config_copy()
    return {name: (value, config.get_type(name)) for name, value in values.items()}


def compile_lock() -> AbstractContextManager[object]:
    """Return the re-entrant lock under which Dynamo and Inductor compile. Seen in torch 2.11 and
    2.13.
    """
    from torch._dynamo.convert_frame import compile_lock as lock

    return cast(AbstractContextManager[object], lock)


def is_pattern_pass(owner: object) -> bool:
    """Return whether `owner` is a table of Inductor patterns. Seen in torch 2.11 and 2.13."""
    from torch._inductor.pattern_matcher import PatternMatcherPass

    return isinstance(owner, PatternMatcherPass)


def is_lowering_entry(entry: object) -> bool:
    """Return whether a pattern's replacement is one node that only Inductor can run. Seen in
    torch 2.11 and 2.13.
    """
    from torch._inductor.pattern_matcher import LoweringPatternEntry

    return isinstance(entry, LoweringPatternEntry)


def is_handler_entry(entry: object) -> bool:
    """Return whether a pattern runs a handler, which may decline and change nothing. Seen in
    torch 2.11 and 2.13.
    """
    from torch._inductor.pattern_matcher import GraphPatternEntry

    return isinstance(entry, GraphPatternEntry)


def no_match(reason: str) -> object:
    """Return what a pattern's match returns when it does not match. Seen in torch 2.11 and 2.13."""
    from torch._inductor.pattern_matcher import FailedMatch

    return FailedMatch(reason)


def is_true(check: object) -> bool:
    """Return whether a pattern's check accepts, as Inductor reads it (a symbolic bool may be
    unknown: no).

    Seen in torch 2.11 and 2.13.
    """
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return bool(guard_or_false(cast(Any, check)))


def donated_inputs() -> frozenset[int]:
    """Return the inputs of the graph being compiled whose memory Inductor may reuse. Seen in
    torch 2.11 and 2.13.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return frozenset(getattr(metadata, "bw_donated_idxs", None) or ())


def generated_source(compiled: object) -> str | None:
    """Return the source that Inductor generated for a compiled graph, if it did. Seen in torch
    2.11 and 2.13.
    """
    source = getattr(compiled, "source_code", None)
    return source if isinstance(source, str) else None


def wrap_compiled(compiled: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """Return `compiled` with its boxed call wrapped; an output object of Inductor keeps its
    identity and attributes.

    Seen in torch 2.11 and 2.13.
    """
    if callable(getattr(compiled, "current_callable", None)):
        compiled.current_callable = wrap(compiled.current_callable)
        return compiled
    return boxed(wrap(compiled)) if getattr(compiled, "_boxed_call", False) else compiled


def boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a callable as taking one list of inputs and clearing it. Seen in torch 2.11, 2.13."""
    cast(Any, call)._boxed_call = True
    return call


def copy_codegen(source: Graph, target: Graph) -> None:
    """Give `target` the calling convention (pytrees in and out) of `source`. Seen in torch 2.11
    and 2.13.
    """
    target.set_codegen(source._codegen)


def is_erased(node: Node) -> bool:
    """Return whether a node was erased from its graph. Seen in torch 2.11 and 2.13."""
    return bool(node._erased)


def dynamo_backend_names() -> tuple[str, ...]:
    """Return the names of all registered Dynamo backends. Seen in torch 2.11 and 2.13."""
    from torch._dynamo import list_backends

    return tuple(list_backends(exclude_tags=()))


def dynamo_backend(name: str) -> Callable[..., Any]:
    """Return a registered Dynamo backend. Seen in torch 2.11 and 2.13."""
    from torch._dynamo import lookup_backend

    return lookup_backend(name)


def default_partition() -> Callable[..., Any]:
    """Return how AOTAutograd splits a joint graph when it is told nothing. Seen in 2.11, 2.13."""
    from functorch.compile import default_partition as partition

    return partition


def aot_backend_site() -> Site:
    """Return the call of every backend made with `aot_autograd(fw_compiler=...)`. Seen in torch
    2.11 and 2.13.

    Its `self.kwargs` holds `fw_compiler`, `bw_compiler` and `inference_compiler`.
    """
    from torch._dynamo.backends.common import AotAutograd

    return Site(AotAutograd, "__call__")


# --- doctor: what Inductor finds on this machine -------------------------------------------------


def inductor_cpp_compiler() -> str | None:
    """Return the C++ compiler that Inductor would call, or None when it finds none.

    Seen in torch 2.11 and 2.13: `torch._inductor.cpp_builder.get_cpp_compiler`, which raises
    `torch._inductor.exc.InvalidCxxCompiler` (a `RuntimeError`).
    """
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return get_cpp_compiler()
    except RuntimeError:
        return None


# --- debug hooks: where Dynamo finds its backends, and its exceptions ---------------------------


def wrap_backend_lookup(wrap: Callable[[object], object], owner: object) -> Callable[[], None]:
    """Pass each backend that Dynamo looks up through `wrap` first; return the undo function.

    Covers every `torch.compile` and `torch.compiler.set_stance(force_backend=...)` that starts
    afterwards. Seen in torch 2.11 and 2.13: `torch._dynamo.eval_frame.get_compiler_fn`.

    Args:
        wrap: Takes a name, a callable, or one of torch.compile's wrapper objects.
        owner: What `backend_lookup_owner` returns until then.
    """
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    original = module.get_compiler_fn
    active = [True]

    def lookup(backend: object) -> object:
        return original(wrap(backend) if active[0] else backend)

    def undo() -> None:
        active[0] = False  # somebody may have wrapped ours in the meantime, and still call it
        if module.get_compiler_fn is lookup:
            module.get_compiler_fn = original

    cast(Any, lookup).ctk_owner = owner
    module.get_compiler_fn = lookup
    return undo


def backend_lookup_owner() -> object | None:
    """Return the owner that `wrap_backend_lookup` was given, while it is in force."""
    module: Any = importlib.import_module("torch._dynamo.eval_frame")
    return getattr(module.get_compiler_fn, "ctk_owner", None)


def unwrap_backend(backend: Any) -> tuple[str | None, Any, dict[str, object]]:
    """Return what torch.compile was told: registered name (or None), callable, keyword arguments.

    Inductor's keyword is `options`, with those of its `mode` merged in. Seen in torch 2.11 and
    2.13: `torch._TorchCompileInductorWrapper`, `torch._TorchCompileWrapper`, `_COMPILER_FNS`.
    """
    if type(backend) is torch._TorchCompileInductorWrapper:
        return "inductor", backend, {"options": dict(backend.config)}
    keywords: dict[str, object] = {}
    if isinstance(backend, torch._TorchCompileWrapper):
        keywords, backend = dict(backend.kwargs), backend.compiler_fn
    registry: Any = importlib.import_module("torch._dynamo.backends.registry")
    if isinstance(backend, str):
        return backend, registry.lookup_backend(backend), keywords
    loaded = getattr(registry, "_COMPILER_FNS", {})
    name = next((name for name, function in loaded.items() if function is backend), None)
    return name, backend, keywords


def inductor_mode_options(mode: str, dynamic: bool | None = None) -> dict[str, object]:
    """Return the Inductor options that a `mode` of torch.compile stands for (torch 2.11, 2.13)."""
    inductor: Any = importlib.import_module("torch._inductor")
    return dict(inductor.list_mode_options(mode, dynamic))


def dynamo_control_flow() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which a backend steers Dynamo: restarts, skips, graph breaks.

    They are no failures of a compiler. Seen in torch 2.11 and 2.13: `torch._dynamo.exc`.
    """
    exc: Any = importlib.import_module("torch._dynamo.exc")
    names = ("TensorifyScalarRestartAnalysis", "RestartAnalysis", "SkipFrame")
    found = [getattr(exc, name) for name in names if hasattr(exc, name)]
    return (*found, *getattr(exc, "exceptions_allowed_to_be_fallback", ()))


def dynamo_cause(error: BaseException) -> BaseException:
    """Return the backend's own exception inside Dynamo's `BackendCompilerFailed`, else `error`."""
    exc: Any = importlib.import_module("torch._dynamo.exc")
    if isinstance(error, exc.BackendCompilerFailed):
        return getattr(error, "inner_exception", error)
    return error


# --- TorchScript code generation ----------------------------------------------------------------


def op_packet(target: Any) -> Any:
    """Return `torch.ops.aten.add` for `torch.ops.aten.add.Tensor` (torch 2.11, 2.13)."""
    return target._overloadpacket


def is_symbolic(value: object) -> bool:
    """Return whether a value is a SymInt, SymFloat or SymBool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def op_returns(target: Any) -> int:
    """Return how many values an overload returns (torch 2.11, 2.13: `OpOverload._schema`)."""
    return len(target._schema.returns)


def op_written_arguments(target: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of the arguments that an overload writes to (torch 2.11, 2.13)."""
    arguments = enumerate(target._schema.arguments)
    written = ((at, arg) for at, arg in arguments if arg.alias_info and arg.alias_info.is_write)
    return tuple((at, str(arg.name)) for at, arg in written)


def jit_has_schema(qualified: str) -> bool:
    """Return whether TorchScript can call an operator (`aten::add`), whatever the overload.

    Seen in torch 2.11 and 2.13: `torch._C._jit_get_schemas_for_operator`.
    """
    return bool(torch._C._jit_get_schemas_for_operator(qualified))


def jit_operators(graph: Any) -> list[str]:
    """Return the operator of each node of a TorchScript graph, in order: `aten::add.Scalar`.

    Nodes without a schema give their kind (`prim::TupleConstruct`). Nested blocks are left out.
    Seen in torch 2.11 and 2.13: `torch._C.Graph.nodes`, `torch._C.Node.schema`.
    """
    schemas = ((node.kind(), str(node.schema())) for node in graph.nodes())
    return [kind if text == "(no schema)" else text.split("(", 1)[0] for kind, text in schemas]


def jit_remove_mutation(graph: Any) -> None:
    """Make in-place ops functional where TorchScript can prove that nobody sees the difference.

    Seen in torch 2.11 and 2.13: `torch._C._jit_pass_remove_mutation`.
    """
    torch._C._jit_pass_remove_mutation(graph)


def jit_written_attributes(graph: Any) -> list[str]:
    """Return the module attributes that a TorchScript graph may write to.

    Seen in torch 2.11 and 2.13: `torch._C.Graph.alias_db`, `AliasDb.has_writers`.
    """
    aliases = graph.alias_db()
    reads = [node for node in graph.nodes() if node.kind() == "prim::GetAttr"]
    return [str(node.s("name")) for node in reads if aliases.has_writers(node.output())]


def jit_outputs_of_constants(graph: Any) -> tuple[int, ...]:
    """Return which elements of a graph's returned tuple may share memory with a constant of it.

    Seen in torch 2.11 and 2.13: `torch._C.Graph.alias_db`, `AliasDb.may_contain_alias`.
    """
    (returned,) = graph.return_node().inputs()
    if returned.node().kind() != "prim::TupleConstruct":  # the whole tuple was folded
        return tuple(range(len(returned.type().elements())))
    aliases = graph.alias_db()
    constants = [node.output() for node in graph.nodes() if node.kind() == "prim::Constant"]
    tensors = [value for value in constants if value.type().kind() == "TensorType"]
    values = list(returned.node().inputs())
    shares = (any(aliases.may_contain_alias(value, each) for each in tensors) for value in values)
    return tuple(index for index, shared in enumerate(shares) if shared)


@contextlib.contextmanager
def jit_autocast_off() -> Iterator[None]:
    """Keep TorchScript from inserting casts of its own; autocast was traced into the graph.

    Seen in torch 2.11 and 2.13: `torch._C._jit_set_autocast_mode`, a flag of the process.
    """
    before = torch._C._jit_set_autocast_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_autocast_mode(before)


def dispatch_modes_off() -> contextlib.AbstractContextManager[object]:
    """Switch off the Python dispatch modes (fake tensors, tracing) for a `with` block.

    Seen in torch 2.11 and 2.13: `torch.utils._python_dispatch._disable_current_modes`.
    """
    return importlib.import_module("torch.utils._python_dispatch")._disable_current_modes()


# --- pipeline: fake tensors (seen in torch 2.11 and 2.13) ----------------------------------------


def fake_mode_of(values: Sequence[object]) -> Any | None:
    """Return the FakeTensorMode of the first fake tensor among `values`, or None."""
    from torch._subclasses.fake_tensor import FakeTensor

    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


def to_fake(value: object, mode: Any) -> object:
    """Return a fake tensor like `value` when it is a real tensor; anything else as it is."""
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
        return mode.from_tensor(value, static_shapes=True)
    return value


@contextlib.contextmanager
def fake_compute(mode: Any) -> Iterator[None]:
    """Run operators on fake tensors of `mode`: no gradients, and fresh unbacked symbols are not
    tracked.
    """
    shape_env = mode.shape_env
    ignore = getattr(shape_env, "ignore_fresh_unbacked_symbols", contextlib.nullcontext)
    with mode, torch.no_grad(), ignore():
        yield


@contextlib.contextmanager
def real_compute() -> Iterator[None]:
    """Run operators on real tensors although a compile is under way (fake and tracing modes off)."""
    with dispatch_modes_off(), torch.no_grad():
        yield


def is_data_dependent(error: BaseException) -> bool:
    """Return whether fake tensors could not answer because the answer depends on data, or the op
    has no fake rule.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    )
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    kinds = (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
        GuardOnDataDependentSymNode,
    )
    return isinstance(error, kinds)


def has_unbacked(value: object) -> bool:
    """Return whether a value's sizes contain symbols that only run time knows."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(value, (list, tuple)):
        return any(has_unbacked(item) for item in value)
    if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return bool(free_unbacked_symbols(value))
    return False


def new_fake_mode() -> Any:
    """Return a FakeTensorMode with its own shape environment that also takes real tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


# --- pipeline: autograd dispatch (seen in torch 2.11 and 2.13) -----------------------------------


def aot_module(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
    partition: Callable[..., Any],
) -> Callable[..., Any]:
    """Trace a captured graph to functional ATen graphs and hand them to the compilers;
    AOTAutograd's own machinery.
    """
    from torch._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified(
        gm,
        example_inputs,
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


def min_cut_partition(
    joint: GraphModule, joint_inputs: object, options: Mapping[str, Any]
) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph into forward and backward with torch's min-cut partitioner."""
    from functorch.compile import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(joint, joint_inputs, **options)


def tree_leaves(tree: object) -> list[object]:
    """Return the leaves of nested lists, tuples and dicts, in order."""
    from torch.utils._pytree import tree_leaves as leaves

    return leaves(tree)


def tree_flatten(tree: object) -> tuple[list[object], Callable[[Sequence[object]], object]]:
    """Return the leaves of a nested value, and what puts other leaves in their places."""
    from torch.utils._pytree import tree_flatten as flatten
    from torch.utils._pytree import tree_unflatten

    leaves, spec = flatten(tree)
    return leaves, lambda values: tree_unflatten(values, spec)


def plain_codegen(graph: Graph) -> None:
    """Drop a graph's own calling convention: inputs and outputs are what its nodes say."""
    from torch.fx.graph import CodeGen

    graph.set_codegen(CodeGen())


# --- pipeline: operators (seen in torch 2.11 and 2.13) --------------------------------------------


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What an operator overload declares about itself."""

    writes: bool
    random: bool
    views: bool
    returns: int


def op_facts(target: object) -> OpFacts | None:
    """Return what an operator overload declares, or None for any other target."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema = target._schema
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    random = torch.Tag.nondeterministic_seeded in target.tags
    return OpFacts(schema.is_mutable, random, views, len(schema.returns))


# --- running cases: lazy copies, flattening, dispatch modes, what Dynamo hands to a backend ------


def lazy_graph_module(root: dict[str, Any], graph: Graph, class_name: str) -> GraphModule:
    """Return a GraphModule whose Python code is generated at its first call, not now.

    Generating it is two thirds of the cost of a copy, and an Interpreter never needs it. Not for
    TorchScript, which cannot script the lazy class.

    Seen in torch 2.11 and 2.13: `torch.fx._lazy_graph_module`.
    """
    module = importlib.import_module("torch.fx._lazy_graph_module")
    with module._use_lazy_graph_module(True):
        return module._make_graph_module(root, graph, class_name)


@contextlib.contextmanager
def intercept_ops(
    handler: Callable[[Any, tuple[Any, ...], dict[str, Any]], object],
) -> Generator[None, None, None]:
    """Send each op below autograd, forward and backward, to `handler(op, args, kwargs)`.

    Ops that the handler calls are not intercepted. Higher-order ops arrive whole.

    Seen in torch 2.11 and 2.13: `torch.utils._python_dispatch.TorchDispatchMode`.
    """
    base = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Interceptor(base):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            return handler(func, args, kwargs or {})

    with Interceptor():
        yield


@dataclass(frozen=True, slots=True)
class SymbolicInputs:
    """Inputs as Dynamo hands them to a backend, and the context around the backend's call.

    Attributes:
        example_inputs: Real tensors, and a SymInt for each symbolic size.
        fakes: The same inputs as fake tensors, for `node.meta["example_value"]`. They live in a
            fake mode of their own, because running the graph on them may change their sizes.
        fake_mode: The fake mode of `fakes`.
        tracing: Makes the context that AOTAutograd asks for the fake mode and the symbols.
    """

    example_inputs: tuple[object, ...]
    fakes: tuple[object, ...]
    fake_mode: AbstractContextManager[Any]
    tracing: Callable[[], AbstractContextManager[Any]]


def symbolic_inputs(
    inputs: Sequence[object], names: Sequence[str], symbols: Mapping[str, Sequence[str | None]]
) -> SymbolicInputs:
    """Build what Dynamo hands to a backend: real tensors, SymInts, a tracing context.

    Equal symbol names give the same symbol, other names never do, whatever their hints are. A size
    of 0 or 1 is a constant, as in Dynamo.

    Args:
        inputs: One value per placeholder.
        names: Names of the placeholders.
        symbols: For a placeholder with symbolic sizes, the name of each dimension's symbol or None;
            for one that is itself a size, a single name.

    Source: `OutputGraph.compile_and_call_fx_graph` and `call_user_compiler` of Dynamo, torch 2.13:
    a second fake mode over the same ShapeEnv for the backend, and each tensor's symbolic context on
    the TracingContext. Seen in torch 2.11 and 2.13.
    """
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
    guards = importlib.import_module("torch._guards")
    env = shapes.ShapeEnv()
    known: dict[str, tuple[Any, Any]] = {}
    mode, backend_mode = (fake_tensor.FakeTensorMode(shape_env=env) for _ in range(2))
    context = guards.TracingContext(backend_mode)
    examples: list[object] = []
    fakes: list[object] = []
    remembered: list[object] = []  # the mode knows them by weak reference only
    for value, name in zip(inputs, names, strict=True):
        sizes = symbols.get(name, ())
        example = fake = value
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            symbolic = _symbolic_context(env, known, value, name, sizes)
            context.tensor_to_context[value] = symbolic
            options = {"symbolic_context": symbolic, "source": symbolic.tensor_source}
            remembered.append(backend_mode.from_tensor(value, **options))
            fake = mode.from_tensor(value, **options)
        elif isinstance(value, torch.Tensor):  # a subclass: static, as one value
            fake = mode.from_tensor(value, static_shapes=True)
        elif isinstance(value, int) and sizes and sizes[0]:
            symbol, source = _symbol(env, known, sizes[0], value)
            example = fake = env.create_symintnode(symbol, hint=value, source=source)
        examples.append(example)
        fakes.append(fake)

    @contextlib.contextmanager
    def tracing() -> Generator[None, None, None]:
        with guards.tracing(context):
            yield
        remembered.clear()

    return SymbolicInputs(tuple(examples), tuple(fakes), mode, tracing)


def _symbol(env: Any, known: dict[str, tuple[Any, Any]], name: str, hint: int) -> tuple[Any, Any]:
    """Return the symbol called `name`, made at its first use, and its source."""
    if name not in known:
        shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        source = importlib.import_module("torch._dynamo.source").ConstantSource(name)
        dynamic = shapes.DimDynamic.DYNAMIC
        known[name] = (env.create_symbol(hint, source, dynamic_dim=dynamic), source)
    return known[name]


def _symbolic_context(
    env: Any,
    known: dict[str, tuple[Any, Any]],
    tensor: torch.Tensor,
    name: str,
    sizes: Sequence[str | None],
) -> Any:
    """Return the symbolic context that gives each dimension of `tensor` its named symbol."""
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    sources = importlib.import_module("torch._dynamo.source")
    source = sources.ConstantSource(name)
    sizes = tuple(sizes) or (None,) * tensor.dim()
    chosen: dict[str, Any] = {}
    for index, symbol in enumerate(sizes):
        if symbol is not None:
            part = sources.TensorPropertySource(source, sources.TensorProperty.SIZE, index)
            key = part.name if isinstance(part.name, str) else part.name()
            chosen[key] = _symbol(env, known, symbol, tensor.shape[index])[0]
    dims = shapes.DimDynamic
    return shapes.StatefulSymbolicContext(
        dynamic_sizes=[dims.DYNAMIC if symbol else dims.STATIC for symbol in sizes],
        tensor_source=source,
        shape_env_to_source_to_symbol_cache={id(env): chosen},
    )


# --- pipeline: what a plain function does to a graph (seen in torch 2.11 and 2.13) ----------------


@contextlib.contextmanager
def recorded_replacements(gm: GraphModule) -> Iterator[list[tuple[str, str]]]:
    """Record each `old.replace_all_uses_with(new)` on `gm` meanwhile, as pairs of node names,
    each once.
    """
    pairs: dict[tuple[str, str], None] = {}
    found: list[tuple[str, str]] = []

    def hook(old: Node, new: str, user: Node) -> None:
        if (old.name, new) not in pairs:
            pairs[(old.name, new)] = None
            found.append((old.name, new))

    gm._register_replace_node_hook(hook)
    try:
        yield found
    finally:
        gm._unregister_replace_node_hook(hook)


# --- reducer: torch's own minifier, to compare with (seen in torch 2.11 and 2.13) -----------------


def torch_minifier() -> Callable[..., tuple[GraphModule, Sequence[object]]]:
    """Return `functorch.compile.minifier`: `(gm, inputs, module_fails, dump_state) -> (gm,
    inputs)`.

    Loaded on demand; it writes its progress to stderr.
    """
    return cast(Any, importlib.import_module("functorch.compile")).minifier


# --- oracle: what a worker imports before it forks (seen in torch 2.11 and 2.13) ------------------


def preload_compiler(*, inductor: bool) -> None:
    """Import what any compile imports, without running an op, so that forked children share it.

    Args:
        inductor: Also import Inductor and its CPU code generation.
    """
    names = [
        "torch._dynamo",
        "torch._functorch.aot_autograd",
        "torch.fx.experimental.symbolic_shapes",
    ]
    if inductor:
        names += ["torch._inductor.compile_fx", "torch._inductor.codegen.cpp"]
    for name in names:
        importlib.import_module(name)
