"""A case: one failure, as an immutable value that can be saved, loaded and run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch.fx import GraphModule

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.checked_types import (
    DefaultDevice,
    DeviceType,
    FloatDtype,
    Seed,
    Settings,
)
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.roles import Role


@document
@dataclass(frozen=True, slots=True)
class Autocast:
    """One active autocast region."""

    device_type: DeviceType
    dtype: FloatDtype  # "bfloat16"
    cache_enabled: bool = True


@document
@dataclass(frozen=True, slots=True)
class Modes:
    """The ambient state under which a graph was captured; `execute` restores it for every run."""

    grad: bool = True
    inference: bool = False
    backward: bool = False  # the failure needs a backward pass: run it, compare gradients
    autocast: tuple[Autocast, ...] = ()
    deterministic: bool = False
    seed: Seed = 0
    default_dtype: FloatDtype = "float32"
    default_device: DefaultDevice = ""  # where tensors are made; empty: the CPU
    strides: bool = False  # strides are a failure also where they are the compiler's choice
    settings: Settings = field(default_factory=dict[str, bool | str])  # unlike in a fresh torch


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Case:
    """One failure.

    Attributes:
        graph: Captured FX graph. Its placeholders are the inputs in order; never changed in place
            (copy it).
        inputs: One value per placeholder: tensors (leaves, `requires_grad` and strides as in the
            program; `nn.Parameter` where the program has one), ints, floats, bools or None. A
            placeholder that is a symbolic size gets its hint as an int.
        config: Target options that differ from the default; JSON values only.
        signature: The failure that the case must show; None if it was never judged.
        name: Short label (`graph0`), used in folder names.
        sources: Files of the user's passes or backend that `config` or `target` names. Saving
            copies them and their imported neighbours into the folder, and refers to the copies; a
            loaded case refers to them by absolute paths.
        dynamic: For each placeholder that is a tensor with symbolic sizes, its name and per
            dimension the symbol's name or None (`{"l_x_": ("s77", None)}`).
        synthetic: Placeholders whose values are not the program's own (rebuilt from a recipe, or
            replaced by a reduction).
        roles: Tensors that the user's program holds as parameters, buffers or attributes: by name
            of the placeholder, or as `self.NAME` for an attribute of the graph.
    """

    graph: GraphModule
    inputs: tuple[object, ...] = field(repr=False)
    target: str = "ctk"
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    modes: Modes = Modes()
    signature: Signature | None = None
    name: str = "graph0"
    sources: tuple[Path, ...] = ()
    dynamic: Mapping[str, tuple[str | None, ...]] = field(
        default_factory=dict[str, tuple[str | None, ...]]
    )
    synthetic: tuple[str, ...] = ()
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
