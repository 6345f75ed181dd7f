"""Inductor: the compile, its options, and the places where it announces its passes."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Thread
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed
from ctk.compiler.torch_compat.inductor.patch_sites import Site
from ctk.compiler.torch_compat.process.settings import implied
from ctk.compiler.torch_compat.versions import release_of


@dataclass(frozen=True, slots=True)
class Sites:
    """The functions in which Inductor's passes start and end.

    Attributes:
        pre_grad: `(gm, example_inputs) -> gm`; recurses into sub-graphs through the same name, as
            the next two do.
        joint: `(gm, ...) -> gm`; called before the partition, or on the one graph of inference.
        partition: `(joint, joint_inputs, **kwargs) -> (forward, backward)`, if no other partitioner
            is set.
        post_grad: `(gm, ...) -> None`; called for the forward and for the backward graph.
        freeze: `(dynamo_gm, gm, example_inputs) -> (gm, kept input indices)`.
        gm_pass, graph_pass, enter, exit: Methods of `GraphTransformObserver`, by which passes are
        announced.
        pattern_pass: `PatternMatcherPass.apply(gm or graph) -> int`.
        pattern_setup: Functions that trace the patterns themselves, on their first call; their
            events do not belong to the user's graph.
    """

    pre_grad: Site
    joint: Site
    partition: Site
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
    full_name = f"torch._inductor.{name}"
    if full_name in sys.modules:  # filters of warnings belong to the whole process
        return importlib.import_module(full_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(full_name)


def sites() -> Sites:
    """Return the places to wrap."""
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    compile_fx, freezing = _inductor("compile_fx"), _inductor("freezing")
    families = ("pre_grad", "joint_graph", "post_grad", "freezing_patterns")
    modules = [_inductor(f"fx_passes.{family}") for family in families]
    pattern_pass = _inductor("pattern_matcher").PatternMatcherPass
    return Sites(
        pre_grad=Site(compile_fx, "_recursive_pre_grad_passes"),
        joint=Site(compile_fx, "_recursive_joint_graph_passes"),
        partition=Site(compile_fx, "min_cut_rematerialization_partition"),
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


def inner_compile() -> InnerCompile:
    """Return Inductor's own `inner_compile`."""
    return _inductor("compile_fx").compile_fx_inner


def pipeline_module() -> Any:
    """Return the module of Inductor's pipeline, whose passes a benchmark times one by one."""
    return _inductor("compile_fx")


def compile_graph(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config_patches: Mapping[str, object],
    inner_compile: InnerCompile,
) -> Callable[..., object]:
    """Run Inductor's Dynamo backend on a graph, without Dynamo and without AOTAutograd's own cache.

    `inner_compile` is called once per graph, for a lazy backward long after this returns, each
    time under `config_patches`.
    """
    from torch._functorch import config as functorch_config

    caches = ("enable_autograd_cache", "enable_remote_autograd_cache", "bundled_autograd_cache")
    off = {name: False for name in caches if hasattr(functorch_config, name)}
    with functorch_config.patch(off):
        return _inductor("compile_fx").compile_fx(
            gm,
            list(example_inputs),
            inner_compile=inner_compile,
            config_patches=dict(config_patches),
        )


def wrap_error(error: Exception) -> Exception:
    """Return an exception in Inductor's wrapper, which Dynamo raises to the user."""
    return _inductor("exc").InductorError(error, None).with_traceback(error.__traceback__)


def known_options() -> dict[str, tuple[object, object]]:
    """Return the value and the declared type of each Inductor option that torch.compile takes.

    From torch 2.15 it takes old names as well: `benchmark_epilogue_fusion`.
    """
    config, values = _inductor("config"), option_values()
    if release_of(torch.__version__) >= (2, 15):
        values |= {n: _value(entry.alias) for n, entry in config._config.items() if entry.alias}
    return {name: (value, config.get_type(name)) for name, value in values.items()}


def _value(setting: str) -> object:
    module, _, name = setting.rpartition(".")
    return getattr(importlib.import_module(module), name)


def option_values() -> dict[str, object]:
    """Return the value that each Inductor option is set to, by its newest name."""
    return _inductor("config").get_config_copy()


def changed_options() -> dict[str, object]:
    """Return the Inductor options that this process has changed."""
    defaults = _inductor("config")._config
    return {n: value for n, value in option_values().items() if value != defaults[n].default}


def implied_options(values: Mapping[str, object]) -> frozenset[str]:
    """Return the options that cannot change a compile with these values: others fix them."""
    return implied(_inductor("config"), values)


def compile_lock() -> AbstractContextManager[object]:
    """Return the re-entrant lock under which Dynamo and Inductor compile."""
    return importlib.import_module("torch._dynamo.convert_frame").compile_lock


def let_fall_back(operator: Callable[..., object]) -> None:
    """Let Inductor call an operator without a lowering, even if it could decompose it."""
    lowering = _inductor("lowering")
    if operator not in lowering.lowerings:
        lowering.make_fallback(operator, warn=False, override_decomp=True)


def is_pattern_pass(owner: object) -> bool:
    """Return whether `owner` is a table of Inductor patterns."""
    return isinstance(owner, _inductor("pattern_matcher").PatternMatcherPass)


