r"""Remove secrets and home paths from a text before it is written to a file.

1. `scheme://user:password@host` loses `user:password`; `?token=...` and its like lose the value.
2. The values of environment variables whose names look secret (`HF_TOKEN`, `DB_PASSWORD`) go
   everywhere, also as spelled in a URL, JSON or a Python literal.
3. Well-known shapes go: keys of AWS, GitHub, Hugging Face, OpenAI, Slack, Google, GitLab, PyPI; JSON
   web tokens; `Bearer ...`; private keys; and values in `password = "..."`.
4. The home folder becomes `~`, in each of its spellings.

    fetch("https://me:pw@host/x?sig=9f&y=1")  ->  fetch("https://[secret]@host/x?sig=[secret]&y=1")

The mark has no quote and no backslash, so JSON and Python strings stay valid, and lines keep their
numbers. Not removed: values shorter than `SHORTEST`, plain numbers, common words of graphs, names of
users and hosts, and secrets without a recognizable form.
"""  # noqa: E501  an example of one line

import json
import os
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from ctk.compiler.posix import home_of_user
from ctk.toolkit.case.formats.plain_text import LINE_LENGTH, one_line, words

MARK = "[secret]"

SHORTEST = 8
"""Minimum length of a variable's value to remove: shorter ones occur by chance."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|APIKEY|ACCESSKEY"
    r"|CREDENTIALS?)|KEYS?|PWD|PASS|O?AUTH|AUTHORIZATION|COOKIES?|SESSION|SIGNATURE|DSN)(?:$|_)"
)
_HARMLESS_NAMES = frozenset(
    ("PWD", "OLDPWD", "SSH_AUTH_SOCK", "DESKTOP_SESSION", "GDMSESSION", "SESSION_MANAGER")
)
_HARMLESS_STARTS = ("XDG_", "DBUS_", "GNOME_", "KDE_")
_HARMLESS_VALUES = frozenset(
    words("""
    placeholder call_function call_module get_attr inductor aot_eager cudagraphs torchscript
    disabled required optional password localhost anonymous
    """)
)
"""Words of graphs and cases: removing them would break a case and protect no secret."""

_URL = re.compile(r"(?<=://)(?!git@)(?!(?:\{[^{}]*\}:?)+@)(?!%s(?::%s)?@)[^\s/?#'\"\\<>]+(?=@)")
_QUERY = re.compile(
    r"(?i)(?<=[?&;])((?:[\w-]*(?:token|secret|password|passwd|signature|credential|api[_-]?key"
    r"|access[_-]?key|accesskeyid)[\w-]*|sig|key|auth|code)=)(?!\[secret\]|\{|%)[^\s&;'\"\\#<>)]+"
)
_ASSIGNED = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|secret_key|api_?key|access_?key|private_key"
    r"|auth_token|access_token|secret_access_key)(\\?[\"'])?\s*[=:]\s*(\\?[\"']))"
    r"(?!\[secret\])[^\"'\\\s{}]{6,}(?=\3)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic|token)(\s+)(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}")
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\w+/=\s\\:,.-]*?(?:-----END [A-Z ]*PRIVATE KEY-----"
    r"|(?=[\"'])|\Z)"
)
_SHAPES = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|hf_[A-Za-z0-9]{16,}|sk-(?=[\w-]*\d)[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|glpat-[\w-]{16,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
)


def scrub(text: str) -> str:
    """Return a text without secrets and home paths; idempotent."""
    return shorten_home(without_secrets(text))


def scrub_line(text: str, limit: int = LINE_LENGTH) -> str:
    """Return a text as one line without secrets; a cut one no longer has their forms."""
    return one_line(scrub(text), limit)


def without_secrets(text: str) -> str:
    """Return a text without secrets: for a terminal, whose user needs the paths."""
    text = _KEY_BLOCK.sub(_keep_lines, text)
    values = _pattern(secret_values())
    text = values.sub(_keep_lines, text) if values else text
    if "://" in text:
        text = _URL.sub(MARK, text)
    text = _QUERY.sub(rf"\1{MARK}", text)
    text = _ASSIGNED.sub(rf"\1{MARK}", text)
    text = _BEARER.sub(rf"\1\2{MARK}", text)
    return _SHAPES.sub(MARK, text)


def find_scrubbed_lines(before: str, after: str) -> list[int]:
    """Return the numbers of the lines that `scrub` changed."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return [number for number, (old, new) in enumerate(pairs, 1) if old != new]


def secret_values() -> tuple[str, ...]:
    """Return the values of the variables that look secret, each line of a long one by itself."""
    found = dict[str, None]()
    for name, value in os.environ.items():
        if _is_secret_name(name.upper()):
            lines = value.splitlines() if "\n" in value else []
            found |= dict.fromkeys(each for each in (value, *lines) if _is_secret_value(each))
    return tuple(found)


def _is_secret_name(name: str) -> bool:
    is_harmless = name in _HARMLESS_NAMES or name.startswith(_HARMLESS_STARTS)
    return not is_harmless and _SECRET_NAME.search(name) is not None


def _is_secret_value(value: str) -> bool:
    value = value.strip()
    is_number = re.fullmatch(r"[-+\d.e]+", value) is not None and len(value) < 2 * SHORTEST
    return len(value) >= SHORTEST and not is_number and value.lower() not in _HARMLESS_VALUES


@lru_cache(maxsize=8)
def _pattern(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern of the values in each of their spellings, the longest first."""
    spelt = {spelling for value in values for spelling in _spellings(value.strip())}
    parts = [_delimit(each) for each in sorted(spelt, key=len, reverse=True)]
    return re.compile("|".join(parts)) if parts else None


def _spellings(value: str) -> tuple[str, ...]:
    """Return the spellings of a value in text, JSON, a Python literal and a URL."""
    python, text = repr(value)[1:-1], json.dumps(value)[1:-1]
    both = json.dumps(python)[1:-1]
    return (value, python, text, both, quote(value), quote(value, safe=""))


def _delimit(value: str) -> str:
    """Return the pattern of a value; a plain word matches whole words only."""
    escaped = re.escape(value)
    return rf"(?<!\w){escaped}(?!\w)" if value.isalpha() else escaped


def _keep_lines(found: re.Match[str]) -> str:
    return MARK + "\n" * found[0].count("\n")


def shorten_home(text: str) -> str:
    """Replace the home folder at the start of paths in a text by `~`."""
    for home in _homes(os.environ.get("HOME", ""), os.environ.get("USER", "")):
        if home in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(home)}(?=[^\w.-]|\.?$|\.\s)", "~", text)
    return text


@lru_cache(maxsize=8)
def _homes(home: str, user: str) -> tuple[str, ...]:
    """Return the spellings of the home folder, the longest first, without `/` and `/home`."""
    spelt = [home, os.path.realpath(home) if home else "", *_home_of_user()]
    spelt += [f"/home/{user}", f"/Users/{user}"] if user and user != "root" else []
    whole = {each.rstrip("/") for each in spelt if each.startswith("/")}
    whole -= {"", "/home", "/Users", "/tmp", "/var"}
    return tuple(sorted(whole, key=len, reverse=True))


def _home_of_user() -> tuple[str, ...]:
    home = home_of_user()
    return (str(Path("~").expanduser()),) if home is None else (home, str(Path(home).resolve()))
