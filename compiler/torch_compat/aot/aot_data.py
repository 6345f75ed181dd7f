"""AOTAutograd's metadata of a compiled graph as JSON and back: an allow-list, and no pickle.

    InputAliasInfo(is_leaf=True, ...)  <->  {"object": ["InputAliasInfo", {"is_leaf": true, ...}]}
    OutputType.alias_of_input          <->  {"enum": ["OutputType", "alias_of_input"]}
    torch.Size([2, 3]), {0: {1}}       <->  {"size": [2, 3]}, {"dict": [[0, {"set": [1]}]]}
    torch.channels_last, torch.Tensor  <->  {"torch": "channels_last"}, {"type": "Tensor"}

An object is all of its attributes, also the computed ones, because it reads
settings of the process. Classes outside the list have no data form: tensors and their subclasses,
effect tokens, symbols, functions.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from functools import cache
from typing import Any, cast

import torch

from ctk.compiler.records import Form, Forms, Json, shown, torch_value, torch_word

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
"""Classes of `torch._functorch._aot_autograd` by module."""

_ENUMS = {"schemas": ("MutationType", "OutputType")}

_NUMBERS = (bool, complex, float, int, str, type(None))
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SYMBOLS = (torch.SymBool, torch.SymFloat, torch.SymInt)

_VIEW_SUFFIX = "_ViewMeta"


class NoDataForm(Exception):
    """A part of a compiled graph has no data form; the message names it."""


def encode(value: Any) -> Json:
    """Return a value of AOTAutograd as JSON.

    Raises:
        NoDataForm: A value in it is not on the list.
    """
    return _FORMS.write(value)


def decode(data: Json) -> Any:
    """Return the value of `encode`'s JSON.

    Raises:
        NoDataForm: The data is malformed.
    """
    try:
        return _FORMS.read(data)
    except _MALFORMED as error:
        raise NoDataForm(f"not data of AOTAutograd: {shown(data)}") from error


@cache
def _classes(*, enums: bool) -> dict[str, type]:
    classes: dict[str, type] = {}
    for module, names in (_ENUMS if enums else _OBJECTS).items():
        owner = importlib.import_module(f"torch._functorch._aot_autograd.{module}")
        classes |= {name: getattr(owner, name) for name in names}
    return classes


@cache
def _types() -> dict[str, type]:
    """Return the classes of inputs and outputs by name."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    return {each.__name__: each for each in (*_NUMBERS, *_TENSORS, *_SYMBOLS, FunctionalTensor)}


def _encode_type(value: type) -> Json:
    if value not in _types().values():
        raise NoDataForm(f"an input or output of class {value.__qualname__}")
    return value.__name__


def _encode_object(value: Any) -> Json:
    """Return an object of a listed class, or an enumeration's member, or a sequence of views."""
    name = type(value).__name__
    if type(value) in _classes(enums=True).values():
        return {"enum": [name, value.name]}
    if type(value) in _classes(enums=False).values():
        return {"object": [name, {key: encode(held) for key, held in vars(value).items()}]}
    if name == "ViewMetaSequence":
        return {"views": [_encode_view(view) for view in value.sequence]}
    raise NoDataForm(f"a {type(value).__qualname__} that AOTAutograd needs at run time")


def _encode_view(view: Any) -> Json:
    """Return a view that functionalization has seen: its name and its arguments.

    One with symbols is None: torch does not replay a sequence that has one.
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
    return getattr(functionalization, name)(tuple(decode(argument) for argument in arguments))


def _decode_object(held: Json) -> Any:
    name, attributes = held
    value: Any = object.__new__(_classes(enums=False)[name])
    for attribute, each in attributes.items():
        object.__setattr__(value, attribute, decode(each))  # some of them are frozen
    return value


_NAMED = (torch.dtype, torch.layout, torch.memory_format)
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError)

_FORMS = Forms(
    "value of AOTAutograd",
    (bool, int, str),
    (
        Form(  # before tuples: a size is one
            "size",
            (torch.Size,),
            lambda value: _FORMS.write_all(value),
            lambda held: torch.Size(decode(held)),
        ),
        Form(
            "tuple",
            (tuple,),
            lambda value: _FORMS.write_all(value),
            lambda held: tuple(decode(held)),
        ),
        Form(
            "set",
            (set, frozenset),
            lambda value: _FORMS.write_all(sorted(value)),
            lambda held: set(decode(held)),
        ),
        Form(
            "dict",
            (dict,),
            lambda value: [_FORMS.write_all(pair) for pair in value.items()],
            lambda held: {decode(key): decode(part) for key, part in held},
        ),
        Form(
            "type",
            (type,),
            _encode_type,
            lambda held: _types()[held],
        ),
        Form("torch", _NAMED, torch_word, lambda word: torch_value(word, *_NAMED)),
        Form("device", (torch.device,), str, torch.device),
        Form("enum", read=lambda held: cast(Any, _classes(enums=True)[held[0]])[held[1]]),
        Form("object", read=_decode_object),
        Form("views", read=_decode_views),
        Form(
            "inverse",
            read=lambda held: torch._C._functionalization.InverseReturnMode.__members__[held],
        ),
        Form("", (object,), _encode_object),
    ),
    _MALFORMED,
)
