"""The target `inductor`: torch's default backend, its own announcements turned into our events.

ONE observed compile reports every pass, pattern match, kernel and error. Inductor is called
directly as the Dynamo backend that it is; Dynamo does not run. Without an observer nothing is
wrapped.

The config is Inductor's options, named as in `torch.compile(options=...)`:
`{"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}`. Options that take a function also take
`MODULE:CALLABLE`. For comparability these are set unless the config has them:
`fallback_random=True` (random numbers as in eager; Inductor's own random lowering, the pass
`replace_random_passes`, needs `{"fallback_random": false}`), `fx_graph_cache=False` and
`fx_graph_remote_cache=False` (and AOTAutograd's cache is off), `compile_threads=1`. Nothing else
that decides which passes run is touched.

Events:
* Stages: captured, pre_grad, joint (also for inference), frozen (with `freezing`, before forward),
  forward, backward, lowered.
* A run of matches of one pattern is a pass called `family.rule`
  (`joint/fuse_attention._sfdp_pattern_2`); its matches are the rewrites. Other passes have
  Inductor's name for them, and their rewrites are read off their effect.
* A match that is vetoed stays vetoed: a sibling pattern of the family does not make the same
  rewrite in its place, nor does the same pattern in a later stage.
* A pass that Inductor does not announce has the name of its function (`steps`); any other change
  is a pass called `unannounced_before_NAME` or `unannounced_at_end`.
* Kernels are `lowered/inductor:forward` and `lowered/inductor:backward`, the whole graph: a vetoed
  one is interpreted. Parts of a kernel (lowerings, fusions, generated kernels, options) have ids
  of their own; see `lowering`.

Source: `torch/_inductor/compile_fx.py`, `pattern_matcher.py` and
`torch/fx/passes/graph_transform_observer.py` of torch 2.13 and 2.15. torch's own bisector
(`CompilerBisector`) asks about the same places, but recompiles once per question.
"""

from collections.abc import Sequence
from functools import partial

from torch.fx import GraphModule

from ctk.compiler.observe import ErrorRecord, Observer, StageRecord
from ctk.compiler.resilience import DISPATCH
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.process.settings import INDUCTOR
from ctk.repro_templates.graph.loading import registered_backend
from ctk.toolkit.targets.base import Compiled, Inputs, Options, Target, Trial
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.hooks import install_hooks
from ctk.toolkit.targets.inductor.kernels import observe_inner_compile
from ctk.toolkit.targets.inductor.lowering import SWITCHES
from ctk.toolkit.targets.inductor.options import (
    COMPARABLE,
    check_options,
    config_patches,
    options_of_process,
)
from ctk.toolkit.targets.inductor.snapshot import snapshot
from ctk.toolkit.targets.reporting import raise_innermost, report


def _of_code(option: str, value: object, *culprits: str, trace: str = "") -> Trial:
    return Trial(option, value, culprits, is_of_code=True, trace=trace)


TRIALS: tuple[Trial, ...] = (
    Trial("pattern_matcher", False, ("joint/", "frozen/", "forward/", "backward/")),
    Trial("joint_graph_constant_folding", False, ("joint/constant_fold",)),
    Trial("use_pre_grad_passes", False, ("pre_grad/",)),
    Trial("use_joint_graph_passes", False, ("joint/",)),
    Trial("use_post_grad_passes", False, ("forward/", "backward/")),
    Trial("freezing", False, ("frozen/",)),
    _of_code("epilogue_fusion", False, "lowered/fusion"),
    _of_code("prologue_fusion", False, "lowered/fusion"),
    _of_code("max_fusion_size", 1, "lowered/fusion"),
    *(_of_code(s.option, s.off, f"lowered/{s.name}", trace=s.trace) for s in SWITCHES),
    _of_code("emulate_precision_casts", True),
    _of_code("numerics", "strict"),
    _of_code("strict_signed_zero", True, trace="tl."),
    _of_code("strict_output_strides", True),
    Trial("fallback_random", True),
    _of_code("use_fast_math", False),
    _of_code("cpp.enable_unsafe_math_opt_flag", False),
    Trial("cpp.weight_prepack", False),
    _of_code("online_softmax", False),
    Trial("optimize_scatter_upon_const_tensor", False),
    _of_code("constant_and_index_propagation", False),
    Trial("reorder_for_locality", False, ("forward/reorder_for_locality",)),
    Trial("shape_padding", False),
)
"""Options that may matter to a failure, each at the value at which Inductor does less.

Not here: options that make a compile slow (`max_autotune`) or change random numbers; nor
`fallback_by_default`, with which nothing is lowered: bisection leaves out single lowerings.
"""


class Inductor(Target):
    """torch's own compiler."""

    name = "inductor"
    needs = ""
    takes_functions = True
    has_modes = True
    defaults = COMPARABLE
    settings = INDUCTOR
    lowerings = "lowered/lower.*"
    repro_backend = staticmethod(registered_backend)

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        """Compile one captured graph with Inductor.

        Args:
            observer: Gets the events, also those of a backward graph that is compiled at the first
                backward call.

        Raises:
            ConfigError: A config key or value that Inductor does not know.
            Exception: Inductor's own, unwrapped; with an observer its attribute `ctk_where` names
                the place.
        """
        patches = config_patches(config)
        compile_graph = partial(inductor.compile_graph, gm, example_inputs, config_patches=patches)
        if observer is None:
            with raise_innermost():
                return compile_graph(inner_compile=raise_innermost()(inductor.inner_compile()))
        compile_record = CompileRecord(observer)
        captured = snapshot(gm)
        observer.on_stage(StageRecord("captured", captured, tuple(example_inputs)))
        with raise_innermost(), install_hooks(compile_record):
            try:
                return compile_graph(inner_compile=observe_inner_compile(compile_record))
            except Exception as error:
                report(observer, ErrorRecord(error, "captured", graph=captured), where=DISPATCH)
                raise

    def check_config(self, config: Options) -> None:
        check_options(config)

    def preload(self) -> None:
        inductor.preload_compiler(inductor=True)

    def mode_options(self, mode: str) -> Options:
        return dynamo.inductor_mode_options(mode)

    def effective(self, config: Options) -> Options:
        """Return the options of a compile, with the options that the process has set."""
        return {**options_of_process(), **config}

    def native(self) -> Options:
        value = inductor.option_values()["fallback_random"]
        return {} if value == COMPARABLE["fallback_random"] else {"fallback_random": value}

    def freezes(self, config: Options) -> bool:
        return config.get("freezing", inductor.option_values()["freezing"]) is True

    def trials(self, config: Options) -> Sequence[Trial]:
        values = {**inductor.option_values(), **config_patches(config)}
        names = values.keys() - inductor.implied_options(values)
        return [t for t in TRIALS if t.option in names and values[t.option] != t.value]


TARGET = Inductor()
