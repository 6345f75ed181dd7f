"""Words for the search that avoids a duplicate: three queries, each broader than the one before.

    "missing_argnames" RuntimeError randperm     words of the message, the exception, the operators
    inductor RuntimeError randperm               the part, the exception, the operators
    inductor randperm                            the part and the guilty operator

Numbers, addresses, paths and names of one run are left out: another report has others.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from ctk.toolkit.bug_report.labels import guilty_first, symptom_of
from ctk.toolkit.bug_report.subject import IssueSubject

REPOSITORY = "pytorch/pytorch"
_RUN_WORDS = 6
_CHANGING = re.compile(
    r"0x[0-9a-fA-F]+|(?:~|\.{3})?(?:/[\w.+@-]+)+|\w*\d[\w.]*|[\"'`][^\"'`]*[\"'`]|[^\w\s.-]"
)
"""Addresses, paths, numbers, quoted names, signs: another report of the failure has others."""


@dataclass(frozen=True, slots=True)
class Query:
    """One search."""

    words: str

    @property
    def github(self) -> str:
        """The search as the page of GitHub takes it."""
        return f"repo:{REPOSITORY} is:issue {self.words}"

    @property
    def command(self) -> str:
        """The search as a command."""
        return f"gh search issues --repo {REPOSITORY} --limit 20 -- {quote(self.words)}"


def similar_queries(subject: IssueSubject, component: str) -> tuple[Query, ...]:
    """Return the searches, the strictest first."""
    signature = subject.signature
    names = guilty_first(subject)
    symptom = symptom_of(signature)
    what = [_word(signature.exception or ""), symptom]
    cause = subject.whole.cause if subject.whole is not None else ""
    message = stable_words(signature.message) if signature.exception else ""
    strict = [f'"{message}"' * bool(message), *what, *(names[:3] or [component, cause])]
    middle = [component, *what, cause, *names[:2]]
    broad = [component, *(names[:1] or [symptom, cause])]
    texts = [" ".join(filter(None, words)) for words in (strict, middle, broad)]
    return tuple(Query(text) for text in dict.fromkeys(filter(None, texts)))


def stable_words(message: str) -> str:
    """Return the longest run of words of a message that has no part of one run.

    >>> stable_words("shape mismatch at 0x7f, expected a tensor of rank 3")
    'expected a tensor of rank'
    """
    runs = [run.split() for run in _CHANGING.sub("\n", message).split("\n")]
    best: Sequence[str] = max(runs, key=len, default=[])
    return " ".join(_clean(best[:_RUN_WORDS]))


def _clean(words: Sequence[str]) -> Iterator[str]:
    return (word.strip(".-") for word in words if word.strip(".-"))


def _word(text: str) -> str:
    return "".join(re.findall(r"\w+", text))
