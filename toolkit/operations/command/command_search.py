"""Find the pass, rewrite or kernel that makes a command fail, by the exit codes of its runs.

1. One run with everything: its compiles announce the suspects.
2. By groups, passes of the graph first, then lowerings, decompositions and kernels: a run without
   the whole group. If that is good, a binary search over the group in the order of the compiles:

       passes   a b c d e f g h        without e...h  bad
                                       without c...h  good
                                       without d...h  bad    -> d... is not needed, c is: `c`
3. The proof: a run without that one alone is good. Then the same over the rewrites of the pass.
4. The first run and the proof once more: if the outcome changes, the command fails at random.

Not found: two culprits that only fail together; then one of them is named, and not confirmed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ctk.compiler.errors import CaptureError
from ctk.toolkit.operations.command.command_run import CommandRun, run_command
from ctk.toolkit.operations.command.plan import Suspect
from ctk.toolkit.search.blocks import prefix_end
from ctk.toolkit.search.questions import first_true, run_search

FEW = 12
"""Largest group whose members are tried one by one if leaving out all of them is not good."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CommandSearch:
    """The result of bisecting a command.

    Attributes:
        confirmed: Without that alone the command is good.
        excluded: Causes that were ruled out, a sentence each.
        is_flaky: The same run was good once and bad once, so that no culprit can be named.
    """

    first: CommandRun
    culprit: Suspect | None = None
    rewrite: Suspect | None = None
    confirmed: bool = False
    runs: int = 1
    reason: str = ""
    excluded: tuple[str, ...] = ()
    is_flaky: bool = False

    @property
    def graphs(self) -> int:
        return len({each.graph for each in self.first.asked})


def bisect_command(
    words: Sequence[str],
    *,
    seconds: float | None = None,
    say: Say = lambda _: None,
    run: Callable[..., CommandRun] = run_command,
) -> CommandSearch:
    """Find the culprit of a failing command that uses `torch.compile`, and prove it.

    Args:
        seconds: Time limit of one run; a longer one is bad.

    Raises:
        CaptureError: It fails, and compiles nothing that can be steered.
        ProgramError: There is no such program.
    """
    return _Search(words, seconds, say, run).find()


@dataclass(slots=True)
class _Search:
    words: Sequence[str]
    seconds: float | None
    say: Say
    run: Callable[..., CommandRun]
    answers: dict[frozenset[Suspect], CommandRun] = field(
        default_factory=dict[frozenset[Suspect], CommandRun]
    )
    excluded: list[str] = field(default_factory=list[str])
    runs: int = 0

    def find(self) -> CommandSearch:
        first = self._ask((), "with everything")
        if first.outcome != "bad":
            return CommandSearch(first, runs=1, reason=f"it ends with {first.ended}")
        culprit = self._find_culprit(first)
        proof = [
            each for each in (culprit.rewrite or culprit.culprit,) if each and culprit.confirmed
        ]
        for left_out in ((), proof) if proof else ((),):
            once = self.answers[frozenset(left_out)]
            again = self._run_once(left_out, "once more, as before")
            if again.outcome != once.outcome:
                reason = f"the same run ends with {once.ended} once, and with {again.ended} then"
                return CommandSearch(first, runs=self.runs, reason=reason, is_flaky=True)
        return replace(culprit, runs=self.runs, excluded=tuple(self.excluded))

    def _find_culprit(self, first: CommandRun) -> CommandSearch:
        if not first.asked:
            raise CaptureError(
                f"the command fails ({first.ended}) and compiles nothing that ctk can steer\n"
                "next: see that its Python has ctk and torch, is not started with -I, -E or -S, "
                "and calls torch.compile with a target that announces its passes"
            )
        for name, group in groups(first.asked):
            culprit = self._in_group(name, group)
            if culprit is not None:
                return self._prove(first, culprit)
        everything = [each for each in first.asked if each.kind != "rewrite"]
        is_good = self._is_good(everything, "without all of them")
        reason = (
            "it is good only without several of them together"
            if is_good
            else "it fails without any pass and with every kernel in eager: "
            "neither passes nor generated code are to blame"
        )
        return CommandSearch(first, reason=reason)

    def _in_group(self, name: str, group: Sequence[Suspect]) -> Suspect | None:
        """Return the guilty member: the last one up to which all must be left out."""
        every = f"all {len(group)} {name}" if len(group) > 1 else f"the only one of its {name}"
        if not self._is_good(group, f"without {every}"):
            self.excluded.append(f"removing {every} does not help")
            few = first_true(group if len(group) <= FEW else ())
            return run_search(few, lambda member: self._is_good([member], f"without {member}"))

        def is_good_without(last: Sequence[Suspect]) -> bool:
            return self._is_good(last, f"without the last {len(last)} {name}")

        return run_search(prefix_end(group[::-1]), is_good_without)

    def _prove(self, first: CommandRun, culprit: Suspect) -> CommandSearch:
        confirmed = self._is_good([culprit], f"without {culprit}")
        rewrite = self._rewrite_of(first, culprit) if confirmed else None
        reason = "" if confirmed else "without it alone the command is still bad"
        return CommandSearch(first, culprit, rewrite, confirmed, reason=reason)

    def _rewrite_of(self, first: CommandRun, culprit: Suspect) -> Suspect | None:
        """Return the one rewrite of a pass without which alone the command is good."""
        made = [
            each
            for each in first.asked
            if (each.kind, each.graph, each.id) == ("rewrite", culprit.graph, culprit.id)
        ]
        if culprit.kind != "pass" or not made:
            return None
        rewrite = self._in_group(f"rewrites of {culprit.id}", made)
        if rewrite is None or not self._is_good([rewrite], f"without {rewrite}"):
            return None
        return rewrite

    def _is_good(self, left_out: Iterable[Suspect], what: str) -> bool:
        return self._ask(left_out, what).outcome == "good"

    def _ask(self, left_out: Iterable[Suspect], what: str) -> CommandRun:
        key = frozenset(left_out)
        if key not in self.answers:
            self.answers[key] = self._run_once(key, what)
        return self.answers[key]

    def _run_once(self, left_out: Iterable[Suspect], what: str) -> CommandRun:
        answer = self.run(self.words, frozenset(left_out), seconds=self.seconds)
        self.runs += 1
        self.say(f"{what}: {answer.outcome} ({answer.ended})")
        return answer


def groups(asked: Sequence[Suspect]) -> Iterable[tuple[str, list[Suspect]]]:
    """Return the groups of suspects to leave out together, likely ones first."""
    passes = [each for each in asked if each.kind == "pass"]
    named = (
        ("operators", [each for each in passes if each.stage == "operator"]),
        (
            "passes",
            [each for each in passes if each.stage not in ("operator", "dispatch", "lowered")],
        ),
        ("lowerings", [each for each in passes if each.stage == "lowered"]),
        ("decompositions", [each for each in passes if each.stage == "dispatch"]),
        ("kernels", [each for each in asked if each.kind == "kernel"]),
    )
    return [(name, group) for name, group in named if group]
