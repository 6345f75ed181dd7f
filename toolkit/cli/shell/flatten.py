"""Spread dataclasses of options into the parameters of a command, which Typer cannot do itself.

    @dataclass                                        def check(options: CheckOptions): ...
    class CheckOptions:
        target: Annotated[str | None, Flag(...)]      flatten_parameters(check) has the signature
        say: Say = silent                             (*, target: Annotated[..., typer.Option(...)])

So an option is declared once, and a command names its group. A parameter of a command may have a
`Flag` as well. A field without a `Flag` or a Typer option of its own has no option.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
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
    declared: list[inspect.Parameter] = []
    groups: dict[str, list[str]] = {}
    for parameter in inspect.signature(run).parameters.values():
        hint: Any = hints[parameter.name]
        if dataclasses.is_dataclass(hint):
            fields = list(_option_fields(hint))
            groups[parameter.name] = [field.name for field in fields]
            declared += fields
        else:
            declared.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hint))
    flags = {each.name: flag_of(each.annotation) for each in declared}

    @functools.wraps(run)
    def call(**values: object) -> T:
        for name, flag in flags.items():
            if flag is not None and flag.parse is not None:
                values[name] = flag.parse(values[name])
        for name, names in groups.items():
            values[name] = hints[name](**{each: values.pop(each) for each in names})
        return run(**values)

    ordered = sorted(declared, key=lambda each: _rank(flags[each.name]))
    return with_parameters(call, [_with_option(each, flags[each.name]) for each in ordered])


def with_parameters(
    function: Callable[..., T], parameters: Sequence[inspect.Parameter]
) -> Callable[..., T]:
    """Return the function, which takes keywords, with a signature that names them."""
    spelled: Any = function
    spelled.__signature__ = inspect.Signature(parameters)
    spelled.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _option_fields(group: Any) -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass that are options; their types must not be strings."""
    for parameter in inspect.signature(group).parameters.values():
        if hasattr(parameter.annotation, "__metadata__"):
            yield parameter.replace(kind=parameter.KEYWORD_ONLY)


def _rank(flag: Flag | None) -> int:
    return 0 if flag is None else SECTIONS.index(flag.section)


def _with_option(parameter: inspect.Parameter, flag: Flag | None) -> inspect.Parameter:
    """Return a parameter with a `Flag` as Typer declares it."""
    if flag is None:
        return parameter
    default = parameter.default if flag.typed is None else None
    option = typer.Option(
        *flag.names,
        metavar=flag.metavar,
        min=flag.minimum,
        help=flag.help,
        show_default=default not in (None, ""),
        autocompletion=COMPLETIONS.get(parameter.name),
    )
    typed = flag.typed or parameter.annotation.__origin__
    return parameter.replace(default=default, annotation=Annotated[typed, option])
