"""Inductor's options and modes in the words of ctk.

    {"coordinate_descent_tuning": True, "shape_padding": False}
        -> {"triton.autotune": True, "pad_mm.enabled": "never"}

An option with the same meaning is translated. One whose value is the fixed behaviour of ctk is
accepted with that value only. The others are refused by a sentence that names the counterpart
(`inductor_groups.py`), so that none is ignored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ctk.compiler.errors import ConfigError, any_of, nearest, not_taken
from ctk.compiler.options.choices import PassSlot
from ctk.compiler.options.inductor_groups import GROUPS
from ctk.compiler.usercode.pass_argument import argument_kind

if TYPE_CHECKING:
    from torch.fx import Graph

Changes = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Taken:
    """An option that ctk takes.

    Attributes:
        values: Each value that it takes, with the options of ctk that it stands for: none if ctk
            does so anyway.
        otherwise: Options of ctk that serve the purpose of other values.
    """

    values: Sequence[tuple[object, Changes]]
    otherwise: str = ""

    def changes(self, name: str, value: object) -> Changes:
        """Return the options of ctk for a value.

        Raises:
            ConfigError: The value is not taken.
        """
        for known, changes in self.values:
            if type(value) is type(known) and value == known:
                return changes
        allowed = any_of([known for known, _ in self.values])
        hint = f"; {self.otherwise}" if self.otherwise else ""
        raise not_taken(f"Inductor's option {name}", value, allowed, hint)


@dataclass(frozen=True, slots=True)
class Renamed:
    """An option whose numbers ctk takes as its own `option`; None leaves that as it is.

    Attributes:
        values: Examples.
    """

    option: str
    values: Sequence[tuple[object, Changes]]

    def changes(self, name: str, value: object) -> Changes:
        """Return the option of ctk with a value."""
        return {} if value is None else {self.option: value}


def _number(option: str, example: int) -> Renamed:
    return Renamed(option, [(example, {option: example}), (None, {})])


def _switch(name: str, on: object = True, off: object = False) -> Taken:
    return Taken([(True, {name: on}), (False, {name: off})])


def _always(*passes: str) -> Taken:
    disabled = ", ".join(f'"{name}"' for name in passes)
    return Taken([(True, {})], f"disable=[{disabled}] leaves it out")


_EXACT: Changes = {"kernels.exact": True}

TAKEN: Mapping[str, Taken | Renamed] = {
    "freezing_discard_parameters": _switch("freezing_discard"),
    "fx_graph_cache": _switch("cache"),
    "force_disable_caches": Taken([(True, {"cache": False}), (False, {})]),
    "max_autotune": Taken(
        [
            (True, {"triton.autotune": True, "tune_products.enabled": "tune"}),
            (False, {"triton.autotune": False}),
        ]
    ),
    "max_autotune_pointwise": _switch("triton.autotune"),
    "coordinate_descent_tuning": _switch("triton.autotune"),
    "shape_padding": _switch("pad_mm.enabled", "auto", "never"),
    "force_shape_pad": Taken([(True, {"pad_mm.enabled": "always"}), (False, {})]),
    "deterministic": Taken(
        [
            (
                True,
                {
                    "triton.autotune": False,
                    "pad_mm.enabled": "never",
                    "tune_products.enabled": "never",
                },
            ),
            (False, {}),
        ]
    ),
    "decompose_mem_bound_mm": _switch("decompose_products.enabled", "auto", "never"),
    "apply_gumbel_max_trick": _switch("sample_by_gumbel_max.enabled"),
    "batch_fusion": Taken(
        [(True, {}), (False, {"batch_linears.enabled": False, "batch_parallel.enabled": False})]
    ),
    "fallback_random": _switch("replace_random.enabled", on=False, off=True),
    "fallback_by_default": Taken([(True, {"codegen": "eager"}), (False, {})]),
    "implicit_fallbacks": Taken([(True, {})], "an operator without a kernel is a call of eager"),
    "emulate_precision_casts": Taken([(True, _EXACT), (False, {})]),
    "numerics": Taken(
        [
            ("default", {}),
            ("strict", _EXACT),
            ("strict_pointwise", _EXACT),
            ("strict_reduction", _EXACT),
        ]
    ),
    "epilogue_fusion": _always("fuse"),
    "inplace_buffers": _always("plan_memory"),
    "allow_buffer_reuse": _always("plan_memory"),
    "pattern_matcher": _always("*"),
    "use_pre_grad_passes": _always("*"),
    "use_joint_graph_passes": _always("*"),
    "use_post_grad_passes": _always("*"),
    "use_dce": _always("eliminate_dead_code"),
    "joint_graph_constant_folding": _always("fold_uniform_values", "fold_constants"),
    "layout_optimization": _always("to_channels_last"),
    "reorder_for_locality": _always("order_for_locality"),
    "permute_fusion": _always("fuse_permute"),
    "split_cat_fx_passes": _always("simplify_torch_split_cat", "simplify_split_cat"),
    "optimize_scatter_upon_const_tensor": _always("scatter_to_where"),
    "bucket_all_gathers_fx": Taken(
        [("all", {"bucket_gathers.enabled": True}), ("none", {"bucket_gathers.enabled": False})]
    ),
    "reorder_for_compute_comm_overlap": _switch("overlap_collectives.enabled"),
    "efficient_conv_bn_eval_fx_passes": _always("fold_conv_batch_norm"),
    "enable_linear_binary_folding": _always("fold_binary"),
    "auto_chunker.enable": _switch("chunk_losses.enabled"),
    "auto_chunker.num_chunk": _number("chunk_losses.chunks", 4),
    "auto_chunker.output_size_threshold": _number("chunk_losses.min_nbytes", 2**20),
    "auto_chunker.amplify_ratio_threshold": _number("chunk_losses.min_ratio", 8),
    "cpp.enable_concat_linear": _always("concat_linear"),
    "cpp.weight_prepack": _always("prepack_linear", "prepack_convolution"),
}
"""Options with the same meaning; `freezing` has the same name in both.

