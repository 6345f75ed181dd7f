"""JSON documents as declared types: write them, read them back, and report errors with their place.

A document is a frozen dataclass marked with `@document`; its fields are its schema. Reading is
strict: no unknown keys, no other types (a bool is not an integer), no NaN, no duplicate keys. A
name that Python reserves ends in `_` in the class and not in the JSON (`pass_` is `"pass"`).

    @document
    @dataclass(frozen=True, slots=True)
    class Autocast:
        device_type: str
        dtype: str

    decode(Autocast, '{"device_type": "cpu", "dtype": 3}', where="a.json")
    # CaseError: a.json: $.dtype: expected a valid string, found 3
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ctk.compiler.errors import CaseError, SchemaError, nearest
from ctk.toolkit.case.formats.limits import DOCUMENT_NBYTES
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.strict_json import dump_json, parse_json, read_json, short

T = TypeVar("T")

_RULES = {
    "extra": "forbid",
    "strict": True,
    "allow_inf_nan": False,
    "alias_generator": lambda name: name.removesuffix("_"),
}


def document(declared: type[T]) -> type[T]:
    """Mark a dataclass as a JSON document: only its keys, exactly its types."""
    declared.__pydantic_config__ = _RULES  # type: ignore[attr-defined]  # pydantic's protocol
    return declared


@functools.cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def encode(value: object) -> dict[str, Any]:
    """Return a document as JSON values."""
    return _adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def json_schema(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a document, as it is written."""
    schema = _adapter(kind).json_schema(by_alias=True, mode="serialization")
    for part in (schema, *schema.get("$defs", {}).values()):
        for value in part.get("properties", {}).values():
            value.pop("title", None)  # the key again, in capitals
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def decode(kind: type[T], text: str | bytes, *, where: str) -> T:
    """Return the document in a text.

    Args:
        text: JSON, possibly untrusted.

    Raises:
        CaseError: It is not JSON, or not such a document; the message has the place, the value
            there and the allowed ones.
    """
    return convert(kind, parse_json(text, where=where), where=where)


def convert(kind: type[T], data: Mapping[str, object], *, where: str) -> T:
    """Return the document that a part of parsed JSON holds; raises as `decode` does.

    The values are validated as text, so that strict types are those of JSON (a list is a tuple).
    """
    try:
        return _adapter(kind).validate_json(json.dumps(data))
    except ValidationError as error:
        raise CaseError(one_line(f"{where}: {_explain(kind, data, error)}")) from error


def read_document(
    kind: type[T],
    path: Path,
    *,
    next_step: str,
    schema: int | None = None,
    limit: int = DOCUMENT_NBYTES,
) -> T:
    """Return the document in a file.

    Args:
        next_step: Advice if it cannot be read; ends the message.
        schema: The expected value of its key `schema`; checked first.

    Raises:
        CaseError: It is missing, damaged, of another schema, or not such a document.
    """
    data = read_json(path, next_step=next_step, limit=limit)
    if schema is not None:
        _check_version(data, schema, f"{path.name} in {path.parent}")
    try:
        if schema is not None and type(data.get("schema")) is not int:
            seen = short(data.get("schema"))
            raise CaseError(f"{path.name}: $.schema: expected the number {schema}, found {seen}")
        return convert(kind, data, where=path.name)
    except CaseError as error:
        raise CaseError(f"{error}, in {path.parent}; {next_step}") from error


def _check_version(data: Mapping[str, object], wanted: int, where: str) -> None:
    """Refuse a whole document of another ctk: the advice about damage is not for it."""
    found = data.get("schema")
    if type(found) is not int:
        return
    if found > wanted:
        raise SchemaError(
            f"{where}: written by a newer ctk (schema {found}, this ctk reads up to {wanted}): "
            "upgrade: pip install --upgrade ctk"
        )
    if found < wanted:
        raise SchemaError(
            f"{where}: written by an older ctk (schema {found}, this ctk reads {wanted}): "
            "make it again with this ctk"
        )


def write_document(value: object) -> str:
    """Return the text of a document, with a fixed layout."""
    return dump_json(encode(value))


# --- errors -------------------------------------------------------------------------------------


def _explain(kind: type, data: object, error: ValidationError) -> str:
    """Return the first mistake: its place in the document, the error, the allowed values."""
    first, *others = error.errors(include_url=False)
    more = f" (and {len(others)} more mistakes)" if others else ""
    *parents, last = first["loc"] or ("",)
    reason = first.get("ctx", {}).get("error")  # raised by a type of `checked_types`
    match first["type"]:
        case "missing":
            present = cast("Mapping[str, object]", _at(data, parents))
            hint = nearest(str(last), list(present))
            return f"{_path(data, parents)}: {last!r} is missing{hint}{more}"
        case "unexpected_keyword_argument":
            known = _allowed_keys(kind, data, parents)
            hint = f"{nearest(str(last), known)}; allowed: {', '.join(known)}"
            return f"{_path(data, parents)}: unknown key {last!r}{hint}{more}"
        case "value_error":
            return f"{_path(data, first['loc'])}: {reason}{more}"
        case "json_invalid":
            return f"{first['msg']}: it is not a document of ctk, or damaged"
        case _:
            return f"{_path(data, first['loc'])}: {_mismatch(dict(first))}{more}"


def _mismatch(error: Mapping[str, Any]) -> str:
    wanted = str(error["msg"]).removeprefix("Input should be ")
    allowed = str(error.get("ctx", {}).get("expected", "")).replace(" or ", ", ").split(", ")
    found = error["input"]
    hint = nearest(found, [name.strip("'") for name in allowed]) if isinstance(found, str) else ""
    return f"expected {wanted}, found {short(found)}{hint}"


def _steps(data: object, location: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Return a location without the tags of unions, which do not occur in the document."""
    steps: list[Any] = []
    for number, part in enumerate(location):
        inside = isinstance(data, dict) and part in cast("dict[object, object]", data)
        inside |= isinstance(data, list) and isinstance(part, int)
        if inside:
            data = cast("Any", data)[part]
        if inside or number == len(location) - 1:
            steps.append(part)
    return steps


def _at(data: Any, location: list[Any] | tuple[Any, ...]) -> object:
    for part in _steps(data, location):
        data = data[part] if isinstance(data, list) or part in data else {}
    return data


def _path(data: object, location: list[Any] | tuple[Any, ...]) -> str:
    """Return a location as a JSON path: `$.modes.autocast[0].dtype`."""
    text = "$"
    for part in _steps(data, location):
        is_name = isinstance(part, str) and part.isidentifier()
        text += f".{part}" if is_name else f"[{part!r}]"
    return text


def _allowed_keys(kind: type, data: object, location: list[Any]) -> list[str]:
    schema = _adapter(kind).json_schema(by_alias=True)
    node = _resolve(schema, schema)
    for part in _steps(data, location):
        below = node.get("properties", {}).get(part) or node.get("items")
        node = _resolve(below or node.get("additionalProperties") or {}, schema)
    return list(node.get("properties", {}))


def _resolve(node: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Follow a reference; of alternatives, take the first other than null."""
    while "$ref" in node or "anyOf" in node:
        if "anyOf" in node:
            node = next(each for each in node["anyOf"] if each.get("type") != "null")
        else:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node
