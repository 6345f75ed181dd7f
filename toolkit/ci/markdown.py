"""The report as Markdown, for the summary of a job.

Texts of tests and programs are hostile here: each stands in a `<code>` element, with character
references for all but letters, digits and harmless signs. So it forms no markup, no HTML, no link
(GitHub links `www.` and addresses of mail even there), no mention and no workflow command. GitHub
takes 1,024 KiB: sections are cut at whole rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ctk.compiler.errors import count_of
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.ci.baseline import is_link
from ctk.toolkit.ci.places import Place
from ctk.toolkit.ci.report import CiReport, Group

LIMIT_NBYTES = 1_000_000
"""Of the whole text; GitHub refuses a summary of more than 1,024 KiB."""

_SECTION_NBYTES = 400_000
"""Of one section, so that each of them is shown."""

_TESTS = 3
"""How many tests of a failure a row names."""

_ACCEPT = (
    "To accept one, write it to a baseline (`ctk ci-summary DIR --write-baseline FILE`), and put"
    " the link of its issue there."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence, and a table."""

    title: str
    sentence: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def render_markdown(report: CiReport, limit: int = LIMIT_NBYTES) -> str:
    """Return the report as Markdown of at most `limit` bytes."""
    lines = [f"## ctk: {report}", ""]
    free = limit - _nbytes(lines) - 4096
    for section in _sections(report):
        shown = list(_render(section, min(free, _SECTION_NBYTES * limit // LIMIT_NBYTES)))
        free -= _nbytes(shown)
        lines += shown
    return "\n".join(lines) + "\n"


def code(text: str, limit: int = REASON_LENGTH) -> str:
    """Return a hostile text as inert code.

    >>> code("a|b")
    '<code>a&#124;b</code>'
    """
    inert = "".join(map(_inert, one_line(text, limit)))
    inert = inert.replace("&#64;", "&#64;<span></span>")
    inert = inert.replace("www.", "www&#46;").replace(":/", "&#58;/")
    return f"<code>{inert}</code>" if inert else ""


def _inert(character: str) -> str:
    is_plain = character.isascii() and (character.isalnum() or character in " /.:,()=+-")
    return character if is_plain else f"&#{ord(character)};"


def _render(section: Section, limit: int) -> Iterator[str]:
    """Yield the lines of a section; rows beyond the limit become a sentence."""
    head = [f"### {section.title}", "", section.sentence, ""]
    head += [_row(section.head), _row("---" for _ in section.head)]
    free, shown = limit - _nbytes(head), 0
    yield from head
    for row in map(_row, section.rows):
        free -= _nbytes([row])
        if free < 0:
            break
        shown += 1
        yield row
    yield ""
    if shown < len(section.rows):
        left = len(section.rows) - shown
        yield f"{left:,} of {len(section.rows):,} rows are left out: a summary has a limit of size."
        yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _nbytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _sections(report: CiReport) -> Iterator[Section]:
    head = ("culprit", "failure", "tests", "place", "to see more")
    if report.new:
        said = f"Each is one failure of the compiler, with the tests that show it. {_ACCEPT}"
        yield Section("New failures", said, head, [_failure(each) for each in report.new])
    if report.losses:
        said = "These tests pass, but their errors grew by more than machines differ."
        rows = [
            (code(each.outcome.test), each.sentence, _place(each.place)) for each in report.losses
        ]
        yield Section("Less accurate", said, ("test", "error", "place"), rows)
    if report.other_tests:
        said = "These tests failed for a reason other than a wrong compile; their log has it."
        rows = [(code(each),) for each in report.other_tests]
        yield Section("Tests with an error of their own", said, ("test",), rows)
    if report.undecided:
        said = "These tests could not be judged, so nothing is known about their compiles."
        yield Section("Undecided", said, head, [_failure(each) for each in report.undecided])
    if report.problems:
        said = "These documents could not be read, and may hide a failure."
        yield Section("Unreadable", said, ("problem",), [(code(e),) for e in report.problems])
    if report.known:
        said = "These have an issue, and do not fail the job."
        rows = [(*_failure(each)[:3], _link(each.issue)) for each in report.known]
        yield Section("Known failures", said, (*head[:3], "issue"), rows)
    if report.fixed:
        said = "Each of their tests passes now: remove them from the baseline, and close the issue."
        rows = [(code(each.identity), _link(each.issue)) for each in report.fixed]
        yield Section("Fixed", said, ("failure", "issue"), rows)


def _failure(group: Group) -> tuple[str, ...]:
    first, tests = group.first, group.tests
    more = f" and {count_of(len(tests) - _TESTS, 'more test')}" if len(tests) > _TESTS else ""
    culprit = code(group.rule) if first.culprit else "unknown"
    proof = "" if first.confirmed or not first.culprit else " (not confirmed)"
    failure = str(first.signature) if first.signature is not None else first.headline
    named = "<br>".join(map(code, tests[:_TESTS]))
    return (
        f"{culprit}{proof}",
        code(failure),
        f"{named}{more}",
        _place(group.place),
        code(first.command),
    )


def _place(place: Place | None) -> str:
    if place is None:
        return ""
    return code(place.path if place.line is None else f"{place.path}:{place.line}")


def _link(issue: str) -> str:
    """Return the link of an issue; of a mark that is not a link, its text."""
    if not is_link(issue):
        return code(issue)
    return f'<a href="{"".join(map(_inert, issue))}">{code(issue)}</a>'
