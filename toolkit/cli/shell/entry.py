"""The entry point: parses the command line, runs the command, and is the only way out.

Every outcome becomes one `Said`, which is printed once: an answer of a command, a usage error of
the option parser, help, a completion. So `--json` is one document in each case, and the exit code
is 0, 1, 2 or 125 even if the answer cannot be written.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from ctk.compiler.errors import StorageError, nearest
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, as_json_text, as_text
from ctk.toolkit.cli.shell.error_codes import USAGE
from ctk.toolkit.cli.shell.errors import answer_for
from ctk.toolkit.cli.shell.streams import (
    prepare_streams,
    settle_streams,
    stdout_is_stderr,
    tell_line,
    write_text_safely,
)
from ctk.toolkit.processes.interrupts import exit_at_interrupts, ignore_interrupts
from ctk.toolkit.processes.link import find_link


@dataclass(frozen=True, slots=True)
class Said:
    """The output of a command.

    Attributes:
        command: Its name; `ctk` before there is one.
        as_json: Print a document.
        is_quiet: Print the first line only.
        text: Printed unchanged in place of the answer: help, version, completions.
    """

    command: str
    answer: Answer
    as_json: bool = False
    is_quiet: bool = False
    text: str | None = None


class Entry(TyperGroup):
    """The group of all commands; its `main` never returns."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command line, print its output and exit; the arguments are those of Typer."""
        line = list(sys.argv[1:] if args is None else args)
        prepare_streams()
        run = partial(super().main, line, prog_name, complete_var, standalone_mode=False, **extra)
        said = self._run_and_say(line, run)
        leave(said)

    def _run_and_say(self, line: list[str], run: Callable[[], object]) -> Said:
        """Run the command, and capture the output of the option parser as text."""
        printed, result, code = io.StringIO(), None, ExitCode.NO_FAILURE
        as_json = self.wants_json(line)
        try:
            with contextlib.redirect_stdout(printed):
                result = run()
        except typer.TyperException as error:
            return Said(self._command(error, line), usage_answer(error), as_json)
        except SystemExit as leaving:  # a completion was printed
            code = ExitCode.USAGE if leaving.code else ExitCode.NO_FAILURE
        except BaseException as error:
            return Said("ctk", answer_for(error), as_json)
        if isinstance(result, Said):
            return result
        if result:  # Typer makes an exit code of Ctrl-C while the line is read
            return Said("ctk", answer_for(KeyboardInterrupt()), as_json)
        text = printed.getvalue()
        first = next((row for row in text.splitlines() if row.strip()), "")
        return Said("ctk", Answer(code, first, {"text": text}), as_json, text=text)

    def _command(self, error: typer.TyperException, line: list[str]) -> str:
        """Return the command that a usage error is about: of one or two words."""
        context, words = getattr(error, "ctx", None), list[str]()
        while context is not None and context.parent is not None:
            words.insert(0, context.info_name)
            context = context.parent
        name = next((word for word in line if not word.startswith("-")), "")
        return " ".join(words) or (name if name in self.commands else "ctk")

    def wants_json(self, line: Sequence[str]) -> bool:
        """Return whether `--json` is among the options of ctk; those of a script are not."""
        return "--json" in self._own(iter(line))

    def _own(self, words: Iterator[str]) -> Iterator[str]:
        """Yield the options of ctk on a line: up to `--`, or to SCRIPT after `run`."""
        taking = self._taking_values()
        command = None
        for word in words:
            if word == "--":
                return
            if word.startswith("-"):
                yield word
                if word in taking.get(command, ()):
                    next(words, None)
            elif command is None:
                command = word
            elif command == "run":
                return

    def _taking_values(self) -> dict[str | None, set[str]]:
        """Return the options that take a value, by the name of their command."""
        return {
            name: {
                spelling
                for param in command.params
                if param.param_type_name == "option" and not getattr(param, "is_flag", False)
                for spelling in param.opts
            }
            for name, command in self.commands.items()
        }


def leave(said: Said) -> NoReturn:
    """Print the output and exit with a documented exit code, even if printing fails."""
    link = find_link()
    if link is not None:  # a signal now would print a second document; the supervisor ends this
        ignore_interrupts()
    try:
        code = print_said(said)
    except BaseException as error:  # a bug in printing, or Ctrl-C
        code = print_said(Said(said.command, answer_for(error), said.as_json))
    if link is not None:
        link.note_answered(int(code))
        stdout_is_stderr()  # threads and exit handlers of the user's may still print
    exit_at_interrupts(int(code))
    settle_streams()
    sys.exit(int(code))


def print_said(said: Said) -> int:
    """Print it, and return the exit code: that of the answer, 125 if it cannot be written.

    A usage error is for people and goes to stderr, unless a document is wanted.
    """
    answer = said.answer
    is_usage = answer.exit_code is ExitCode.USAGE and not said.as_json
    if is_usage:
        tell_line((said.text or as_text(answer, sys.stderr)).rstrip("\n"))
        return answer.exit_code
    try:
        write_text_safely(sys.stdout, text_of(said))
    except StorageError as error:
        tell_line(
            f"ctk: cannot tell: the answer could not be written to stdout: {error}\n"
            f"The answer was (exit code {int(answer.exit_code)}): {answer.headline}"
        )
        return ExitCode.CANNOT_TELL
    return answer.exit_code


def text_of(said: Said) -> str:
    """Return the text for stdout."""
    if said.as_json:
        return as_json_text(said.command, said.answer)
    if said.text is not None:
        return said.text
    answer = said.answer
    shown = Answer(answer.exit_code, answer.headline) if said.is_quiet else answer
    return as_text(shown, sys.stdout)


def usage_answer(error: typer.TyperException) -> Answer:
    """Return the answer for a line that the option parser refuses."""
    context: typer.Context | None = getattr(error, "ctx", None)
    message = message_of(error, context).strip()
    if message.startswith("Usage:"):  # no arguments at all: the message is the help
        return Answer(ExitCode.USAGE, "ctk: no command is given", usage_data(message), (message,))
    first, *rest = message.splitlines() or [type(error).__name__]
    body = tuple(rest)
    if context is None:
        body += ("Try 'ctk --help' for help.",)
    else:
        body += (context.get_usage(), f"Try '{context.command_path} --help' for help.")
    body += (USAGE.help,)
    headline = f"ctk: {first[:1].lower()}{first[1:]}"
    return Answer(ExitCode.USAGE, headline, usage_data(message), body)


def usage_data(message: str) -> dict[str, object]:
    """Return the JSON form of a usage error."""
    return {"error": {"type": "UsageError", "message": message, "code": USAGE.code}}


def message_of(error: typer.TyperException, context: typer.Context | None) -> str:
    """Return the parser's message; of a name that does not exist, with the nearest that does."""
    unknown = re.match(r"No such (command|option):? '?([^\s']+?)'?(?:[.\s]|$)", error.message)
    if unknown is None or context is None:
        return error.format_message().rstrip(".")
    kind, name = unknown.groups()
    if isinstance(context.command, TyperGroup) and kind == "command":
        known = list(context.command.commands)
        longer = next((each for each in known if name and each.startswith(name)), None)
        hint = f"; did you mean {longer!r}?" if longer else nearest(name, known)
    else:
        known = [spelling for param in context.command.params for spelling in param.opts]
        hint = nearest(name, known)
    return f"no such {kind}: {name!r}{hint}"
