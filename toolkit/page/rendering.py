"""Render a page as one HTML file that loads nothing, runs only the scripts of this room, and shows
hostile text as text.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ctk.toolkit.case.formats.plain_text import many_lines
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.page.page import Page

_FOLDER = Path(__file__).parent

_MARK = '<meta name="generator" content="ctk">'

MODULE = (
    "data.js",
    "controls.js",
    "diff.js",
    "steps.js",
    "neighbourhood.js",
    "whole.js",
    "graph.js",
)
"""The files of the one module, in order."""


def render(page: Page) -> str:
    """Return the HTML of a page."""
    scripts = [_static("theme.js")]
    if page.trace is not None:
        scripts.append(_vendored())
    module = "\n".join(map(_static, MODULE if page.trace is not None else MODULE[:2]))
    style = _static("page.css")
    return _template().render(
        page=page,
        mark=Markup(_MARK),
        policy=_policy([style], [*scripts, module]),
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        module=Markup(module),
        data=Markup(_json(_data_of(page))),
    )


def is_page(path: Path) -> bool:
    """Return whether a file is a page that `render` made, by its beginning."""
    with path.open("rb") as file:
        return _MARK.encode() in file.read(200)


def frame(page: Page, height: int = 640) -> str:
    """Return a page for a notebook: in a frame without the rights of the notebook."""
    return (
        f'<iframe sandbox="allow-scripts" width="100%" height="{height}" '
        f'title="ctk report" srcdoc="{escape(render(page))}"></iframe>'
    )


def _policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return the content security policy that allows these texts and nothing else."""
    rules = {
        "default-src": ["'none'"],
        "style-src": [_digest(style) for style in styles],
        "script-src": [_digest(script) for script in scripts],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "require-trusted-types-for": ["'script'"],
    }
    return "; ".join(f"{name} {' '.join(values)}" for name, values in rules.items())


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data_of(page: Page) -> Mapping[str, object]:
    if page.trace is None:
        return {}
    show = cache(_show)  # names and operators repeat
    return {
        "trace": _compact(encode(page.trace), show),
        "focus": _compact(asdict(page.focus), show),
    }


def _compact(value: object, show: Callable[[str], str]) -> Any:
    """Return JSON values with shown texts, without keys that are null, false or empty text.

    The viewers read a missing key as such a value.
    """
    if isinstance(value, str):
        return show(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {
            key: _compact(each, show)
            for key, each in items
            if each is not None and each is not False and each != ""
        }
    if isinstance(value, list | tuple):
        return [_compact(each, show) for each in cast("Sequence[object]", value)]
    return value


def _json(data: object) -> str:
    """Return JSON that ends no script element and begins no comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _static(name: str) -> str:
    return (_FOLDER / "static" / name).read_text(encoding="utf-8")


@cache
def _vendored() -> str:
    return (_FOLDER / "vendor" / "dagre.min.js").read_text(encoding="utf-8")


@cache
def _template() -> Any:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = (_FOLDER / "page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(text)


def _printable(value: object) -> object:
    """Return a text as it is shown; markup of this room as it is."""
    return _show(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _show(text: str) -> str:
    """Return a text without secrets, printable: before it is escaped, which hides a secret."""
    return many_lines(scrub(text))
