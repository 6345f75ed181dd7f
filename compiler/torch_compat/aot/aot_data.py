"""What AOTAutograd knows of a compiled graph, as JSON and back: an allow-list, and no pickle.

    InputAliasInfo(is_leaf=True, ...)  <->  {"object": ["InputAliasInfo", {"is_leaf": true, ...}]}
    OutputType.alias_of_input          <->  {"enum": ["OutputType", "alias_of_input"]}
    torch.Size([2, 3]), {0: {1}}       <->  {"size": [2, 3]}, {"dict": [[0, {"set": [1]}]]}
    torch.channels_last, torch.Tensor  <->  {"torch": "channels_last"}, {"type": "Tensor"}

An object is its attributes, all of them: what a class computes when it is built is kept as well,
because it reads settings of the process. What is not on the list has no data form: tensors and
their subclasses, effect tokens, symbols, functions.
"""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

Json = Any
"""What `json` writes: None, bools, ints, strings, lists, and dicts by strings."""

_OBJECTS = {
    "schemas": (
        "InputAliasInfo",
        "MemoryFormatMeta",
        "OutputAliasInfo",
        "PlainTensorMeta",
        "ViewAndMutationMeta",
    ),
    "runtime_wrappers": ("AOTDedupeWrapper", "AOTSyntheticBaseWrapper"),
}
"""Classes of `torch._functorch._aot_autograd` by module, in torch 2.11 and 2.13."""

_ENUMS = {"schemas": ("MutationType", "OutputType")}

_NUMBERS = (bool, complex, float, int, str, type(None))
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FunctionalTensor)
_SYMBOLS = (torch.SymBool, torch.SymFloat, torch.SymInt)
_TYPES: tuple[type, ...] = (*_NUMBERS, *_TENSORS, *_SYMBOLS)

_VIEW_SUFFIX = "_ViewMeta"


class NoDataForm(Exception):
    """Something of a compiled graph has no data form; the message says what."""


def encode(value: Any) -> Json:
    """Return a value of AOTAutograd as JSON.

    Raises:
        NoDataForm: Something in it is not on the list.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is list:
        return [encode(each) for each in value]
    for tag, kinds, write in _FORMS:
        if isinstance(value, kinds):
            return {tag: write(value)}
    if type(value) in _classes(enums=True).values():
        return {"enum": [type(value).__name__, value.name]}
    if type(value) in _classes(enums=False).values():
        held = {name: encode(each) for name, each in vars(value).items()}
        return {"object": [type(value).__name__, held]}
    if type(value).__name__ == "ViewMetaSequence":
        return {"views": [_encode_view(each) for each in value.sequence]}
    raise NoDataForm(f"a {type(value).__qualname__} that AOTAutograd needs at run time")


def decode(data: Json) -> Any:
    """Return what `encode` was given.

    Raises:
        NoDataForm: This is no such data.
    """
    if isinstance(data, list):
        return [decode(each) for each in cast("list[Json]", data)]
    if not isinstance(data, dict):
        return data
    try:
        ((tag, held),) = cast("dict[str, Json]", data).items()
        return _READ[tag](held)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise NoDataForm(f"no data of AOTAutograd: {str(data)[:80]}") from error


@cache
def _classes(*, enums: bool) -> dict[str, type]:
    found: dict[str, type] = {}
    for module, names in (_ENUMS if enums else _OBJECTS).items():
        owner = importlib.import_module(f"torch._functorch._aot_autograd.{module}")
        found |= {name: getattr(owner, name) for name in names}
    return found


def _encode_type(value: type) -> Json:
    if value not in _TYPES:
        raise NoDataForm(f"an input or output of class {value.__qualname__}")
    return value.__name__


def _encode_dict(value: Mapping[Any, Any]) -> Json:
    return [[encode(key), encode(each)] for key, each in value.items()]


def _encode_all(value: Any) -> Json:
    return [encode(each) for each in value]


def _encode_view(view: Any) -> Json:
    """Return a view that functionalization has seen: its name and its arguments.

    One with symbols is None: torch does not replay a sequence that has one (torch 2.11, 2.13).
    """
    if view.has_symbolic_inputs:
        return None
    return [type(view).__name__, [_encode_argument(each) for each in view.as_tuple()]]


def _encode_argument(value: Any) -> Json:
    if type(value).__name__ == "InverseReturnMode":
        return {"inverse": value.name}
    return encode(value)


def _decode_views(views: list[Json]) -> Any:
    utils = importlib.import_module("torch._functorch._aot_autograd.functional_utils")
    sequence = utils.ViewMetaSequence.__new__(utils.ViewMetaSequence)
    if any(view is None for view in views):
        return None
    sequence.sequence = [_decode_view(name, arguments) for name, arguments in views]
    sequence.metadata = None
    return sequence


def _decode_view(name: str, arguments: list[Json]) -> Any:
    functionalization = torch._C._functionalization
    if not name.endswith(_VIEW_SUFFIX):
        raise ValueError(name)
    return getattr(functionalization, name)(tuple(decode(each) for each in arguments))


def _decode_object(held: Json) -> Any:
    name, attributes = held
    value: Any = object.__new__(_classes(enums=False)[name])
    for attribute, each in attributes.items():
        object.__setattr__(value, attribute, decode(each))  # some of them are frozen
    return value


def _decode_torch(name: str) -> Any:
    value = getattr(torch, name)
    if not isinstance(value, _NAMED):
        raise TypeError(name)
    return value


def _is_name(value: Any) -> str:
    return str(value).removeprefix("torch.")


_NAMED = (torch.dtype, torch.layout, torch.memory_format)

_FORMS: tuple[tuple[str, Any, Callable[[Any], Json]], ...] = (
    ("size", torch.Size, _encode_all),  # a tuple as well
    ("tuple", tuple, _encode_all),
    ("set", (set, frozenset), lambda value: _encode_all(sorted(value))),
    ("dict", dict, _encode_dict),
    ("type", type, _encode_type),
    ("torch", _NAMED, _is_name),
    ("device", torch.device, str),
)

_READ: Mapping[str, Callable[[Any], Any]] = {
    "size": lambda held: torch.Size(decode(held)),
    "tuple": lambda held: tuple(decode(held)),
    "set": lambda held: set(decode(held)),
    "dict": lambda held: {decode(key): decode(each) for key, each in held},
    "type": lambda held: {kind.__name__: kind for kind in _TYPES}[held],
    "torch": _decode_torch,
    "device": torch.device,
    "enum": lambda held: cast(Any, _classes(enums=True)[held[0]])[held[1]],
    "object": _decode_object,
    "views": _decode_views,
    "inverse": lambda held: torch._C._functionalization.InverseReturnMode.__members__[held],
}
