"""Take the options of Inductor that a script or test has set into the config of a case.

    torch._inductor.config.freezing = True          ->  {"freezing": True}
    torch._inductor.config.trace.enabled = True     ->  nothing: it concerns one run

It does not take settings of Dynamo and functorch, which are restored.
"""

import logging
from collections.abc import Mapping

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.usercode.references import json_options
from ctk.toolkit.targets import resolve_target

logger = logging.getLogger("ctk")

NOISE = (
    "trace.",
    "compile_threads",
    "compile_worker",
    "fx_graph_cache",
    "fx_graph_remote_cache",
    "force_disable_caches",
)
"""Options that concern a machine or a run."""


def filter_savable(changed: Mapping[str, object], of: str) -> dict[str, object]:
    """Return the changed options of Inductor that a case can hold; log the others."""
    wanted = {key: value for key, value in changed.items() if not key.startswith(NOISE)}
    saved, lost = json_options(wanted)
    kept: dict[str, object] = {}
    for key, value in saved.items():
        try:
            resolve_target("inductor").check_config({key: value})
        except ConfigError:
            lost = [*lost, key]
        else:
            kept[key] = value
    if lost:
        logger.warning("ctk: options of %s that no case can hold: %s", of, ", ".join(lost))
    return kept
