"""A package, opened: compiled entry points and their weights from one file.

    package = ctk.load("model.ctk")
    package(x)                          its entry point, called as the model was
    package["decode"](x, cache)         one of several
    package.bind({"head.weight": w})    weights that were left out, or replace stored ones

Nothing is traced or compiled, and little is imported. A package is machine code: run only packages
of people whose programs you would run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.artifacts.container import Container, open_container
from ctk.compiler.artifacts.machine import refuse_other
from ctk.compiler.errors import MALFORMED, ArtifactError, ContainerError, InputError, nearest
from ctk.compiler.packages.input_guard import FixedInput, InputGuard, guard_of
from ctk.compiler.records import INTEGER, Json
from ctk.compiler.runtime.compiled_graph import load_graph
from ctk.compiler.runtime.helpers import fitted
from ctk.compiler.runtime.tensors import tensors_of
from ctk.compiler.runtime.values import value_of
from ctk.compiler.torch_compat.aot import autograd
from ctk.compiler.torch_compat.fx import graphs

FORMAT = 1
MANIFEST = "manifest.json"
DEFAULT = "forward"
"""The name of the entry point of a package that has one."""


@dataclass(slots=True)
class EntryPoint:
    """A function of a package.

    Attributes:
        weights: Names of the weights that its graph takes first, in order.
        _results: As in `Traced`.
    """

    name: str
    guard: InputGuard
    weights: tuple[str, ...]
    _package: Package = field(repr=False)
    _run: Callable[[list[Any]], Sequence[Any]] = field(repr=False)
    _in_spec: Any = field(repr=False)
    _out_spec: Any = field(repr=False)
    _results: Sequence[int | tuple[object]] = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the model, without gradients.

        Raises:
            InputError: An argument does not fit the input guard.
            ArtifactError: A weight that was left out is not bound.
        """
        leaves, spec = graphs.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            leaves = self._in_order(args, kwargs)
        return graphs.tree_unflatten(self.flat(leaves), self._out_spec)

    def flat(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves of the result for the leaves of the arguments."""
        values = [*self._package.values_of(self.weights), *self.guard.admit(leaves)]
        computed = autograd.without_modes(self._run, values)
        return [
            computed[result] if isinstance(result, int) else result[0] for result in self._results
        ]

    def _in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of arguments whose keywords come in another order."""
        wanted = graphs.keywords_of(self._in_spec)
        if set(wanted) == set(kwargs):
            leaves, spec = graphs.tree_flatten((args, {name: kwargs[name] for name in wanted}))
            if spec == self._in_spec:
                return leaves
        names = ", ".join(each.name for each in self.guard.inputs) or "nothing"
        keywords = f", by keyword {', '.join(wanted)}" if wanted else ""
        raise InputError(
            f"{self.name} was compiled for other arguments: it takes {names}{keywords}, nested as "
            f"when it was compiled, and got {len(args)} positional and "
            f"{', '.join(kwargs) or 'no'} keyword arguments"
        )


class Package(Mapping[str, EntryPoint]):
    """An open package: its entry points by name. A call runs its only entry point, or `forward`."""

    def __init__(self, container: Container) -> None:
        self.path = container.path
        self.manifest = manifest_of(container)
        self._weights = tensors_of(self.manifest["weights"], container.members)
        self._left_out: Mapping[str, Json] = self.manifest["weights_left_out"]
        self._entries = {
            name: self._entry(name, data, container)
            for name, data in self.manifest["entries"].items()
        }

    def __getitem__(self, name: str) -> EntryPoint:
        if name not in self._entries:
            names = ", ".join(self._entries)
            raise ArtifactError(
                f"{self.path.name} has no entry point {name!r}{nearest(name, self._entries)}; it "
                f"has {names}"
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the only entry point, or the one named `forward`."""
        if len(self._entries) == 1:
            (entry,) = self._entries.values()
            return entry(*args, **kwargs)
        return self[DEFAULT](*args, **kwargs)

    @property
    def unbound(self) -> tuple[str, ...]:
        """Names of weights that were left out, and are not bound."""
        return tuple(name for name in self._left_out if name not in self._weights)

    def bind(self, weights: Mapping[str, Tensor]) -> None:
        """Set the values of weights; values that no entry point takes are ignored.

        Args:
            weights: By name: the `state_dict()` of the model. They are used in place; a tensor with
                other strides is copied.

        Raises:
            InputError: A value is not a tensor, or has another shape, type or device than the
                package was compiled for; or none of them is a weight of the package.
        """
        given: Any = weights
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise InputError(f"bind takes weights by name, model.state_dict(), and got a {kind}")
        known = {**self.manifest["weights"], **self._left_out}
        taken = {name: each for name, each in weights.items() if name in known}
        if weights and not taken:
            first = next(iter(weights))
            hint = nearest(str(first), known)
            raise InputError(
                f"{self.path.name} has none of the weights that are given, such as {first}{hint}; "
                f"it has {', '.join(list(known)[:5]) or 'none'}"
            )
        self._weights.update({name: _fitting(name, taken[name], known[name]) for name in taken})

    def values_of(self, names: Sequence[str]) -> list[Tensor]:
        """Return the values of weights; raise `ArtifactError` if one is not bound."""
        try:
            return [self._weights[name] for name in names]
        except KeyError:
            missing = self.unbound
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ArtifactError(
                f"{self.path.name} was written without its weights, and {', '.join(missing[:3])}"
                f"{more} have no value: package.bind(model.state_dict())"
            ) from None

    def _entry(self, name: str, data: Json, container: Container) -> EntryPoint:
        code = load_graph(data["graph"], container.members, "forward")
        results = [
            INTEGER.read(each["computed"]) if "computed" in each else (value_of(each["fixed"]),)
            for each in data["results"]
        ]
        in_spec, out_spec = (_spec(data[each], name) for each in ("in_spec", "out_spec"))
        guard, weights = guard_of(data["door"]), tuple(map(str, data["weights"]))
        self._require_fit(name, guard, weights, results, data["graph"]["schedule"])
        return EntryPoint(name, guard, weights, self, code.function, in_spec, out_spec, results)

    def _require_fit(
        self,
        name: str,
        guard: InputGuard,
        weights: Sequence[str],
        results: Sequence[int | tuple[object]],
        schedule: Json,
    ) -> None:
        """Refuse an entry point whose graph has other inputs or results than its description."""
        unknown = set(weights).difference(self._weights, self._left_out)
        taken = [each for each in guard.inputs if not isinstance(each, FixedInput)]
        given = [result for result in results if isinstance(result, int)]
        count = len(value_of(schedule["result"]))
        is_fit = len(weights) + len(taken) == len(schedule["inputs"])
        if unknown or not is_fit or not all(0 <= each < count for each in given):
            raise ContainerError(
                f"{name} of {self.path.name} is not as described: compile it again"
            )


def load(path: str | Path) -> Package:
    """Open a package.

    Raises:
        ContainerError: It is not a package, is damaged, or cannot be read.
        ArtifactError: It is for another machine, another torch or another ctk.
    """
    container = open_package(path)
    try:
        return Package(container)
    except MALFORMED as error:
        raise _malformed_error(container.path, error) from error


def open_package(path: str | Path) -> Container:
    """Open the container of a package.

    Raises:
        ContainerError: It is not a container, is damaged, or cannot be read.
    """
    try:
        place = Path(path).expanduser()
        with contextlib.suppress(OSError):  # opening it reports this
            place.lstat()  # raises for an invalid path
    except (ValueError, TypeError, RuntimeError) as error:
        raise ContainerError(f"{str(path)[:200]!r} is not the path of a file: {error}") from error
    return open_container(place)


def _malformed_error(path: Path, error: BaseException) -> ContainerError:
    return ContainerError(f"{path.name} is malformed: {repr(error)[:300]}; compile it again")


def manifest_of(container: Container, *, to_run: bool = True) -> Json:
    """Return the description that a package holds of itself.

    Args:
        to_run: It will run here, and is not only described.

    Raises:
        ContainerError: It is not a package.
        ArtifactError: It is of another ctk, or, if it is to run, for another machine.
    """
    name = container.path.name
    if MANIFEST not in container.members:
        raise ContainerError(f"{name} is not a package of ctk: it has no {MANIFEST}")
    try:
        manifest: Json = json.loads(bytes(container.members[MANIFEST]))
        if manifest["kind"] != "package":
            raise ContainerError(f"{name} is a {manifest['kind']} of ctk, and no package")
        if manifest["format"] != FORMAT:
            raise ArtifactError(
                f"{name} is a package of format {manifest['format']}, and this ctk knows {FORMAT}: "
                "compile it again with this ctk"
            )
        if to_run:
            refuse_other(manifest["machine"], name)
    except MALFORMED as error:
        raise _malformed_error(container.path, error) from error
    return manifest


def _spec(text: str, name: str) -> Any:
    try:
        return graphs.spec_of(text)
    except Exception as error:
        raise ArtifactError(
            f"the arguments or results of {name} hold a class that is not known here: {error}\n"
            "next: import the module that registers it with torch.utils._pytree"
        ) from error


def _fitting(name: str, tensor: Any, row: Json) -> Tensor:
    """Return a weight; raise unless it fits the package."""
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided or tensor.is_quantized:
        kind = tensor.layout if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise InputError(f"the weight {name} must be a strided tensor, and is {kind}")
    shape, dtype = torch.Size(row["shape"]), value_of({"dtype": row["dtype"]})
    device = torch.device(row["device"])
    if (tensor.shape, tensor.dtype, tensor.device) != (shape, dtype, device):
        raise InputError(
            f"the weight {name} is {tensor.dtype}{list(tensor.shape)} on {tensor.device}; the "
            f"package was compiled for {dtype}{list(shape)} on {device}"
        )
    plain = tensor.detach().resolve_conj()
    return fitted(plain, tuple(shape), tuple(row["strides"]), dtype)
