"""Spread dataclasses of options into the parameters of a command, which Typer cannot do itself.

    @dataclass                                        def check(options: CheckOptions): ...
    class CheckOptions:
        target: Annotated[str | None, Flag(...)]      flatten_parameters(check) has the signature
        say: Say = silent                             (*, target: Annotated[..., typer.Option(...)])

So an option is declared once, and a command names its group. A field without a `Flag` or a Typer
option of its own has no option.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from ctk.toolkit.cli.shell.completion import complete_folder, complete_target
from ctk.toolkit.options import SECTIONS, Flag, flag_of

T = TypeVar("T")

COMPLETIONS: dict[str, Callable[[str], object]] = {
    "target": complete_target,
    "out": complete_folder,
}
"""The completion of a field, by its name."""


def flatten_parameters(run: Callable[..., T]) -> Callable[..., T]:
    """Return `run` with each parameter that is a dataclass replaced by the fields of that class."""
    hints = get_type_hints(run, include_extras=True)
    groups: dict[str, Any] = {
        name: hints[name]
        for name in inspect.signature(run).parameters
        if dataclasses.is_dataclass(hints[name])
    }
    fields = {name: _option_fields(group) for name, group in groups.items()}
    placed: list[tuple[int, inspect.Parameter]] = []
    for parameter in inspect.signature(run).parameters.values():
        if parameter.name in groups:
            placed += [(_rank(flag_of(each)), _parameter(each)) for each in fields[parameter.name]]
        else:
            placed.append((0, _keyword_only(parameter, hints[parameter.name])))
    placed.sort(key=lambda pair: pair[0])

    @functools.wraps(run)
    def call(**values: object) -> T:
        taken = {
            name: group(**{each.name: _value(each, values) for each in fields[name]})
            for name, group in groups.items()
        }
        return run(**values, **taken)

    return with_parameters(call, [parameter for _, parameter in placed])


def with_parameters(
    function: Callable[..., T], parameters: Sequence[inspect.Parameter]
) -> Callable[..., T]:
    """Return the function, which takes keywords, with a signature that names them."""
    spelled: Any = function
    spelled.__signature__ = inspect.Signature(parameters)
    spelled.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


def _option_fields(group: Any) -> list["dataclasses.Field[Any]"]:
    """Return the fields of a dataclass that are options; their types must not be strings."""
    return [each for each in dataclasses.fields(group) if hasattr(each.type, "__metadata__")]


def _rank(flag: Flag | None) -> int:
    return 0 if flag is None else SECTIONS.index(flag.section)


def _value(field: "dataclasses.Field[Any]", values: dict[str, object]) -> object:
    """Take the value of a field from those of the command line."""
    flag, value = flag_of(field), values.pop(field.name)
    return value if flag is None or flag.parse is None else flag.parse(value)


def _keyword_only(parameter: inspect.Parameter, annotation: Any) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    flag, annotation = flag_of(field), field.type
    if flag is not None:
        typed = flag.typed or annotation.__origin__  # type: ignore[union-attr]  # it is Annotated
        if flag.typed is not None:
            default = None
        annotation = Annotated[typed, _option(field.name, flag, default)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, keyword, default=default, annotation=annotation)


def _option(name: str, flag: Flag, default: object) -> Any:
    return typer.Option(
        *flag.names,
        metavar=flag.metavar,
        min=flag.minimum,
        help=flag.help,
        show_default=default is not None,
        autocompletion=COMPLETIONS.get(name),
    )
