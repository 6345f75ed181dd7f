r"""Escape untrusted text for display, so that it cannot move a cursor, or hide or forge a line.

Unprintable characters (control characters and ANSI escapes, line breaks, characters that turn the
direction of writing, lone surrogates) are escaped as in a Python string. Printable text is returned
unchanged.

    one_line("done\x1b[2K\rno failure")   done\x1b[2K\rno failure   (18 characters more, one line)
"""

from ctk.toolkit.case.formats.limits import TEXT_LENGTH

LINE_LENGTH = 2_000
"""Characters of one line for people; the middle of a longer text is left out."""

REASON_LENGTH = 300
"""Characters of one item in a line or table: a failure, the reason of a refusal."""


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
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode("ascii")
        for part in text
    )


def many_lines(text: str) -> str:
    """Return a text as printable lines: line breaks and tabs stay, the rest as in `one_line`."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(one_line(p, len(p)) for p in line.split("\t")) for line in lines)


def quote_value(value: object, limit: int = 80) -> str:
    """Return the `repr` of a value for a message, cut."""
    if isinstance(value, str | bytes | tuple | list):
        value = value[: 2 * limit]
    return one_line(repr(value), limit)


def is_plain(text: str, limit: int = TEXT_LENGTH) -> bool:
    """Return whether a text is one printable line of at most `limit` characters."""
    return len(text) <= limit and text.isprintable()


def words(text: str) -> tuple[str, ...]:
    """Return the words of a table."""
    return tuple(text.split())