If several stand for one option of ctk, the last one decides whose value is not False.
"""

SLOTS: Mapping[str, PassSlot] = {
    "pre_grad_custom_pass": "pre_grad",
    "joint_custom_pre_pass": "before_joint",
    "joint_custom_post_pass": "joint",
    "post_grad_custom_pre_pass": "before_post_grad",
    "post_grad_custom_post_pass": "post_grad",
}
"""Options that hold passes of the user, and their slots in `custom_passes`."""

REFUSED: Mapping[str, str] = {name: group.counterpart for group in GROUPS for name in group}

CUDA_GRAPHS = "triton.cudagraphs"

MODES: Mapping[str, Changes] = {
    "default": {},
    "reduce-overhead": {CUDA_GRAPHS: True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
    "max-autotune": {"max_autotune": True, CUDA_GRAPHS: True},
    "lite": {"codegen": "eager", "disable": ("*",)},
}
"""The `mode=` of torch.compile as options."""

_PLACES = {name: place for place, name in enumerate(TAKEN)}

NAMES = frozenset((*TAKEN, *SLOTS, *REFUSED, CUDA_GRAPHS))


class GraphPass:
    """A pass of the user that takes a `Graph`, as Inductor's do, and does not declare it."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.__name__: str = getattr(function, "__name__", type(function).__name__)

    def __call__(self, graph: "Graph") -> object:
        return self.function(graph)


def nearest_option(name: str, own: Iterable[str]) -> str:
    """Return a hint at the nearest option: one of `own`, else one of Inductor."""
    return nearest(name, own) or nearest(name, NAMES, cutoff=0.75)


def mode_options(mode: str | None) -> Changes:
    """Return the options of a mode of torch.compile.

    Raises:
        ConfigError: The mode is unknown; the message lists the modes.
    """
    if mode is not None and mode not in MODES:
        raise not_taken("mode", mode, any_of(MODES), nearest(mode, MODES))
    return translate(MODES[mode or "default"])


def translate(changes: Changes) -> dict[str, object]:
    """Return changes of a `Config` with the options of Inductor in the words of ctk.

    An option of ctk wins over the translation of one of Inductor.

    Raises:
        ConfigError: ctk does not take an option of Inductor, or not its value.
    """
    own = {name: value for name, value in changes.items() if name not in NAMES}
    translated: dict[str, object] = {}
    passes: dict[PassSlot, tuple[object, ...]] = {}
    for name in sorted(changes.keys() & NAMES, key=lambda name: _precedence(name, changes[name])):
        if name in SLOTS:
            passes[SLOTS[name]] = _passes(changes[name])
        else:
            translated |= _translate(name, changes[name])
    if passes:
        own["custom_passes"] = {**passes, **cast("Changes", own.get("custom_passes", {}))}
    return {**translated, **own}


def _precedence(name: str, value: object) -> tuple[bool, int, str]:
    """Return the place of an option in the order in which they are translated."""
    return value is not False, _PLACES.get(name, 0), name


def _translate(name: str, value: object) -> Changes:
    if name in REFUSED:
        raise ConfigError(f"ctk has no option {name!r}, which is Inductor's: {REFUSED[name]}")
    if name == CUDA_GRAPHS:
        import torch

        # Inductor's option does nothing without a device, and that of ctk is refused there.
        on = {"kernels.cuda_graphs": True} if torch.cuda.is_available() else {}
        taken = Taken([(True, on), (False, {"kernels.cuda_graphs": False})])
    else:
        taken = TAKEN[name]
    return taken.changes(name, value)


def _passes(value: object) -> tuple[object, ...]:
    """Return the passes of an option of Inductor: none, one, or several."""
    given = cast("Iterable[object]", value if isinstance(value, (list, tuple)) else (value,))
    return tuple(_with_graph(each) for each in given if each is not None)


def _with_graph(entry: object) -> object:
    if not callable(entry) or argument_kind(entry) == "graph":
        return entry
    return GraphPass(entry)
