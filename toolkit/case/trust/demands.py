"""The demands of a case: code to run, modules to import, options with effects outside the process.

Computed from the names in a case alone, without running anything:

    demands_of(Words("my.py:backend", {}))     # one: runs the target 'my.py:backend'
    demands_of(Words("inductor", {"cpp.cxx": "evil"}))
                                               # one: sets option 'cpp.cxx' of inductor to 'evil'
    demands_of(Words("inductor", {"max_autotune": True}))   # none

A case without demands is safe to judge: it reaches torch's operators and compilers only.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from ctk.toolkit.case.formats.plain_text import quote_value, words
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.trust import ctk_options, inductor_options

_WITHOUT_OPTIONS = words("""
    export eager eager_noexcept eager_debug pre_dispatch_eager invoke_subgraph torchscript aot_eager
    aot_eager_decomp_partition aot_eager_decomp_partition_crossref
    aot_eager_decomp_partition_with_mode aot_eager_default_partitioner aot_ts ts cudagraphs
""")

HARMLESS: Mapping[str, Callable[[str, object], bool] | None] = {
    "ctk": ctk_options.is_harmless,
    "inductor": inductor_options.is_harmless,
    "aot_inductor": inductor_options.is_harmless,
    **dict.fromkeys(_WITHOUT_OPTIONS),
}
"""The targets that need no trust, and whether an option may have a value without trust; None: none.

Torch's own, by an explicit list. Any other target needs trust: `tvm` and `openxla` import packages,
the `dynamo_minifier` backends write files, and a name may come from any installed package.
"""

TORCH_NAMESPACES = frozenset(
    words("""
    _c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native _quantized aten
    c10d_functional debugprims export flex_gemm flex_lib fsdp higher_order inductor inductor_prims
    mkl mkldnn mkldnn_prepacked onednn prim prims quantization quantized quantized_decomposed
    rngprims sparse static_runtime streams torch_nn
    """)
)
"""The namespaces of operators that torch itself registers."""

DemandKind = Literal["target", "pass", "option", "import", "call"]

_VERBS: Mapping[DemandKind, str] = {
    "target": "runs the target",
    "pass": "runs the pass",
    "option": "sets the option",
    "import": "imports the module",
    "call": "calls the function",
}


@document
@dataclass(frozen=True, slots=True)
class Demand:
    """An action that needs trust.

    Attributes:
        name: Of its object in the case, escaped and cut to a line.
    """

    kind: DemandKind
    name: str
    where: str

    def __str__(self) -> str:
        return f"{_VERBS[self.kind]} {self.name} ({self.where})"


@dataclass(frozen=True, slots=True)
class CodeNames:
    """The names in a case that can refer to code.

    Attributes:
        calls: Names of the functions that the graph calls.
    """

    target: str
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    imports: tuple[str, ...] = ()
    calls: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class UserOverrides:
    """Target and options from the user, which replace those of a case and need no trust.

    Attributes:
        target: Replaces the case's target; a different target drops the case's options.
        config: Replaces the options of these names.
    """

    target: str | None = None
    config: Mapping[str, object] | None = None


NO_OVERRIDES = UserOverrides()


def demands_of(
    words: CodeNames,
    given: UserOverrides = NO_OVERRIDES,
    *,
    allow_imports: Collection[str] = (),
    aliases: Collection[str] = (),
) -> tuple[Demand, ...]:
    """Return the demands of a case; empty for a harmless case.

    Args:
        allow_imports: Modules whose functions and operators the case may use.
        aliases: Other names of the case's target: its copy in the folder.
    """
    demands: list[Demand] = []
    if given.target is None and words.target not in HARMLESS:
        demands.append(Demand("target", quote_value(words.target), "manifest.json: target"))
    if given.target in (None, words.target, *aliases):  # another target drops the case's options
        own = {key: each for key, each in words.config.items() if key not in (given.config or {})}
        demands += _of_config(words.target, own)
    imports = (name for name in words.imports if name not in allow_imports)
    demands += [Demand("import", quote_value(name), "manifest.json: imports") for name in imports]
    calls = [name for name in words.calls if not is_torch_name(name)]
    left = dict.fromkeys(name for name in calls if not _is_allowed(name, allow_imports))
    return (*demands, *(Demand("call", quote_value(name), "graph.json") for name in left))


def _is_allowed(name: str, allow_imports: Collection[str]) -> bool:
    """Return whether a call is allowed: by its module, or as an operator of any allowed module."""
    return name.partition(":")[0] in allow_imports if ":" in name else bool(allow_imports)


def is_torch_name(name: str) -> bool:
    """Return whether a name in a graph refers to a function of torch or Python.

    `torch.ops.<namespace>...` counts by its namespace; `graphs` decides which calls are allowed.
    """
    found = None if ":" in name else re.match(r"torch\.ops\.([^.]*)", name)
    return ":" not in name and (found is None or found[1] in TORCH_NAMESPACES)


def _of_config(target: str, config: Mapping[str, object]) -> Iterator[Demand]:
    is_harmless = HARMLESS.get(target)
    for key, value in config.items():
        if is_harmless is not None and is_harmless(key, value):
            continue
        where = f"manifest.json: config of {quote_value(target)}"
        passes = list(_passes(value)) if key == "custom_passes" else []
        yield from (Demand("pass", quote_value(each), where) for each in passes)
        if not passes:
            yield Demand("option", f"{quote_value(key)} to {quote_value(value)}", where)


def _passes(value: object) -> Iterable[object]:
    """Yield the passes of a `custom_passes`; nothing if it is not a table."""
    slots = cast("Mapping[object, object]", value) if isinstance(value, dict) else {}
    for passes in slots.values():
        yield from cast("list[object]", passes) if isinstance(passes, list | tuple) else [passes]
