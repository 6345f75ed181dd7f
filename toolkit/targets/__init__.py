"""Compilers under test: the targets of ctk, and every Dynamo backend.

Adding a target is one file with a `TARGET` and one line in `TARGETS`. Importing this package
loads no compiler.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from ctk.compiler.errors import TargetError, nearest
from ctk.toolkit.targets import ctk, torchscript
from ctk.toolkit.targets.base import Target, Traits
from ctk.toolkit.targets.inductor import target as inductor

TARGETS: tuple[Target, ...] = (ctk.TARGET, inductor.TARGET, torchscript.TARGET)
"""The targets that have a file of their own; other Dynamo backends go through `dynamo.py`."""

_RESOLVED = (*TARGETS, ctk.UNWATCHED)


def resolve_target(spec: str) -> Target:
    """Return the target that a spec names.

    Cases: 1. a name in `TARGETS`; 2. `MODULE:CALLABLE` or `path/to/file.py:callable`, a Dynamo
    backend; 3. the name of a registered Dynamo backend (`aot_eager`, `eager`, `tvm` …).

    Raises:
        TargetError: No such target, or it cannot be imported.
    """
    for target in _RESOLVED:
        if target.name == spec:
            return target
    from ctk.toolkit.targets import dynamo

    if ":" in spec:
        return dynamo.callable_target(spec)
    names = target_names()
    if spec in names:
        return dynamo.registered_target(spec)
    raise TargetError(
        f"unknown target {spec!r}{nearest(spec, names)}\n"
        f"known: {', '.join(names)}; or MODULE:CALLABLE, or path/to/file.py:callable"
    )


def traits_of(spec: str) -> Traits:
    """Return what is known of the target that a spec names; loads nothing, asks no registry."""
    from ctk.toolkit.targets import dynamo

    known = {target.name: target.traits for target in _RESOLVED}
    return known.get(spec) or dynamo.traits_of_backend(spec)


def capturing_for(spec: str, config: Mapping[str, object]) -> AbstractContextManager[object]:
    """Let Dynamo capture graphs as it does for a target with these options.

    Options that a program sets for its whole process (`torch._inductor.config.freezing`) also tell
    Dynamo what to do; those of `torch.compile(options=...)` do not.
    """
    from ctk.compiler.torch_compat.dynamo import dynamo_api as torch_dynamo

    freezes = traits_of(spec).freezes(config)
    return torch_dynamo.parameters_as_attributes() if freezes else nullcontext()


def target_names() -> tuple[str, ...]:
    """Return the names of all targets: ours first, then the Dynamo backends registered here."""
    from ctk.compiler.torch_compat.dynamo import dynamo_api as torch_dynamo

    ours = [target.name for target in TARGETS]
    registered = (n for n in torch_dynamo.backend_names() if n not in ours)
    return (*ours, *(name for name in registered if "TESTING_ONLY" not in name))
