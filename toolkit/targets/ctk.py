"""The target `ctk`: our own pipeline, observed without any adapter.

It never reads the persistent cache: a question is about a new compile. The target `ctk-unwatched`
is the pipeline as programs use it, with cached graphs, which no observer can watch.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.compiler.options.config import resolve
from ctk.compiler.options.inductor_options import mode_options
from ctk.repro_templates.graph.loading import CannotTell
from ctk.toolkit.targets.base import Compiled, Inputs, Options, Target, Trial

EAGERS_DRAWS = {f"{place}replace_random.enabled": False for place in ("", "joint/")}
"""Options with which a compile can be compared with eager: other random numbers would be a failure
of every program that draws."""


def ctk_backend(target: str, folder: Path) -> Callable[..., Any]:
    """Return the compiler under test."""
    try:
        from ctk.compiler.backend import ctk
    except ImportError as error:
        raise CannotTell(f"the target {target} is missing (pip install ctk): {error}") from error
    return ctk


class Ctk(Target):
    """The pipeline of ctk.

    Args:
        is_watched: False: as programs use it, with the persistent cache and without an observer.
    """

    profiles_on_gpu = True
    is_kept = True
    lowerings = "lowered/*"
    is_quick = True
    has_modes = True
    forced = MappingProxyType({"on_failure": "raise"})  # its own fallback would hide failures
    repro_backend = staticmethod(ctk_backend)

    def __init__(self, name: str, *, is_watched: bool) -> None:
        self.name, self._is_watched = name, is_watched

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        from ctk.compiler.pipeline import compile_fx  # loads torch's compiler parts

        if not self._is_watched:
            return compile_fx(gm, example_inputs, config)
        options = resolve(config).patch(EAGERS_DRAWS, cache=False)  # each question compiles again
        return compile_fx(gm, example_inputs, options, observer)

    def check_config(self, config: Options) -> None:
        """Raise `ConfigError` for an unknown option, pass, generator or decomposition."""
        from ctk.compiler.codegen import CODEGEN_OPTIONS
        from ctk.compiler.codegen.select import generators
        from ctk.compiler.dispatch.decomposition_table import decomposition_table
        from ctk.compiler.passes import PASSES
        from ctk.compiler.rewriting.stage_passes import select_passes

        options = resolve(config)
        generators(options)
        decomposition_table(options.decompositions)
        select_passes(PASSES, options, CODEGEN_OPTIONS)

    def mode_options(self, mode: str) -> Options:
        return mode_options(mode)

    def effective(self, config: Options) -> Options:
        return resolve(config).differences()

    def decide(self, config: Options) -> Options:
        """Return a config whose passes that measure products have this process's decisions."""
        from ctk.compiler.passes.joint import pad_mm
        from ctk.compiler.passes.joint.products import measurements
        from ctk.compiler.passes.post_grad import tune_products
        from ctk.compiler.rewriting.options import set_options

        given = resolve(config).passes
        decided = dict(config)
        for each in (pad_mm.PASS, tune_products.PASS):
            step = set_options(each, each.name, given.get(each.name, {}))
            told = {decision.removeprefix("-") for decision in step.decisions}
            new = [
                key if gained >= step.min_speedup else f"-{key}"
                for key, gained in measurements(each.name).items()
                if key not in told
            ]
            if new:
                decided[f"{each.name}.decisions"] = [*step.decisions, *new]
        return decided

    def passes(self, config: Options) -> Sequence[str]:
        """Return every pass that runs with a config, the user's own too."""
        from ctk.compiler.codegen import CODEGEN_OPTIONS
        from ctk.compiler.passes import PASSES
        from ctk.compiler.rewriting.stage_passes import running_passes

        return running_passes(PASSES, resolve(config), CODEGEN_OPTIONS)

    def configured_passes(self, config: Options) -> Collection[str]:
        from ctk.compiler.rewriting.user_passes import resolve_pass

        options = resolve(config)
        entries = [entry for slot in options.custom_passes.values() for entry in slot]
        named = {name.rpartition("/")[2] for name in options.passes}
        return named | {resolve_pass(entry).name for entry in entries}

    def spell_disable(self, names: Sequence[str]) -> str:
        from ctk.compiler.rewriting.stage_passes import PARTITION, SLOTS

        pairs = [name.partition("/")[::2] for name in names]
        are_passes = all(stage in SLOTS and name != PARTITION.name for stage, name in pairs)
        return f"CTK_DISABLE={quote(','.join(names))}" if names and are_passes else ""

    def trials(self, config: Options) -> Sequence[Trial]:
        """Return every other generator, and the switches at their other value.

        `disable` and `fuel` are left to the bisection.
        """
        from ctk.compiler.codegen import CODEGENS

        options = resolve(config)
        others = [Trial("codegen", each.name) for each in CODEGENS if each.name != options.codegen]
        freezing = Trial("freezing", not options.freezing)
        return (*others, freezing, Trial("verify", not options.verify))


TARGET = Ctk("ctk", is_watched=True)
UNWATCHED = Ctk("ctk-unwatched", is_watched=False)
