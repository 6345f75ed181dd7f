"""The target `ctk`: our own pipeline, observed without any adapter.

A question is asked about a compile of now. What the persistent cache has instead is asked about
with the target `ctk-unwatched`: the pipeline as programs use it, which nobody can watch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.compiler.options.config import resolve
from ctk.repro_templates.graph.loading import CannotTell
from ctk.toolkit.targets.base import Target, Traits, Trial

EAGERS_DRAWS = {f"{place}replace_random.enabled": False for place in ("", "joint/")}
"""Options with which a compile can be compared with eager: other random numbers would be a failure
of every program that draws."""


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config: Mapping[str, object],
    observer: Observer | None,
) -> Callable[..., object]:
    from ctk.compiler.pipeline import compile_fx  # loads torch's compiler parts

    options = resolve(config).patch(EAGERS_DRAWS, cache=False)  # a question is asked anew
    return compile_fx(gm, example_inputs, options, observer)


def _compile_unwatched(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config: Mapping[str, object],
    observer: Observer | None,
) -> Callable[..., object]:
    from ctk.compiler.pipeline import compile_fx

    return compile_fx(gm, example_inputs, config)


def _check_config(config: Mapping[str, object]) -> None:
    """Raise `ConfigError` for an option that nobody takes, or names what is unknown."""
    from ctk.compiler.codegen import CODEGEN_OPTIONS
    from ctk.compiler.codegen.select import generators
    from ctk.compiler.dispatch.decomposition_table import decomposition_table
    from ctk.compiler.passes import PASSES
    from ctk.compiler.rewriting.stage_passes import select_passes

    options = resolve(config)
    generators(options)
    decomposition_table(options.decompositions)
    select_passes(PASSES, options, CODEGEN_OPTIONS)


def _trials(config: Mapping[str, object]) -> Sequence[Trial]:
    """Return every other generator, and the options that are on or off the other way round.

    `disable` and `fuel` are what a bisection asks about anyway.
    """
    from ctk.compiler.codegen import CODEGENS

    options = resolve(config)
    others = [Trial("codegen", each.name) for each in CODEGENS if each.name != options.codegen]
    freezing = Trial("freezing", not options.freezing)
    return (*others, freezing, Trial("verify", not options.verify))


def _passes(config: Mapping[str, object]) -> Sequence[str]:
    """Return every pass that runs with a config, the user's own too."""
    from ctk.compiler.passes import PASSES
    from ctk.compiler.rewriting.stage_passes import running_passes

    return running_passes(PASSES, resolve(config))


def _decided(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return a config in which `pad_mm.decisions` says what this process has measured."""
    from ctk.compiler.passes.joint.pad_mm import PASS
    from ctk.compiler.passes.joint.products import measured
    from ctk.compiler.rewriting.options import set_options

    known = measured()
    if not known:
        return config
    given = resolve(config).passes.get(PASS.name, {})
    step = set_options(PASS, PASS.name, given)
    told = {each.removeprefix("-") for each in step.decisions}
    new = [
        key if gained >= step.min_speedup else f"-{key}"
        for key, gained in known.items()
        if key not in told
    ]
    return {**config, f"{PASS.name}.decisions": [*step.decisions, *new]}


def ctk_backend(target: str, folder: Path) -> Callable[..., Any]:
    """Return the compiler under test."""
    try:
        from ctk.compiler.backend import ctk
    except ImportError as error:
        raise CannotTell(f"the target {target} is missing (pip install ctk): {error}") from error
    return ctk


TARGET = Target(
    "ctk",
    _compile,
    _check_config,
    Traits(
        repro_backend=ctk_backend,
        effective=lambda config: resolve(config).differences(),
        profiles_on_gpu=True,
        decided=_decided,
        # its own fallback would hide what is looked for
        forced={"on_failure": "raise"},
        disable_variable="CTK_DISABLE",
        is_kept=True,
        is_quick=True,
        passes=_passes,
        trials=_trials,
    ),
)

UNWATCHED = replace(TARGET, name="ctk-unwatched", compile=_compile_unwatched)
