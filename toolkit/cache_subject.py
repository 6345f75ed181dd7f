"""The operation `cache` on a program: whether its graphs are in the cache, and why not.

Each graph is captured as a compile would get it, and its key is made; nothing is compiled. What it
does not do: ask the guards on sizes that an entry may have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch.fx import GraphModule

from ctk.compiler.artifacts.entry import Key
from ctk.compiler.artifacts.key import key_parts
from ctk.compiler.artifacts.store import Store
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.config import resolve
from ctk.compiler.errors import CaseError, Uncacheable
from ctk.compiler.observe import Observer, first_line
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.toolkit.cache import Explanation, compared
from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import load_subject
from ctk.toolkit.importers.base import CaseOptions, request_of
from ctk.toolkit.run.execute import run_compiled
from ctk.toolkit.targets import resolve_target


def explain_subject(store: Store, subject: Path, *, trust: bool) -> list[Explanation]:
    """Return for each graph of a case or program whether it is in the cache, and why not.

    Raises:
        CtkError: It cannot be loaded or captured, or is for another compiler than ctk.
    """
    loaded = load_subject(subject, None, request_of({"trust": trust}, CaseOptions))
    if loaded.uncaptured is not None:
        raise loaded.uncaptured
    found: list[Explanation] = []
    for case in loaded.cases:
        try:
            found.append(compared(store, key_of(case), None))
        except Uncacheable as error:
            found.append(Explanation("", None, is_kept=False, refusal=first_line(error)))
    return found


def key_of(case: Case) -> Key:
    """Return the key of the compile of a case.

    Raises:
        CaseError: It is for another compiler than ctk.
        Uncacheable: Its compile would not be kept.
    """
    if case.target != "ctk":
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

    target = replace(resolve_target("ctk"), compile=make_key)
    outcome = run_compiled(case, target=target, is_called=False)
    if outcome.error is not None:
        raise outcome.error
    return found[0]
