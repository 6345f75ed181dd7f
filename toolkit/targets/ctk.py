"""The target `ctk`: our own pipeline, observed without any adapter."""

from collections.abc import Callable, Mapping, Sequence

from torch.fx import GraphModule

from ctk.compiler.config import resolve
from ctk.compiler.observe import Observer
from ctk.toolkit.targets.base import Target


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config: Mapping[str, object],
    observer: Observer | None,
) -> Callable[..., object]:
    from ctk.compiler.pipeline import compile_fx  # loads torch's compiler parts

    return compile_fx(gm, example_inputs, resolve(config), observer)


def _check_config(config: Mapping[str, object]) -> None:
    """Raise `ConfigError` for an option that `Config` does not take, an unknown generator, or a
    lost pass."""
    from ctk.compiler.codegen.select import generators
    from ctk.compiler.rewriting.user_passes import resolve_pass

    options = resolve(config)
    generators(options)
    for entries in options.custom_passes.values():
        for entry in entries:
            resolve_pass(entry)


TARGET = Target("ctk", _compile, _check_config, needs=("compiler",))
