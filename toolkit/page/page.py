"""A page as data: a verdict, the answers of the first screen, and sections of blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.trace.document import Trace

Tone = Literal["wrong", "right", "unsure"]
"""The colour of the verdict; its words never depend on it."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The first screen: a failure, its place, the evidence, and what to run next.

    Attributes:
        known: How the place is known.
    """

    what: str
    where: str
    known: str
    steps: tuple[NextStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A cell of a table that leads to another file, by a relative path."""

    text: str
    path: str


Cell = str | Link


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with texts; a label that repeats is shown once."""

    kind: ClassVar = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table.

    Attributes:
        wrong: Indices of the rows that are marked as wrong.
        numbers: Indices of columns of numbers.
    """

    kind: ClassVar = "rows"
    label: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    wrong: frozenset[int] = frozenset()
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Bars:
    """Labelled amounts as horizontal bars, each with its figure.

    Attributes:
        rows: Label, share of the longest bar from 0 to 1, and figure.
    """

    kind: ClassVar = "bars"
    label: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code with a copy button.

    Attributes:
        marked: Numbers of the wrong lines, from 1.
        is_diff: Whether lines that begin with + or - are coloured.
        is_folded: Whether it is closed at first.
    """

    kind: ClassVar = "code"
    label: str
    text: str
    marked: frozenset[int] = frozenset()
    is_diff: bool = False
    is_folded: bool = False

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line with its mark: `bad`, `add`, `del`, or none."""
        text = scrub(self.text).rstrip("\n")  # a secret key spans lines
        for number, line in enumerate(text.split("\n"), 1):
            signs = {"+": "add", "-": "del"} if self.is_diff else {}
            yield line, "bad" if number in self.marked else signs.get(line[:1], "")


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG made by this project, with a caption."""

    kind: ClassVar = "picture"
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph."""

    kind: ClassVar = "prose"
    text: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a section shows nothing, and the command that gives it."""

    kind: ClassVar = "absent"
    why: str
    step: NextStep | None = None


@dataclass(frozen=True, slots=True)
class GraphView:
    """The viewer of the graph of a step of the page's trace."""

    kind: ClassVar = "graph"


@dataclass(frozen=True, slots=True)
class StepsView:
    """The slider over the steps of the page's trace.

    Attributes:
        first: The changes of the step in focus, for a page without scripts.
    """

    kind: ClassVar = "steps"
    first: Code | None = None


Block = Facts | Rows | Bars | Code | Picture | Prose | Absent | GraphView | StepsView


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """Its place in the page, for links: `excluded-causes`."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Focus:
    """The step and the nodes that the viewers show first.

    Attributes:
        step: Index in the steps of the trace.
        nodes: Names in the graph of that step.
        label: The name of that step and of these nodes: `culprit` for a proved one.
    """

    step: int = 0
    nodes: tuple[str, ...] = ()
    label: str = "culprit"


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        subject: The name of the thing: a case, a program, a folder.
        badge: The verdict in a word or two.
        headline: The verdict in one sentence.
        trace: The compile that the viewers show; None for a page without them.
    """

    subject: str
    tone: Tone
    badge: str
    headline: str
    answers: Answers
    sections: tuple[Section, ...]
    trace: Trace | None = None
    focus: Focus = field(default_factory=Focus)


def section(title: str, blocks: Sequence[Block], absent: Absent | None = None) -> Section:
    """Return a section; without a block it shows why it is empty."""
    return Section(title, tuple(blocks) or ((absent,) if absent is not None else ()))
