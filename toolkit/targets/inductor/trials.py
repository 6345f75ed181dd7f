"""Options of Inductor that may matter to a failure, each at the value at which Inductor does less.

Options that make a compile slow (`max_autotune`) or change random numbers are not here; nor is
`fallback_by_default`, with which nothing is lowered: bisection leaves out single lowerings.
"""

from collections.abc import Mapping, Sequence

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.targets.base import Trial
from ctk.toolkit.targets.inductor.options import config_patches
from ctk.toolkit.targets.inductor.switches import SWITCHES


def _of_code(option: str, value: object, *culprits: str, trace: str = "") -> Trial:
    return Trial(option, value, culprits, is_of_code=True, trace=trace)


_OFF: tuple[Trial, ...] = (
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


def trials(config: Mapping[str, object]) -> Sequence[Trial]:
    """Return the rows of the table that this torch knows and whose value the config lacks."""
    known, patches = inductor.known_options(), config_patches(config)

    def is_other(trial: Trial) -> bool:
        default = known[trial.option][0]
        return patches.get(trial.option, default) != trial.value

    return [trial for trial in _OFF if trial.option in known and is_other(trial)]
