"""Mutated cases: whatever a file says, ctk loads a case or says why not, in a moment.

Every example is drawn from a seed, printed with a failure; `python -m pytest -k "seed-7"` draws the
same ones again. 1,000 examples are quick; `make test-slow` tries 100,000.
"""

import dataclasses
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ctk.compiler.errors import CtkError
from ctk.toolkit.case import case_listing as listing
from ctk.toolkit.case import manifest
from ctk.toolkit.case.formats import tensors
from ctk.toolkit.case.formats.strict_json import dump_json
from ctk.toolkit.case.graphs.graph_json import graph_to_json
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.cli.commands.show import show_case, show_diagnosis
from ctk.toolkit.cli.shell.answer import Answer, as_json_text
from tests.helpers.hostile import Canary, watched
from tests.helpers.mutations import MUTATIONS, Mutation, real_cases, rehash, write

SECONDS = 10.0
"""Processor time of this thread for one case, after which it counts as endless."""

MEMORY = 256 << 20
"""What the machine is made to have: a case that asks for more is refused."""

EXAMPLES = 1000
QUICK_EXAMPLES = 300


def assert_sane(text: str) -> None:
    """A message is short, and nothing in it but line breaks moves a cursor."""
    assert text and len(text) < 10_000, text[:500]
    assert all(line.isprintable() for line in text.split("\n")), repr(text[:500])


def look(folder: Path) -> None:
    """What `show` and `ls` do with a folder."""
    entry = listing.describe(folder)
    for text in (entry.problem, entry.name, entry.failure):
        assert text is None or text.isprintable()
    for view in (show_case, show_diagnosis):
        try:
            answer: Answer = view(folder)
            assert answer.headline.isprintable()
            as_json_text("show", answer)
        except CtkError as error:
            assert_sane(str(error))


def judge(folder: Path, out: Path) -> str:
    """Load a case and, if that works, save it and load it again; says how it ended."""
    try:
        case = load_case(folder)
    except CtkError as error:
        assert_sane(str(error))
        return "refused"
    again = load_case(save_case(case, out, inputs="full"))
    (first, _), (second, _) = graph_to_json(case.graph), graph_to_json(again.graph)
    assert dump_json(first["nodes"]) == dump_json(second["nodes"])
    return "loaded"


@dataclasses.dataclass(frozen=True, slots=True)
class Ground:
    """Folders that the examples of one run share: making and removing some takes most of the time.

    Attributes:
        place: Holds the case, the canary and what is saved again.
        canary: What some values name.
    """

    place: Path
    canary: Canary

    @classmethod
    def new(cls, place: Path) -> "Ground":
        nest = place / "nest"
        nest.mkdir()
        canary = Canary(nest)
        canary.file.write_text("raise SystemExit('a module of a case was imported')")
        for number, files in enumerate(real_cases()):
            write(files, place / str(number))
        judge(place / "0", place / "again")  # what the first one imports is not its own time
        shutil.rmtree(place / "again")
        return cls(place, canary)

    def attack(self, number: int, mutations: Sequence[Mutation], *, honest: bool) -> None:
        """Try one case; an honest one leaves the hashes as they were."""
        cases = real_cases()
        good, files = cases[number], dict(cases[number])
        for mutation in mutations:
            mutation.apply(files, cases)
        if not honest:
            rehash(files)
        folder = self.place / str(number)
        changed = {name: data for name, data in files.items() if data != good[name]}
        write(changed, folder)
        try:
            self.watch(folder)
        finally:
            write({name: good[name] for name in changed}, folder)
            shutil.rmtree(self.place / "again", ignore_errors=True)

    def watch(self, folder: Path) -> None:
        """Load and look at a case, under watch."""
        started = time.thread_time()
        with warnings.catch_warnings(), watched(self.canary, out=self.place) as seen:
            warnings.simplefilter("error")
            ended = judge(folder, self.place / "again")
            look(folder)
        seconds = time.thread_time() - started
        hypothesis.event(ended)
        assert seconds < SECONDS, f"{seconds:.1f} s"
        assert not seen.events, seen.events
        self.canary.assert_silent()


def fuzz(seed: int, examples: int, ground: Ground) -> None:
    """Try cases drawn from a seed; the smallest that fails is shown."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(number=st.integers(0, 3), mutations=MUTATIONS, honest=st.integers(0, 9))
    def each(number: int, mutations: list[Mutation], honest: int) -> None:
        ground.attack(number, mutations, honest=honest == 0)

    each()


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Folders in memory, where the machine has such."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ctk-fuzz-", dir=where) as place:
        yield Ground.new(Path(place))


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tensors, manifest):
        monkeypatch.setattr(module, "memory_nbytes", lambda: MEMORY)


SLOW = [pytest.param(seed, marks=pytest.mark.slow, id=f"seed-{seed}") for seed in range(1, 100)]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("seed", [pytest.param(0, id="seed-0"), *SLOW])
def test_a_mutated_case_is_loaded_or_refused(seed: int, ground: Ground) -> None:
    fuzz(seed, EXAMPLES if seed else QUICK_EXAMPLES, ground)
