"""torch's settings that change numbers: TF32, cuDNN, reduced precision, the default device.

They belong to the process, so a case keeps the settings that differ from a fresh torch, by their
names below `torch.`, and every run sets and restores them.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch

Value = bool | str

PRECISIONS = ("none", "ieee", "tf32", "bf16")
"""Values of an `fp32_precision`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of torch.

    Attributes:
        allowed: Its possible values; the first is the value in a fresh torch.
    """

    get: Callable[[], Any]
    set: Callable[[Any], object]
    allowed: tuple[Value, ...]


def _attribute(path: str, allowed: tuple[Value, ...]) -> Setting:
    """Return the setting of an attribute below `torch.`."""
    owner, _, name = path.rpartition(".")
    holder = attrgetter(owner)

    def write(value: Value) -> None:
        setattr(holder(torch), name, value)

    return Setting(lambda: getattr(holder(torch), name), write, allowed)


def _attention(name: str) -> Setting:
    """Return the setting that allows an implementation of attention."""
    cuda: Any = torch.backends.cuda
    return Setting(getattr(cuda, f"{name}_enabled"), getattr(cuda, f"enable_{name}"), (True, False))


def _cudnn_flag(name: str, allowed: tuple[Value, ...]) -> Setting:
    """Return the setting of a flag of cuDNN.

    `set_flags` writes it also where assignment is forbidden: after `disable_global_flags()`, which
    the import of `torch.testing._internal.common_utils` calls.
    """
    cudnn = torch.backends.cudnn

    def write(value: Value) -> None:
        flags: dict[str, Any] = {f"_{name}": value, "_fp32_precision": None}  # None: as it is
        cudnn.set_flags(**flags)

    return Setting(lambda: getattr(cudnn, name), write, allowed)


_ATTRIBUTES: Mapping[str, tuple[Value, ...]] = {
    "backends.cuda.matmul.fp32_precision": PRECISIONS,
    "backends.cudnn.conv.fp32_precision": ("tf32", "none", "ieee"),
    "backends.cudnn.rnn.fp32_precision": ("tf32", "none", "ieee"),
    "backends.mkldnn.matmul.fp32_precision": PRECISIONS,
    "backends.mkldnn.conv.fp32_precision": PRECISIONS,
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (True, False),
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": (True, False),
    "utils.deterministic.fill_uninitialized_memory": (True, False),
}
"""Settings that are attributes below `torch.`, with their allowed values."""

_CUDNN_FLAGS = {
    "enabled": (True, False),
    "benchmark": (False, True),
    "deterministic": (False, True),
}

_ATTENTIONS = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")

SETTINGS: Mapping[str, Setting] = {
    "float32_matmul_precision": Setting(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        ("highest", "high", "medium"),
    ),
    **{path: _attribute(path, allowed) for path, allowed in _ATTRIBUTES.items()},
    **{f"backends.cudnn.{name}": _cudnn_flag(name, each) for name, each in _CUDNN_FLAGS.items()},
    **{f"backends.cuda.{name}": _attention(name) for name in _ATTENTIONS},
}
"""By name, in the order in which they are written: the older, coarse names first."""


def usual_value(name: str) -> Value:
    """Return the value of a setting in a fresh torch."""
    return SETTINGS[name].allowed[0]


_COARSE = "float32_matmul_precision"
_IMPLIED = ("backends.cuda.matmul.fp32_precision", "backends.mkldnn.matmul.fp32_precision")
"""Settings that writing the coarse name writes as well."""


def current_settings() -> dict[str, Value]:
    """Return the settings that differ from those of a fresh torch."""
    found: dict[str, Value] = {}
    for name, setting in SETTINGS.items():
        value = _read(setting)
        if value is not None and value != usual_value(name):
            found[name] = value
    return found


def _read(setting: Setting) -> Value | None:
    """Return a value; None if torch refuses because newer settings made it ambiguous."""
    try:
        return setting.get()
    except RuntimeError:
        return None


@contextlib.contextmanager
def default_device(modes: Mapping[str, Any]) -> Generator[None, None, None]:
    """Make new tensors on the default device of the program."""
    wanted = torch.device(modes["default_device"] or "cpu")
    if torch.get_default_device() == wanted:
        yield
        return
    with wanted:
        yield


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Generator[None, None, None]:
    """Make new floats of a dtype in the body."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def settings(modes: Mapping[str, Any]) -> Generator[None, None, None]:
    """Set the settings of the modes, and torch's defaults for all others; restore them afterwards.

    A setting that already has its value is not written: writing one can change others, and a
    program that wrote a newer name may not write the older one.
    """
    chosen: Mapping[str, Value] = modes["settings"]
    usual = {name: usual_value(name) for name in SETTINGS}
    if _COARSE in chosen:
        usual = {name: value for name, value in usual.items() if name not in _IMPLIED}
    before = {name: _read(each) for name, each in SETTINGS.items()}
    _put_on({**usual, **chosen}, chosen)
    try:
        yield
    finally:
        # An ambiguous value was torch's own, and another value written by a newer name.
        known = {name: usual_value(name) if v is None else v for name, v in before.items()}
        _put_on(known, known)


def _put_on(
    wanted: Mapping[str, Value], chosen: Mapping[str, Value] = MappingProxyType({})
) -> None:
    """Write the settings that have another value; an ambiguous one only if it was chosen."""
    for name, value in wanted.items():
        current = _read(SETTINGS[name])
        if current != value and (current is not None or name in chosen):
            SETTINGS[name].set(value)
