"""The thin layer over Ray: slots for questions on the machines of a cluster.

All uses of Ray are here; remote.py works with any `Machines`. The cluster is the one at
`RAY_ADDRESS`, else a running one on this machine, else a new one on this machine alone, which ends
with the command (Ray's own rule). Cases are sent as bytes.
"""

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ctk.compiler.errors import ChildError, ConfigError
from ctk.toolkit.oracle.executors.remote_worker import RemoteWorker, surroundings
from ctk.toolkit.processes.closeable import Closeable

_LOOK_SECONDS = 0.1
_CLOSE_SECONDS = 3.0

_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Ray's options for resources that have one."""

_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that is started here sends no statistics
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True, slots=True)
class SlotSize:
    """The resources and the limits of one question."""

    resources: Mapping[str, float]
    timeout_seconds: float | None
    memory_nbytes: int | None


class Lost(Exception):
    """The machine, or its process, has ended without an answer."""


class Machine(Protocol):
    """A slot for one question at a time, on any machine of the cluster."""

    def is_ready(self, seconds: float) -> bool:
        """Wait up to `seconds` until the slot is ready; raises `Lost`."""
        ...

    def call(self, name: str, *arguments: object, is_cancelled: Callable[[], bool]) -> str:
        """Call a method of the `RemoteWorker` and return its result; raises `Lost`.

        If the question is cancelled, the call is cancelled there as well.
        """
        ...

    def close(self) -> None:
        """Release the slot."""
        ...


class Machines(Closeable, Protocol):
    """The machines of a cluster."""

    def rooms(self, resources: Mapping[str, float]) -> int:
        """Return how many questions of this size the idle cluster can run at once."""
        ...

    def start(self, size: SlotSize) -> Machine:
        """Request a slot; `is_ready` waits for it."""
        ...

    def describe(self) -> str:
        """Return the resources of the cluster, for messages."""
        ...


def connect() -> Machines:
    """Connect to the cluster.

    Raises:
        ConfigError: Ray is not installed, or no cluster answers.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        ray: Any = importlib.import_module("ray")  # an extra: a checker may not know it
    except ImportError as error:
        raise ConfigError(
            f"--executor ray needs Ray, which cannot be imported ({error})\n"
            "next: pip install 'ctk[ray]'"
        ) from error
    return _RayMachines(ray)


class _RayMachines(Machines):
    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
            except Exception as error:
                raise ConfigError(
                    f"no Ray cluster answers: {type(error).__name__}: {error}\n"
                    "next: set RAY_ADDRESS to a running one (ray status), or unset it to use "
                    "this machine alone"
                ) from error

    def rooms(self, resources: Mapping[str, float]) -> int:
        return sum(_rooms(node, resources) for node in self._nodes())

    def describe(self) -> str:
        found = [
            ", ".join(f"{name}={amount:g}" for name, amount in sorted(node.items()))
            for node in self._nodes()
        ]
        return "; ".join(found) or "no machine"

    def _nodes(self) -> list[dict[str, float]]:
        """Return the resources of each living machine, without Ray's internal ones."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [
            {name: amount for name, amount in node.items() if not name.startswith(_ITS_OWN)}
            for node in alive
        ]

    def start(self, size: SlotSize) -> Machine:
        wanted = size.resources.items()
        named = {_NAMED[name]: amount for name, amount in wanted if name in _NAMED}
        others = {name: amount for name, amount in wanted if name not in _NAMED}
        far = self._ray.remote(RemoteWorker).options(
            **{"num_cpus": 0, **named},
            resources=others,
            max_restarts=0,
            max_concurrency=2,  # one answers, the other cancels
            runtime_env={"env_vars": surroundings()},
        )
        return _RayMachine(self._ray, far.remote(size.timeout_seconds, size.memory_nbytes))

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()


_ITS_OWN = ("node:", "object_store_memory", "accelerator_type:")


def _rooms(node: Mapping[str, float], resources: Mapping[str, float]) -> int:
    wanted = {name: amount for name, amount in resources.items() if amount > 0}
    if not wanted:
        return int(node.get("CPU", 0))
    return min(int(node.get(name, 0) / amount + 1e-9) for name, amount in wanted.items())


class _RayMachine(Machine):
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._started: Any = actor.versions.remote()

    def is_ready(self, seconds: float) -> bool:
        done, _ = self._ray.wait([self._started], timeout=seconds)
        return bool(done)

    def call(self, name: str, *arguments: object, is_cancelled: Callable[[], bool]) -> str:
        answer = getattr(self._actor, name).remote(*arguments)
        is_told = False
        with self._losses():
            while not self._ray.wait([answer], timeout=_LOOK_SECONDS)[0]:
                if is_cancelled() and not is_told:
                    self._actor.cancel.remote(*arguments[:1])
                    is_told = True
            return str(self._ray.get(answer))

    @contextlib.contextmanager
    def _losses(self) -> Any:
        errors = self._ray.exceptions
        try:
            yield
        except errors.RayTaskError as error:  # raised by code of ctk there
            raise ChildError(f"the oracle failed on another machine: {error}") from error
        except errors.RayError as error:
            raise Lost(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        """Close the remote worker, and release the slot."""
        with contextlib.suppress(Exception):
            self._ray.wait([self._actor.close.remote()], timeout=_CLOSE_SECONDS)
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)
