"""Compute the key of a case in the persistent cache, without a compile.

It does not check the guards on sizes that an entry may have.
"""

from copy import copy

from torch.fx import GraphModule

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.key import key_parts
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.errors import TargetError
from ctk.compiler.observe import Observer
from ctk.compiler.options.config import resolve
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_compiled
from ctk.toolkit.targets import resolve_target, target_of
from ctk.toolkit.targets.base import Compiled, Inputs, Options


def compute_key(case: Case) -> Key:
    """Return the key of the compile of a case.

    Raises:
        TargetError: It is another compiler than ctk.
        Uncacheable: The cache would refuse its compile.
    """
    if not target_of(case.target).is_kept:
        raise TargetError(f"{case.name} is compiled with {case.target}; the cache is that of ctk")
    keys: list[Key] = []

    def make_key(
        gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        options = resolve(config)
        passes = select_passes(PASSES, options, CODEGEN_OPTIONS)
        keys.append(Key(key_parts(gm, example_inputs, options, passes)))
        return gm

    target = copy(resolve_target(case.target))
    target.compile = make_key
    outcome = run_compiled(case, target=target, is_called=False)
    if outcome.error is not None:
        raise outcome.error
    return keys[0]
