"""Patch a function of torch for a region: wrap it, and restore it.

    site = Site(FakeTensorMode, "dispatch")
    with wrapped(site, lambda original: partial(noting, original)):
        ...  # callers of `FakeTensorMode.dispatch` call `noting`

Calls of other threads go through the wrapper as well.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Site:
    """A function that can be wrapped for the time of one compile: `getattr(owner, name)`."""

    owner: object
    name: str


@contextmanager
def wrap_site(site: Site, wrap: Callable[[Any], Any]) -> Generator[None]:
    """Put `wrap(original)` in place of a function; of class methods it gets the descriptor."""
    if site.name not in vars(site.owner):
        raise AttributeError(f"no {site.name} to wrap", name=site.name, obj=site.owner)
    original = vars(site.owner)[site.name]
    setattr(site.owner, site.name, wrap(original))
    try:
        yield
    finally:
        setattr(site.owner, site.name, original)


def replace_attribute(owner: Any, name: str, new: object) -> Callable[[], None]:
    """Set an attribute; return the function that restores it, unless it was set again since."""
    original = getattr(owner, name)

    def undo() -> None:
        if getattr(owner, name) is new:
            setattr(owner, name, original)

    setattr(owner, name, new)
    return undo
