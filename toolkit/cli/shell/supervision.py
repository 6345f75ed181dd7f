"""Recover when the working half of `ctk` is killed: run again in children, or answer clearly.

    check repro bisect-pass minify diagnose   again, with `--isolate` (and `--resume`), once
                                              and with `--timeout`, where it hung
    run                                       the answer names the compile at work; no repetition
    diff                                      the answer names the end; no repetition

The two halves are made here, before torch is imported (toolkit/processes/supervise.py). Commands
that compile nothing have one.
"""

import inspect
import json
import math
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ctk.compiler.errors import count_of
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.entry import Said, leave
from ctk.toolkit.cli.shell.error_codes import ENDED
from ctk.toolkit.cli.shell.flatten import flatten_parameters
from ctk.toolkit.processes.accelerator import LOST_CUDA
from ctk.toolkit.processes.interrupts import exit_at_interrupts
from ctk.toolkit.processes.memory import format_size
from ctk.toolkit.processes.scratch import sweep
from ctk.toolkit.processes.supervise import End, can_supervise, die_of, fork_half, silence_allowed

GRACE_SECONDS = 5.0
"""How long an interrupted command may show no sign of life before it is killed."""

_SENT_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE")
_SENT = [getattr(signal, name) for name in _SENT_NAMES if hasattr(signal, name)]
"""Signals by which others end a process, as opposed to a crash of its program."""


def supervise(commands: Sequence[Command]) -> None:
    """Return in a supervised process; the supervisor exits here with the same exit code.

    Args:
        commands: The table of commands; the first word of `sys.argv` without a dash names one.
    """
    place = next((i for i, word in enumerate(sys.argv) if i and not word.startswith("-")), 0)
    command = next((each for each in commands if each.name == sys.argv[place]), None)
    if command is None or not can_supervise():
        return
    options, runs_script = _options(command), command.passes_arguments_on
    repeats, compiles = "isolate" in options, "target" in options
    if not (compiles or runs_script):
        return
    sweep()
    end = _fork_half(repeats)
    if end is None:
        return
    more = _further_options(command, sys.argv[place + 1 :], end)
    if repeats and more and is_crash(end):
        sys.stderr.write(
            f"ctk: {_what_happened(end)}; the command continues with {shlex.join(more)}: "
            "a child process can be killed without loss\n"
        )
        sys.argv[place + 1 : place + 1] = more
        end = _fork_half(repeats)
        if end is None:
            return
    _exit_as(command, end)


def is_crash(end: End) -> bool:
    """Return whether the working half crashed before it answered."""
    if end.notes.command is None or end.notes.exit_code is not None or end.gave_up:
        return False
    return -end.status not in _SENT


def _fork_half(cleans_up: bool) -> End | None:
    end = fork_half(grace_seconds=GRACE_SECONDS if cleans_up else None, cleans_up=cleans_up)
    if end is not None:
        sweep()
    return end


def _options(command: Command) -> set[str]:
    return set(inspect.signature(flatten_parameters(command.run)).parameters)


def _further_options(command: Command, given: Sequence[str], end: End) -> list[str]:
    """Return options to add to a killed command; empty if that would not help.

    The user's own options follow, and win.
    """
    if "--no-isolate" in given or "--isolate" in given or end.notes.asking:
        return []  # a function of the user runs in this process even with --isolate
    folder = end.notes.resumable if "resume" in _options(command) else None
    if folder is not None and not Path(folder, "journal.jsonl").is_file():  # nothing was answered
        folder = None
    watch = end.notes.watch if end.exceeded else None
    if watch is not None and not watch.repeats:
        return []
    limit: tuple[str, ...] = ()
    if watch is not None and (end.exceeded == "time" or not watch.is_patient):
        # as long as this one has taken, its silence included
        seconds = math.ceil(end.watched_seconds) if watch.is_patient else watch.seconds
        limit = ("--timeout", f"{seconds:g}")
    return ["--isolate", *limit, *(("--resume", "--out", folder) if folder else ())]


def _what_happened(end: End) -> str:
    watch = end.notes.watch
    if end.exceeded == "time" and watch is not None:
        seconds = f"{silence_allowed(end.notes, watch):.0f} seconds"
        return f"{watch.task} did nothing for {seconds} (--timeout allows more)"
    if end.exceeded == "memory" and watch is not None:
        size = format_size(watch.nbytes or 0)
        return f"{watch.task} holds more than {size} (--memory allows more)"
    if end.notes.asking and not end.exceeded:
        status = f"status {end.status}" if end.status >= 0 else f"signal {-end.status}"
        return f"the oracle {end.notes.asking} has ended the process ({status})"
    if end.status == LOST_CUDA:
        return "a kernel has broken CUDA for the process"
    if end.status >= 0:
        return f"the process was ended from within, with status {end.status} (os._exit?)"
    name = signal.strsignal(-end.status) or "unknown"
    return f"the process was killed by signal {-end.status} ({name})"


