"""Compilers under test: the targets of ctk, and every Dynamo backend.

Adding a target is one file with a `TARGET` and one line in `TARGETS`. Importing this package
loads no compiler.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from ctk.compiler.errors import ExportRefused, TargetError, nearest
from ctk.toolkit.case.case import Case
from ctk.toolkit.targets import aot_inductor, ctk, torchscript
from ctk.toolkit.targets.base import Target
from ctk.toolkit.targets.inductor import target as inductor

TARGETS: tuple[Target, ...] = (
    ctk.TARGET,
    inductor.TARGET,
    torchscript.TARGET,
    aot_inductor.TARGET,
)
"""The targets that have a file of their own; other Dynamo backends go through `dynamo.py`."""

_RESOLVED = (*TARGETS, ctk.UNWATCHED, aot_inductor.EXPORT)


def resolve_target(spec: str) -> Target:
    """Return the target that a spec names.

    Cases: 1. a name in `TARGETS`; 2. `MODULE:CALLABLE` or `path/to/file.py:callable`, a Dynamo
    backend; 3. the name of a registered Dynamo backend (`aot_eager`, `eager`, `tvm` …).

    Raises:
        TargetError: No such target, or it cannot be imported.
    """
    target = _own_target(spec)
    if target is not None:
        return target
    from ctk.toolkit.targets import dynamo

    if ":" in spec:
        return dynamo.callable_target(spec)
    names = target_names()
    if spec in names:
        return dynamo.find_registered_target(spec)
    raise TargetError(
        f"unknown target {spec!r}{nearest(spec, names)}\n"
        f"known: {', '.join(names)}; or MODULE:CALLABLE, or path/to/file.py:callable"
    )


def target_of(spec: str) -> Target:
    """Return the target that a spec names without loading it; an unknown name is a backend's."""
    from ctk.toolkit.targets import dynamo

    return _own_target(spec) or dynamo.BackendTarget(spec)


def record_decisions(case: Case) -> Case:
    """Return a case whose config holds the decisions that its target measured in this process.

    A bisection, its children and the repro then decide as the failing compile did, on any machine.
    """
    config = target_of(case.target).decide(case.config)
    return case if config == case.config else replace(case, config=config)


def _own_target(spec: str) -> Target | None:
    return next((target for target in _RESOLVED if target.name == spec), None)


def capturing_for(spec: str, config: Mapping[str, object]) -> AbstractContextManager[object]:
    """Let Dynamo capture graphs as it does for a target with these options.

    Dynamo reads options of the whole process (`torch._inductor.config.freezing`), and ignores those
    of `torch.compile(options=...)`. An exported program records no gradients.
    """
    from ctk.compiler.torch_compat.dynamo import dynamo_api as torch_dynamo

    target = target_of(spec)
    if target.exports:
        return torch.no_grad()
    return torch_dynamo.parameters_as_attributes() if target.freezes(config) else nullcontext()


def refuse_gradients(spec: str) -> None:
    """Refuse the backward pass of a target that has none.

    Raises:
        ExportRefused: The target compiles exported programs.
    """
    if target_of(spec).exports:
        raise ExportRefused(
            f"target {spec} compiles no backward pass: a package has no gradients\n"
            "next: leave out --backward, or choose the target inductor"
        )


def target_names() -> tuple[str, ...]:
    """Return the names of all targets: ours first, then the Dynamo backends registered here."""
    from ctk.compiler.torch_compat.dynamo import dynamo_api as torch_dynamo

    ours = [target.name for target in TARGETS]
    registered = (n for n in torch_dynamo.backend_names() if n not in ours)
    return (*ours, *(name for name in registered if "TESTING_ONLY" not in name))
