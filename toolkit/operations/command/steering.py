"""Steer the compiles of a process of the command: leave out the parts that the plan names.

Every backend that Dynamo calls is wrapped: the target is the same, but its passes, rewrites and
kernels ask an observer first. Results are the compiled ones; nothing is compared, dumped or caught.
"""

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.observe import KernelId, PassId, RewriteId
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.toolkit.compile_log.recorder import Event, Recorder, Veto
from ctk.toolkit.operations.command.plan import Kind, read_vetoes
from ctk.toolkit.targets import resolve_target
from ctk.toolkit.targets.base import Compiled, Target
from ctk.toolkit.watch.child_start import note
from ctk.toolkit.watch.hooks import make_named_target


def steer_here(folder: str) -> None:
    """Steer every compile of this process from now on; called when Dynamo has been imported."""
    steering = Steering(Path(folder))
    dynamo.wrap_backend_calls(steering.wrap)


class Steering:
    """Wraps the backends of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vetoes = read_vetoes(folder)
        self._wrappers = dynamo.BackendWrappers()
        self._prefix: str | None = None
        self._graphs = 0
        self._lock = threading.Lock()

    def wrap(self, backend: Any) -> Callable[..., Any]:
        """Return the wrapper of a backend; equal backends get the same object."""
        if hasattr(backend, "ctk_steered"):
            return backend
        wrapper = self._wrappers.find(backend)
        if wrapper is not None:
            return wrapper
        name, function, keywords = dynamo.unwrap_backend(backend)
        target, config = _target_of(name, function, keywords)
        return self._wrappers.keep(backend, self._wrapper(target, config))

    def _wrapper(self, target: Target, config: Mapping[str, object]) -> Callable[..., Compiled]:
        def ctk_steer(
            gm: GraphModule,
            example_inputs: Sequence[object],
            *,
            options: Mapping[str, object] | None = None,
            **_: object,
        ) -> Compiled:
            graph = self._next_graph()
            merged = {**target.native(), **target.effective({**config, **(options or {})})}
            observer = Steered(graph, self._vetoes.get(graph, Veto()), str(self._folder))
            return target.compile(gm, example_inputs, config=merged, observer=observer)

        ctk_steer.ctk_steered = True  # type: ignore[attr-defined]  # functions take attributes
        return ctk_steer

    def _next_graph(self) -> str:
        with self._lock:
            if self._prefix is None:
                self._prefix = _claim_prefix(self._folder)
            self._graphs += 1
            return f"{self._prefix}graph{self._graphs - 1}"


class Steered(Recorder):
    """The observer of one compile: records each suspect, and applies the plan's veto."""

    def __init__(self, graph: str, veto: Veto, folder: str) -> None:
        super().__init__(veto, on_event=self._forget)
        self._graph, self._book = graph, folder

    def allow_pass(self, pass_id: PassId) -> bool:
        if pass_id.stage != "lowered":  # a whole backend, whose parts ask one by one
            self._note("pass", str(pass_id))
        return super().allow_pass(pass_id)

    def allow_rewrite(self, rewrite_id: RewriteId) -> bool:
        self._note("rewrite", str(rewrite_id.pass_id), rewrite_id.number, rewrite_id.rule)
        return super().allow_rewrite(rewrite_id)

    def allow_kernel(self, kernel_id: KernelId) -> bool:
        self._note("kernel", str(kernel_id))
        return super().allow_kernel(kernel_id)

    def _note(self, kind: Kind, identity: str, number: int = 0, rule: str = "") -> None:
        note(self._book, {"asked": [self._graph, kind, identity, number, rule]})  # a `Suspect`

    def _forget(self, _: Event) -> None:
        self.log.events.clear()  # unused here, and they hold graphs


def _target_of(
    name: str | None, function: Any, keywords: Mapping[str, object]
) -> tuple[Target, Mapping[str, object]]:
    options, mode = keywords.get("options"), keywords.get("mode")
    config: dict[str, object] = dict(options) if isinstance(options, Mapping) else {}
    if name is not None and mode in (None, "default"):
        return resolve_target(name), config
    if mode not in (None, "default"):
        function = functools.partial(function, mode=mode)
    return make_named_target(function)[0], config


def _claim_prefix(folder: Path) -> str:
    """Claim the next free process number; return the prefix of this process's graph names."""
    number = 0
    while True:
        try:
            os.mkdir(folder / f"process{number}")  # noqa: PTH102  # one of two processes gets it
        except FileExistsError:
            number += 1
        else:
            return f"process{number}." if number else ""
