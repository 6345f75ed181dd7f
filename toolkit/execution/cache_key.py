"""The key that a case's compile has in the persistent cache: nothing is compiled for it.

The case is captured as a compile would get it. It does not ask the guards on sizes that an
entry may have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch.fx import GraphModule

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.key import key_parts
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.errors import CaseError
from ctk.compiler.observe import Observer
from ctk.compiler.options.config import resolve
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_compiled
from ctk.toolkit.targets import resolve_target, traits_of


def key_of(case: Case) -> Key:
    """Return the key of the compile of a case.

    Raises:
        CaseError: It is for another compiler than ctk.
        Uncacheable: Its compile would not be kept.
    """
    if not traits_of(case.target).is_kept:
        raise CaseError(f"{case.name} is compiled with {case.target}; the cache is that of ctk")
    found: list[Key] = []

    def make_key(
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Callable[..., object]:
        options = resolve(config)
        passes = select_passes(PASSES, options, CODEGEN_OPTIONS)
        found.append(Key(key_parts(gm, example_inputs, options, passes)))
        return gm

    target = replace(resolve_target(case.target), compile=make_key)
    outcome = run_compiled(case, target=target, is_called=False)
    if outcome.error is not None:
        raise outcome.error
    return found[0]
