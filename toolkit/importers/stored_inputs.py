"""The inputs of torch's own repro scripts: a reader for their `load_args(reader)`.

Storages lie in `storages/HASH` of the folder that torch wrote beside the script, and are read as
tensors only (`weights_only`), so that no pickle can run code. A missing storage is made up from a
recipe, and its inputs are marked.

    buf0 = reader.storage("fbdd24...", 64)             # read, or made up: 16 float32
    reader.tensor(buf0, (4, 4), is_leaf=True)          # input 0: a view of it
    reader.symint(5)                                   # input 1
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ctk.compiler.errors import ProgramError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.recipes import default_recipe, synthesize


@dataclass(slots=True)
class StoredInputs:
    """Collects the inputs of a script, in order.

    Attributes:
        folders: Folders that may hold `storages`; the first that has a storage wins.
    """

    folders: tuple[Path, ...]
    values: list[object] = field(default_factory=list[object])
    made_up: set[int] = field(default_factory=set[int])
    _invented: dict[int, torch.UntypedStorage] = field(
        default_factory=dict[int, torch.UntypedStorage]
    )

    def storage(
        self,
        storage_hash: str | None,
        nbytes: int,
        *,
        device: object = None,
        dtype_hint: torch.dtype | None = None,
    ) -> torch.UntypedStorage:
        """Return a storage of the script, on the device that the script names.

        Raises:
            ProgramError: This machine has no such device, or the file is not a tensor.
        """
        place = torch.device(str(device or "cpu"))
        try:
            found = self._read(storage_hash, place)
            return found if found is not None else self._invent(nbytes, dtype_hint, place)
        except (RuntimeError, AssertionError) as error:  # no CUDA in this build, or no such device
            raise ProgramError(
                f"an input lies on {place}, which cannot be used here: {first_line(error)}\n"
                "next: run it on a machine that has it, or change the device in the script"
            ) from error

    def tensor(
        self,
        storage: torch.UntypedStorage,
        shape: Sequence[int],
        stride: Sequence[int] | None = None,
        *,
        storage_offset: int | None = None,
        dtype: torch.dtype | None = None,
        requires_grad: bool | None = None,
        is_leaf: bool | None = None,
        **metadata: object,
    ) -> torch.Tensor:
        """Add a tensor on a storage; a non-leaf becomes a leaf that requires grad."""
        stride = tuple(stride) if stride is not None else _contiguous(shape)
        value = torch.empty(0, dtype=dtype or torch.float32, device=storage.device)
        self._check_size(storage, shape, stride, offset=storage_offset or 0, dtype=value.dtype)
        with torch.no_grad():
            value.set_(storage, storage_offset or 0, tuple(shape), stride)  # type: ignore[arg-type]  # an untyped storage will do
            value = _with_bits(value, metadata)
        if requires_grad or is_leaf is False:
            value.requires_grad_(value.is_floating_point() or value.is_complex())
        if id(storage) in self._invented:
            self.made_up.add(len(self.values))
        self.values.append(value)
        return value

    def _check_size(
        self,
        storage: torch.UntypedStorage,
        shape: Sequence[int],
        stride: Sequence[int],
        *,
        offset: int,
        dtype: torch.dtype,
    ) -> None:
        """Check that a tensor lies in its storage: torch would make the storage larger instead."""
        steps = ((size - 1) * step for size, step in zip(shape, stride, strict=True))
        needed = 0 if 0 in shape else (offset + sum(steps) + 1) * dtype.itemsize
        if needed > storage.nbytes():
            raise ProgramError(
                f"input {len(self.values)} of the script takes {needed} bytes, but its storage has "
                f"{storage.nbytes()}: the script, or the file of that storage, was changed"
            )

    def symint(self, value: object, **_: object) -> object:
        """Add a size; the script writes its hint."""
        self.values.append(value)
        return value

    def const(self, _name: str) -> None:
        """Add an input that is None."""
        self.values.append(None)

    def unsupported(self, name: str) -> None:
        """Refuse an input that torch could not write."""
        raise ProgramError(f"torch could not write the input {name} into the script")

    def generator(self, device_type: str, device_index: int) -> None:
        """Refuse a generator: no case holds one."""
        raise ProgramError(f"an input is a torch.Generator of {device_type}:{device_index}")

    def opaque(self, script_class_name: str) -> None:
        """Refuse an object of a script class: it is not in the script."""
        raise ProgramError(f"an input is an object of {script_class_name}, which is not stored")

    def _read(self, name: str | None, place: torch.device) -> torch.UntypedStorage | None:
        paths = (folder / "storages" / name for folder in self.folders) if name else ()
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return None
        try:
            stored = torch.load(path, weights_only=True, map_location="cpu")
        except Exception as error:
            raise ProgramError(
                f"{path} is not a storage that torch wrote: {type(error).__name__}: "
                f"{first_line(error)}"
            ) from error
        tensor = torch.empty(0, dtype=torch.uint8, device="cpu")
        tensor.set_(getattr(stored, "_untyped_storage", stored))
        return tensor.to(place).untyped_storage()

    def _invent(
        self, nbytes: int, hint: torch.dtype | None, place: torch.device
    ) -> torch.UntypedStorage:
        dtype = hint or torch.float32
        recipe = default_recipe(dtype, seed=len(self._invented))
        count = nbytes // dtype.itemsize
        values = synthesize(recipe, count, dtype, "an input of the script")
        storage = values.to(place).untyped_storage()
        self._invented[id(storage)] = storage
        return storage


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.insert(0, step)
        step *= max(int(size), 1)
    return tuple(strides)


def _with_bits(value: torch.Tensor, metadata: dict[str, object]) -> torch.Tensor:
    """Return the tensor with the lazy conjugation and negation that torch has noted."""
    value = value.conj() if metadata.get("conj") else value
    return torch.ops.aten._neg_view.default(value) if metadata.get("neg") else value
