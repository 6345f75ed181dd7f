"""A compiled graph as one value: what it does, its kernels, its constants. Stored, and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime import c_kernels, cuda_kernels
from ctk.compiler.runtime.python_code import PythonCode, Takes
from ctk.compiler.runtime.schedule_json import schedule_json, schedule_of
from ctk.compiler.runtime.steps import Schedule
from ctk.compiler.runtime.stored import StoredKernel
from ctk.compiler.runtime.tensors import stored_tensors, tensors_of
from ctk.compiler.runtime.values import JSON

Blobs = Mapping[str, bytes | memoryview]


def _no_kernel(data: Any, blobs: Blobs) -> Callable[..., None]:
    raise ArtifactError("a graph without kernels names one")


_LOADERS: Mapping[str, tuple[Takes, Callable[[Any, Blobs], Callable[..., None]]]] = {
    "c": ("address", c_kernels.load_kernel),
    "triton": ("tensor", cuda_kernels.load_kernel),
    "eager": ("tensor", _no_kernel),
}
"""What a launch of a generator's kernels takes, and what loads one."""


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A graph that is compiled, as data.

    Attributes:
        schedule: What a call of it does.
        constants: The values of its constants, by attribute.
        generator: Of its kernels.
        kernels: By number.
        codes: What is left to be compiled of each kernel, by who writes a package.
    """

    schedule: Schedule
    constants: Mapping[str, object]
    generator: str
    kernels: Sequence[StoredKernel]
    codes: Sequence[object] = ()

    def stored(self, prefix: str) -> tuple[JSON, dict[str, bytes | memoryview]]:
        """Return it as JSON and blobs.

        Args:
            prefix: Of the names of blobs that hold constants.

        Raises:
            ArtifactError: It calls or holds what cannot be stored.
        """
        tensors = {name: _tensor(each, name) for name, each in self.constants.items()}
        table, blobs = stored_tensors(tensors, prefix)
        for kernel in self.kernels:
            blobs.update(kernel.blobs)
        data = {
            "schedule": schedule_json(self.schedule),
            "constants": table,
            "generator": self.generator,
            "kernels": [kernel.data for kernel in self.kernels],
        }
        return data, blobs


def load_graph(data: JSON, blobs: Blobs, name: str = "forward") -> PythonCode:
    """Return a stored graph, ready to be called.

    Args:
        data: Its JSON.
        blobs: By name.
        name: What its function is called in tracebacks.

    Raises:
        ArtifactError: It is malformed, or needs what this process does not have.
    """
    try:
        takes, load = _LOADERS[data["generator"]]
        constants = tensors_of(data["constants"], blobs)
        code = PythonCode(schedule_of(data["schedule"]), name, constants, takes)
        code.bind([load(kernel, blobs) for kernel in data["kernels"]])
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError) as error:
        raise ArtifactError(f"a stored graph is malformed: {error!r}") from error
    return code


def _tensor(value: object, name: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ArtifactError(f"the constant {name} is a {type(value).__name__}: it cannot be stored")
    return value