def _exit_as(command: Command, end: End) -> None:
    """Exit with the answer of the working half, or with an answer about its end."""
    if end.notes.exit_code is not None:
        exit_at_interrupts(end.notes.exit_code)
        sys.exit(end.notes.exit_code)  # an atexit handler of the program does not change it
    if end.notes.command is None and end.status >= 0:
        sys.exit(end.status)
    is_sent = end.status < 0 and -end.status != signal.SIGPIPE  # 141 would end `git bisect run`
    if not end.gave_up and not is_crash(end) and is_sent:
        die_of(-end.status)
    if end.gave_up:
        answer = _gave_up(end)
    elif command.passes_arguments_on:
        answer = _answer_for_script(_what_happened(end), end)
    else:
        answer = _answer_killed(_what_happened(end), end)
    leave(Said(command.name, answer, end.notes.as_json))


def _gave_up(end: End) -> Answer:
    seconds = f"{GRACE_SECONDS:g} seconds"
    return Answer(
        ExitCode.CANNOT_TELL,
        f"cannot tell: interrupted; it did not end within {seconds} and was killed",
        {"error": {"type": "KeyboardInterrupt", "message": "interrupted, then killed"}},
        ("Every process that it had started was ended too.", *_what_is_kept(end)),
    )


_ASK_APART = (
    "It runs in the process of ctk. Ask in a process of its own, whose exit code decides (0 no "
    "failure, 125 cannot tell): --command 'python check.py {case}', in place of --oracle"
)


def _answer_killed(what: str, end: End) -> Answer:
    advice = "To find the cause: ctk repro CASE --isolate"
    return Answer(
        ExitCode.CANNOT_TELL,
        f"cannot tell: {what}",
        {"error": {"type": "Killed", "message": what, "code": ENDED.code}},
        (_ASK_APART if end.notes.asking else advice, *_what_is_kept(end), ENDED.help),
    )


def _what_is_kept(end: End) -> tuple[str, ...]:
    if end.notes.resumable is None:
        return ()
    return (
        f"Results so far: {end.notes.resumable}",
        f"to go on: {end.notes.go_on}",
    )


def _answer_for_script(ending: str, end: End) -> Answer:
    """Return the answer of `ctk run`: a failure if one was seen, or a compile or check was at work.

    The watched half saves each graph before it is compiled, reports when a compile or a first call
    begins and ends, and writes each event of the compile as it comes.
    """
    works, failures = end.notes.works, [*end.notes.failures]
    dumps = str(Path(next(iter(works))).parent) if works else None
    body = (f"dumps: {dumps}", *_newest_call(Path(dumps))) if dumps else ()
    data: dict[str, object] = {
        "error": {"type": "Killed", "message": ending},
        "graphs": len(works),
        "dumps": dumps,
    }
    case, work = next(((case, work) for case, work in works.items() if work.doing), ("", None))
    commands = [
        f"ctk diagnose {folder}" for _, folder, _ in failures if not folder.endswith(".json")
    ]
    if work is not None:
        saved = f"the case is saved in {case}" if work.command else "its case could not be saved"
        summary = f"{ending} while {work.doing}{_after(Path(case))}; {saved}"
        failures.append((Path(case).name, case if work.command else "", summary))
        commands += [work.command] if work.command else []
    listed = [{"graph": n, "case": folder or None, "summary": s} for n, folder, s in failures]
    data |= {"failures": listed}
    if not failures:
        return _answer_ended(ending, end, data, body)
    name, _, summary = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    headline = f"failure: {name}: {summary}{more}"
    return Answer(ExitCode.FAILURE, headline, data, (*commands, *body))


def _answer_ended(ending: str, end: End, data: dict[str, object], body: tuple[str, ...]) -> Answer:
    """Return the answer for a script that ended itself, or was killed, without a failure."""
    graphs = count_of(len(end.notes.works), "graph")
    code = 128 - end.status if end.status < 0 else end.status
    if end.notes.checked:
        seen = f"after {graphs} had been compiled and compared"
        if code == 0:
            return Answer(0, f"no failure: {graphs} compiled and compared; {ending}", data, body)
    else:
        seen = f"after {graphs} had been compiled" if end.notes.works else "early"
        advice = "next: let the script call its compiled functions before it ends"
        code, body = code or ExitCode.CANNOT_TELL, (*body, advice)
    word = "cannot tell" if code == ExitCode.CANNOT_TELL else "ctk"
    return Answer(code, f"{word}: the script ended {seen}, none failed: {ending}", data, body)


def _newest_call(dumps: Path) -> tuple[str, ...]:
    """Return the line about the newest call in the ring (watch/ring.py), if there is one."""
    kept = [each for each in (dumps / "ring").glob("*_call*") if not each.name.startswith(".")]
    newest = max(kept, key=lambda each: each.stat().st_mtime_ns, default=None)
    return () if newest is None else (f"the newest call: ctk repro {shlex.quote(str(newest))}",)


def _after(case: Path) -> str:
    """Return the last recorded step of the compile."""
    try:
        lines = (case / "events.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        last = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return ""
    kind = last.get("event") if isinstance(last, dict) else None
    name = last.get(kind) or last.get(f"{kind}_") if kind else None
    return f", after {kind} {name}" if isinstance(name, str) else ""