def is_lowering_entry(entry: object) -> bool:
    """Return whether a pattern's replacement is a node that only Inductor can run."""
    return isinstance(entry, _inductor("pattern_matcher").LoweringPatternEntry)


def is_handler_entry(entry: object) -> bool:
    """Return whether a pattern runs a handler, which may decline."""
    return isinstance(entry, _inductor("pattern_matcher").GraphPatternEntry)


def no_match(reason: str) -> object:
    """Return the result of a pattern's failed match."""
    return _inductor("pattern_matcher").FailedMatch(reason)


def is_true(check: object) -> bool:
    """Return whether a pattern's check accepts, as Inductor reads it: unknown symbols mean no."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return bool(guard_or_false(cast(Any, check)))


def mode_names() -> frozenset[str]:
    """Return the names of the modes of torch.compile with Inductor."""
    return frozenset(importlib.import_module("torch._inductor").list_mode_options())


def records_cuda_graphs() -> bool:
    """Return whether the compile at hand ends in CUDA graphs."""
    return torch.cuda.is_initialized() and bool(_inductor("config").triton.cudagraphs)


def ddp_bucket_megabytes() -> float:
    """Return the size of the buckets that DDP asks a compiler to reduce at once; 0: none.

    DDP's Python reducer sets it in the options of Inductor.
    """
    config = _inductor("config")
    return float(config._fuse_ddp_bucket_size) if config._fuse_ddp_communication else 0.0


def donated_inputs() -> frozenset[int]:
    """Return the inputs of the graph at hand whose memory Inductor may reuse."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return frozenset(getattr(metadata, "bw_donated_idxs", None) or ())


def generated_source(compiled: object) -> str | None:
    """Return the source that Inductor generated for a graph, if it did."""
    source = getattr(compiled, "source_code", None)
    return source if isinstance(source, str) else None


def wrap_compiled(compiled: Any, wrap: Callable[[Boxed], Boxed]) -> Any:
    """Return `compiled` with its boxed call wrapped; Inductor's object keeps its identity."""
    if callable(getattr(compiled, "current_callable", None)):
        compiled.current_callable = wrap(compiled.current_callable)
        return compiled
    return boxed(wrap(compiled)) if getattr(compiled, "_boxed_call", False) else compiled


def cpp_compiler() -> str | None:
    """Return the C++ compiler that Inductor would call, or None when it finds none.

    Inductor raises `torch._inductor.exc.InvalidCxxCompiler` then, a `RuntimeError`.
    """
    try:
        return _inductor("cpp_builder").get_cpp_compiler()
    except RuntimeError:
        return None


def preload_compiler(*, inductor: bool) -> None:
    """Import the modules of any compile without running an op, for forked children to share.

    `inductor` also imports Inductor and its CPU code generation.
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


def compiler_threads() -> frozenset[Thread]:
    """Return the threads that Inductor keeps for compiles; without one, each waits for work.

    Source: `torch._inductor.async_compile.AsyncCompile.pool`, made by the first compile with
    several threads, of which a forked process has none.
    """
    module: Any = sys.modules.get("torch._inductor.async_compile")
    if module is None or not module.AsyncCompile.pool.cache_info().currsize:
        return frozenset()
    return frozenset(module.AsyncCompile.pool()._threads)


def compile_without_threads() -> None:
    """Let Inductor compile in the calling thread from now on, as a forked process has to."""
    _inductor("config").compile_threads = 1


def torch_bisector() -> Callable[[Callable[[], bool]], Any]:
    """Return torch's own bisector, which calls a test again and again."""
    return _inductor("compiler_bisector").CompilerBisector.do_bisect


def cache_folder() -> str:
    """Return the folder that Inductor keeps compiled code in, for all programs of this user.

    Source: `torch._inductor.runtime.cache_dir_utils` (2.5 to 2.13).
    """
    utils = _inductor("runtime.cache_dir_utils")
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or utils.default_cache_dir()


def write_aot_package(
    program: torch.export.ExportedProgram, path: str, options: Mapping[str, object] | None = None
) -> None:
    """Compile an exported program into Inductor's package."""
    configs = dict(options or {})
    torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=configs)


def load_aot_package(path: str) -> Callable[..., Any]:
    """Load Inductor's package."""
    return torch._inductor.aoti_load_package(path)


def share_constants(package: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Let a loaded package read and write tensors of the caller in place of its own constants.

    It keeps no reference to them. Names that it does not have are left out.
    """
    names = set(package.get_constant_fqns())
    shared = {name: tensor.detach() for name, tensor in tensors.items() if name in names}
    if shared:
        package.load_constants(shared, check_full_update=False, user_managed=True)


def outside_tracing() -> AbstractContextManager[object]:
    """Leave the compile of Dynamo inside the block: torch.export begins its own."""
    return torch._guards.tracing(None)


def cached_backend() -> Callable[..., Any]:
    """Return Inductor as a backend with its caches on."""
    _inductor("config").fx_graph_cache = True
    importlib.import_module("torch._functorch.config").enable_autograd_cache = True
    return _inductor("compile_fx").compile_fx
