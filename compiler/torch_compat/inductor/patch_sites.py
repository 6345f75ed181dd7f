"""Places of torch that are patched for a region: a function is wrapped there, and put back.

    site = Site(FakeTensorMode, "dispatch")
    with wrapped(site, lambda original: partial(noting, original)):
        ...  # whoever calls `FakeTensorMode.dispatch` calls `noting`

What it does not do: keep other threads away, whose calls go through the wrapper as well.
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
def wrapped(site: Site, wrap: Callable[[Any], Any]) -> Generator[None]:
    """Put `wrap(original)` in the place of a function inside the block.

    The original is what the owner itself holds: a class method comes as its descriptor.
    """
    original = vars(site.owner)[site.name]
    setattr(site.owner, site.name, wrap(original))
    try:
        yield
    finally:
        setattr(site.owner, site.name, original)
