"""Spread dataclasses of options into the parameters of a command, which Typer cannot do itself.

    @dataclass                                def check(subject: SubjectOptions) -> Answer: ...
    class SubjectOptions:
        subject: Annotated[str, Argument()]   flattened(check) has the signature
        target: str | None = None             (*, subject: ..., target: str | None = None)

So an option is declared once, and a command names the groups that it takes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def flattened(run: Callable[..., T]) -> Callable[..., T]:
    """Return `run` with each parameter that is a dataclass replaced by the fields of that class."""
    hints = get_type_hints(run, include_extras=True)
    groups: dict[str, Any] = {
        each: hints[each]
        for each in inspect.signature(run).parameters
        if dataclasses.is_dataclass(hints[each])
    }
    parameters = [
        flat
        for each in inspect.signature(run).parameters.values()
        for flat in _flat(each.replace(annotation=hints[each.name]), groups.get(each.name))
    ]

    @functools.wraps(run)
    def call(**values: object) -> T:
        names = {name: [f.name for f in dataclasses.fields(g)] for name, g in groups.items()}
        taken = {
            name: group(**{field: values.pop(field) for field in names[name]})
            for name, group in groups.items()
        }
        return run(**values, **taken)

    return with_parameters(call, parameters)


def with_parameters(
    function: Callable[..., T], parameters: list[inspect.Parameter]
) -> Callable[..., T]:
    """Return the function, which takes keywords, with a signature that names them."""
    spelled: Any = function
    spelled.__signature__ = inspect.Signature(parameters)
    spelled.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


def _flat(parameter: inspect.Parameter, group: Any) -> Iterator[inspect.Parameter]:
    if group is None:
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=hints[field.name],
        )
