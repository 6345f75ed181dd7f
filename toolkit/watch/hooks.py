"""Watch compiles in a running program: `debug_compile`, `install`, and the environment's backend.

Three ways, by how much of the program may change:

* `torch.compile(model, backend=ctk.debug_compile("inductor"))`: one call.
* `ctk.install()` (and `ctk run SCRIPT`): every `torch.compile` that starts afterwards.
* `CTK_DUMP`, `CTK_CHECK` or `CTK_RING` in the environment: every compile of the backend `ctk`.

It does not watch functions that were wrapped by `torch.compile` before `install()`, or processes
that the program spawns (forked ones have the hooks; others need the variables, an `install()` of
their own, or `ctk run`, which installs the hooks in them: children.py).
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from torch.fx import GraphModule

from ctk.compiler.errors import ConfigError, TargetError
from ctk.compiler.installed_torch import missing_names_refused, warn_if_untested
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.process.process_state import start_autograd
from ctk.compiler.usercode.python_files import working_folder
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.references import json_options, reference_to, script_file
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.targets import TARGETS, resolve_target
from ctk.toolkit.targets.base import Compiled, Target
from ctk.toolkit.targets.dynamo import BackendTarget
from ctk.toolkit.watch.announce import Subject, describe_dumps
from ctk.toolkit.watch.watch_session import (
    InstallKeywords,
    WatchKeywords,
    WatchOptions,
    WatchSession,
    check_keywords,
    watch_options,
)
from ctk.toolkit.watch.watched_compile import compile_watched
from ctk.toolkit.watch.whole_call import is_in_copy, watch_calls

logger = logging.getLogger("ctk")

DynamoBackend = Callable[..., Compiled]
"""Called by Dynamo with a graph and example inputs; `options=` and `mode=` come from the user."""


def debug_compile(
    target: str | DynamoBackend = "ctk",
    *,
    config: Mapping[str, object] | None = None,
    instructions: bool = False,
    **options: Unpack[WatchKeywords],
) -> DynamoBackend:
    """Return a Dynamo backend that watches `target`: saves, dumps, checks, announces failures.

    >>> import ctk, torch
    >>> backend = ctk.debug_compile("inductor", check="output", dump="dumps")
    >>> torch.compile(torch.relu, backend=backend)(torch.ones(2))
    tensor([1., 1.])

    Args:
        target: A target spec, or any Dynamo backend.
        config: Options of the target; `torch.compile(options=...)` adds to them.
        instructions: Log the folder of the dumps and the next commands after the first graph, also
            where nothing fails.
        options: Any of these; a missing one takes its environment variable, then its default.
            `dump`: folder for the dumps (`CTK_DUMP`, default `ctk_dumps`).
            `check`: compare the first call of each graph with eager: `off`, `output`, or `pass`
            for every pass as well (`CTK_CHECK`, default `off`).
            `on_failure`: the effect of a failure on the program: `raise`, `fallback` to eager,
            `warn`, or `record`: none (`CTK_ON_FAILURE`, default `raise`).
            `inputs`: how a case saves inputs and weights: `recipe`, `full`, `none`, or `failing`:
            the values of a failing call if its recipe does not show the failure (`CTK_INPUTS`,
            default `recipe`).
            `quota`: limit of the dump folder, in bytes or as `500M` (`CTK_QUOTA`).
            `calls`: number of first calls to compare with eager end to end (default 1).
            `check_every`: compare every N-th call of each graph (`CTK_CHECK_EVERY`).
            `check_when`: compare a call whose results meet a condition (`CTK_CHECK_WHEN`).
            `ring`: number of last calls of each graph that are kept on disk (`CTK_RING`).

    Raises:
        ConfigError: An option is not allowed; the message lists the allowed ones.
        TargetError: The target is unknown, cannot be imported, or is not a backend.
        TypeError: An option is unknown; the message suggests the nearest.
    """
    check_keywords("debug_compile", options, "config", "instructions")
    if not isinstance(target, str) and not callable(target):
        raise TargetError(
            f"debug_compile: {type(target).__name__} {target!r} is not a target; name one, e.g. "
            "'inductor', or give a Dynamo backend: a function of a graph and example inputs"
        )
    session = WatchSession(watch_options(**options))
    if isinstance(target, str):
        resolved, importable = resolve_target(target), True
    else:
        resolved, importable = make_named_target(target)
    if config:
        resolved.check_config(config)
    backend = WatchedBackend(session, resolved, config or {}, importable, target, instructions)
    watch_calls(lambda one: session if _session_that_watches(one) is session else None, _name_of)
    return backend


def _session_that_watches(backend: object) -> object:
    _, function, _ = dynamo.unwrap_backend(backend)
    return function.session if isinstance(function, WatchedBackend) else None


def _name_of(backend: object) -> str:
    name, function, _ = dynamo.unwrap_backend(backend)
    return name or getattr(function, "compiler_name", None) or make_named_target(function)[0].name


@missing_names_refused()
def install(**options: Unpack[InstallKeywords]) -> "Installed":
    """Watch every `torch.compile` of this process that starts from now on, for any backend.

    The options are those of `debug_compile`, and `target`: a target spec that compiles in place of
    every backend that has a name, without the options for that backend. Calling it again with the
    same options returns the same handle. In a child of a watched script (`ctk run`), its options
    replace those of the run.

    Raises:
        ConfigError: An option is not allowed, or the hooks are installed with other options.
        TypeError: An option is unknown; the message suggests the nearest.
        MissingTorchName: The installed torch lacks a hook.
    """
    warn_if_untested()
    check_keywords("install", options, "target")
    wanted = watch_options(**options)
    present, book = dynamo.backend_lookup_owner(), ""
    if isinstance(present, Installed) and present.inherited:
        present.uninstall()
        book = present.session.book  # the run that started this process still counts it
    elif isinstance(present, Installed):
        if present.session.options == wanted:
            return present
        raise ConfigError(
            f"the hooks are installed already, with {present.session.options}; "
            "call uninstall() on the result of install(), then install() again"
        )
    start_autograd()  # before the first compile
    handle = Installed(WatchSession(wanted))
    handle.session.book = book
    with ExitStack() as undo:
        undo.callback(dynamo.wrap_backend_calls(handle.watch_backend))
        undo.callback(dynamo.wrap_backend_lookup(handle.count_lookup, handle))
        undo.callback(watch_calls(handle.session_of, _name_of))
        handle.undo = undo.pop_all().close
    return handle


def backend_from_environment(target: str) -> DynamoBackend:
    """Return the backend that watches `target`, with the options of the environment variables.

    The `ctk` backend calls this (entry point `environment` of group `ctk.hooks`) when a variable of
    `Environment.wants_hooks` is set. All compiles of a process with the same variables share one
    dump folder.
    """
    options = watch_options()
    session = _SESSIONS.setdefault(options, WatchSession(options))  # atomic: threads share one
    return WatchedBackend(session, resolve_target(target), {})


_SESSIONS: dict[WatchOptions, WatchSession] = {}


@dataclass(slots=True, eq=False)
class Installed(Closeable):
    """The hooks of a process, until `uninstall()`; also a context manager.

    Attributes:
        lookups: Number of backends that Dynamo has looked up: at least one per `torch.compile`.
    """

    session: WatchSession
    undo: Callable[[], None] = field(default=lambda: None, repr=False)
    lookups: int = 0
    inherited: bool = False
    _wrappers: dynamo.BackendWrappers = field(default_factory=dynamo.BackendWrappers, repr=False)

    def uninstall(self) -> None:
        """Stop watching compiles that have not started; a second call does nothing."""
        self.undo()
        self.session.note_frames()

    def close(self) -> None:
        """Uninstall, at the end of a `with` block."""
        self.uninstall()

    def session_of(self, backend: object) -> WatchSession | None:
        """Return the session of these hooks, unless another one watches the backend."""
        return self.session if _session_that_watches(backend) is None else None

    def count_lookup(self, backend: object) -> object:
        """Count a lookup; return the backend."""
        self.lookups += not is_in_copy()
        return backend

    def watch_backend(self, backend: Any) -> DynamoBackend:
        """Return the watching backend for a backend of the program, one for equal ones."""
        scope = self.session.scope
        if scope.is_off or _session_that_watches(backend) is not None:
            return backend
        name, function, keywords = dynamo.unwrap_backend(backend)
        target = scope.target or self.session.options.target
        if target and name is not None:
            return WatchedBackend(self.session, resolve_target(target), scope.config)
        if is_in_copy():
            return backend
        known = self._wrappers.find(backend)
        if known is not None and not scope.config:
            return known
        watched = WatchedBackend(self.session, *_resolve(name, function, keywords))
        if scope.config:
            return dataclasses.replace(watched, config={**watched.config, **scope.config})
        return self._wrappers.keep(backend, watched)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class WatchedBackend:
    """A Dynamo backend that compiles with `target`, watched by `session`.

    A pickled one is a watched backend of the process that loads it, with the same options.

    Attributes:
        named: The target as the program named it.
        instructions: Whether the next commands are logged after the first graph.
    """

    session: WatchSession
    target: Target
    config: Mapping[str, object]
    importable: bool = True
    named: str | DynamoBackend = ""
    instructions: bool = False

    @property
    def compiler_name(self) -> str:
        """The name that Dynamo shows."""
        return self.target.name

    def __call__(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        options: Mapping[str, object] | None = None,
        mode: str | None = None,
    ) -> Compiled:
        merged = {**self.config, **_mode_options(self.target, mode), **(options or {})}
        subject = make_subject(self.target, merged, importable=self.importable)
        if is_in_copy():
            return self.target.compile(gm, example_inputs, config=subject.config, observer=None)
        is_first = self.session.graphs == 0
        compiled = compile_watched(self.session, subject, gm, example_inputs)
        folder = self.session.made_folder
        if self.instructions and is_first and folder is not None:
            logger.warning("%s", describe_dumps(self.target.name, folder))
        return compiled

    def __deepcopy__(self, memo: object) -> "WatchedBackend":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        options = dataclasses.asdict(self.session.options)
        options["quota"] = options.pop("quota_nbytes")
        del options["target"]
        return _load_backend, (self.named, dict(self.config), self.instructions, options)


def _load_backend(
    target: str | DynamoBackend,
    config: Mapping[str, object],
    instructions: bool,
    options: WatchKeywords,
) -> DynamoBackend:
    return debug_compile(target, config=config, instructions=instructions, **options)


def make_subject(
    target: Target, config: Mapping[str, object], *, importable: bool = True
) -> Subject:
    """Return the subject of a compile, with the options that a case can save.

    Options that the target forces (`on_failure="raise"` for `ctk`) are not saved.
    """
    forced = target.forced
    options = target.effective(config)
    effective = {**options, **forced}
    kept = {key: value for key, value in options.items() if key not in forced}
    saved, lost = json_options(kept)
    if lost:
        logger.warning(
            "ctk: cases of target %s are saved without %s: a function or pass in it has no name "
            "that another process could import; name it at the top level of a module (and set the "
            "options of a pass as NAME.OPTION)",
            target.name,
            ", ".join(lost),
        )
    sources = source_files(target.name, saved, working_folder())
    in_script = script_file() in sources
    return Subject(target, effective, saved, sources, importable, in_script, lost)


def make_named_target(backend: DynamoBackend) -> tuple[Target, bool]:
    """Return the target of any Dynamo backend, and whether another process can import it."""
    reference = reference_to(backend)
    if reference is None:
        name = getattr(backend, "__qualname__", type(backend).__qualname__)
        return BackendTarget(f"local:{name.replace('<locals>', 'locals')}", backend), False
    return BackendTarget(reference, backend), True


def subject_of_backend(backend: object) -> Subject:
    """Return the subject of the compiles of a backend of torch.compile."""
    target, config, importable = _resolve(*dynamo.unwrap_backend(backend))
    return make_subject(target, config, importable=importable)


def _resolve(
    name: str | None, function: DynamoBackend, keywords: Mapping[str, object]
) -> tuple[Target, Mapping[str, object], bool]:
    """Return the target of a backend, its options, and whether another process can import it."""
    if isinstance(function, WatchedBackend):
        return function.target, function.config, function.importable
    options = keywords.get("options") or {}
    mode = cast("str | None", keywords.get("mode"))
    config = dict(options) if isinstance(options, Mapping) else {}
    named = resolve_target(name) if name is not None else None
    if named is not None and (mode in (None, "default") or named.has_modes):
        return named, {**_mode_options(named, mode), **config}, True
    if mode not in (None, "default"):  # the mode is passed on to the backend
        function = functools.partial(function, mode=mode)
    target, importable = make_named_target(function)
    return target, config, importable


def _mode_options(target: Target, mode: str | None) -> Mapping[str, object]:
    if mode in (None, "default"):
        return {}
    if target.has_modes:
        return target.mode_options(str(mode))
    able = [entry.name for entry in TARGETS if entry.has_modes]
    raise ConfigError(
        f"target {target.name!r} has no modes, so not {mode!r}: only {', '.join(able)} has; pass "
        "options= instead"
    )
