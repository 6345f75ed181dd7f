"""A compiled graph as one value: its schedule, its kernels, its constants. Store and load it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.records import Json
from ctk.compiler.runtime import c_kernels, cuda_kernels
from ctk.compiler.runtime.python_code import PythonCode, Takes
from ctk.compiler.runtime.schedule_json import schedule_json, schedule_of
from ctk.compiler.runtime.steps import Launch, Schedule
from ctk.compiler.runtime.stored_kernels import Blobs, StoredKernel
from ctk.compiler.runtime.tensors import store_tensors, tensors_of


def _no_kernels(stored: Sequence[Any], blobs: Blobs) -> list[Callable[..., None]]:
    if stored:
        raise ArtifactError("a graph without kernels names one")
    return []


_Loader: TypeAlias = Callable[[Sequence[Any], Blobs], list[Callable[..., None]]]

_LOADERS: Mapping[str, tuple[Takes, _Loader]] = {
    "c": ("address", c_kernels.load_kernels),
    "triton": ("tensor", cuda_kernels.load_kernels),
    "eager": ("tensor", _no_kernels),
}
"""The buffer arguments of a launch of a generator's kernels, and the loader of these kernels."""


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A compiled graph as data.

    Attributes:
        constants: The values of its constants, by attribute: tensors, and graphs that operators
            such as `torch.cond` call.
        codes: Code of each kernel that the writer of a package still has to compile.
    """

    schedule: Schedule
    constants: Mapping[str, object]
    generator: str
    kernels: Sequence[StoredKernel]
    codes: Sequence[object] = ()

    def stored(self, prefix: str) -> tuple[Json, dict[str, bytes | memoryview]]:
        """Return it as JSON and blobs.

        Args:
            prefix: Of the names of blobs that hold constants.

        Raises:
            ArtifactError: It calls or holds a value that cannot be stored.
        """
        graphs = {n: each for n, each in self.constants.items() if isinstance(each, CompiledGraph)}
        tensors = {n: _tensor(each, n) for n, each in self.constants.items() if n not in graphs}
        table, blobs = store_tensors(tensors, prefix)
        inner: dict[str, Json] = {}
        for name, graph in graphs.items():
            inner[name], more = graph.stored(f"{prefix}{name}/")
            blobs.update(more)
        for kernel in self.kernels:
            blobs.update(kernel.blobs)
        data = {
            "schedule": schedule_json(self.schedule),
            "constants": table,
            "graphs": inner,
            "generator": self.generator,
            "kernels": [kernel.data for kernel in self.kernels],
        }
        return data, blobs


def load_graph(
    data: Json, blobs: Blobs, name: str = "forward", *, is_boxed: bool = True
) -> PythonCode:
    """Return a stored graph as a function.

    Args:
        is_boxed: It takes one list, which it empties; else each input.

    Raises:
        ArtifactError: It is malformed, or needs an operator or device that this process lacks.
    """
    try:
        takes, load = _LOADERS[data["generator"]]
        constants: dict[str, object] = {**tensors_of(data["constants"], blobs)}
        for inner, each in data["graphs"].items():
            constants[inner] = load_graph(each, blobs, "inner", is_boxed=False).function
        schedule, launches = schedule_of(data["schedule"]), load(data["kernels"], blobs)
        _require_kernels(schedule, len(launches))
        code = PythonCode(schedule, name, constants, takes, is_boxed=is_boxed)
    except MALFORMED as error:
        raise ArtifactError(f"a stored graph is malformed: {error!r}") from error
    code.bind(launches)
    return code


def _require_kernels(schedule: Schedule, count: int) -> None:
    """Refuse a schedule that launches a missing kernel."""
    for step in schedule.steps:
        if isinstance(step, Launch) and not 0 <= step.kernel < count:
            raise ArtifactError(f"a stored graph launches kernel {step.kernel} of {count}")


def _tensor(value: object, name: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ArtifactError(f"the constant {name} is a {type(value).__name__}: it cannot be stored")
    return value
