r"""A stranger's text as people may see it: nothing in it moves a cursor, hides or forges a line.

What is not printable (control characters and with them ANSI escapes, line breaks, characters that
turn the direction of writing, lone surrogates) is written as Python writes it in a string. Text
that is printable comes back as it is.

    one_line("done\x1b[2K\rno failure")   done\x1b[2K\rno failure   (18 characters more, one line)

Every text of a case goes through here where it is read (`manifest`, `as_json`, `dump`) or shown.
What it does not do: paths of this machine and secrets (`scrub`).
"""

from ctk.toolkit.case.formats.limits import TEXT_LENGTH

LINE_LENGTH = 2_000
"""Characters of one line for people; the middle of a longer text is left out."""

REASON_LENGTH = 300
"""Characters of one thing among others in a line or table: a failure, why something was refused."""


def one_line(text: str, limit: int = LINE_LENGTH) -> str:
    """Return a text as one printable line of at most about `limit` characters.

    >>> one_line("a\\nb")
    'a\\\\nb'
    """
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else _escaped(part) for part in text)


def many_lines(text: str) -> str:
    """Return a text as printable lines: line breaks and tabs stay, anything else as in a line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(one_line(p, len(p)) for p in line.split("\t")) for line in lines)


def quote_value(value: object, limit: int = 80) -> str:
    """Return a value for a message: its `repr`, cut."""
    if isinstance(value, str | bytes | tuple | list):
        value = value[: 2 * limit]
    return one_line(repr(value), limit)


def is_plain(text: str, limit: int = TEXT_LENGTH) -> bool:
    """Return whether a text is one printable line of at most `limit` characters."""
    return len(text) <= limit and text.isprintable()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
