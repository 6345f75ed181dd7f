"""Between a command and the shell: options for printing, Ctrl-C, access to stdout.

While a command runs, output of the user's program, its compiler or a child process goes to stderr,
so that stdout starts with the answer and holds nothing but JSON under `--json`.
"""

import contextlib
import functools
import inspect
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import typer
from typer.core import TyperCommand

from ctk.toolkit.case.formats.scrub import without_secrets
from ctk.toolkit.cli.shell.answer import Answer
from ctk.toolkit.cli.shell.entry import Said
from ctk.toolkit.cli.shell.errors import answer_of, require_working_folder
from ctk.toolkit.cli.shell.flatten import flatten_parameters, with_parameters
from ctk.toolkit.cli.shell.options import JsonOutput, QuietOutput, VerboseOutput
from ctk.toolkit.cli.shell.progress import progress_told
from ctk.toolkit.cli.shell.streams import tell_line
from ctk.toolkit.processes.accelerator import LOST_CUDA, has_lost_cuda
from ctk.toolkit.processes.descriptors import keep_standard_streams
from ctk.toolkit.processes.forks import flush_streams
from ctk.toolkit.processes.link import find_link

PRINTING = {"json_output": JsonOutput, "quiet": QuietOutput, "verbose": VerboseOutput}
"""The options that every command has, after its name or before it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, and the function whose parameters and docstring make its help.

    A parameter that is a dataclass of options stands for the fields of that class (`options.py`).
    """

    name: str
    run: Callable[..., Answer]
    passes_arguments_on: bool = False  # unknown options belong to the user's script
    parser: type[TyperCommand] = TyperCommand


def guard_command(command: Command) -> Callable[..., Said]:
    """Return the function that Typer calls: it runs the command and returns its output."""

    flat = flatten_parameters(command.run)

    @functools.wraps(flat)
    def run(*, ctx: typer.Context, **options: object) -> Said:
        before = ctx.find_root().params
        as_json, is_quiet, is_verbose = (
            bool(options.pop(name)) or bool(before.get(name)) for name in PRINTING
        )
        link = find_link()
        if link is not None:
            link.note_started(command.name, as_json=as_json)
        with (
            stdout_to_stderr(),
            progress_told("nothing" if is_quiet else "lines" if as_json else "live"),
            verbose_log(command.name) if is_verbose else contextlib.nullcontext(),
        ):
            answer = answer_of(lambda: _run_and_tell(flat, options, is_verbose))
        return Said(command.name, answer, as_json, is_quiet)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    own += inspect.signature(flat).parameters.values()
    own += [
        inspect.Parameter(name, keyword, default=False, annotation=annotation)
        for name, annotation in PRINTING.items()
    ]
    return with_parameters(run, own)


def _run_and_tell(
    run: Callable[..., Answer], options: dict[str, object], is_verbose: bool
) -> Answer:
    """Run a command; `--verbose` also prints the traceback of an exception."""
    try:
        require_working_folder()
        return run(**options)
    except BaseException as error:
        if is_verbose:
            tell_line("".join(traceback.format_exception(error)).rstrip())
        if isinstance(error, Exception) and _is_asked_again(options):
            flush_streams()
            os._exit(LOST_CUDA)
        raise


def _is_asked_again(options: Mapping[str, object]) -> bool:
    """Return whether the half that watches over this one asks again, in children that have CUDA.

    A kernel has broken CUDA: nothing on a GPU can be asked in this process any more.
    """
    is_ours_to_choose = "isolate" in options and options["isolate"] is None
    return find_link() is not None and is_ours_to_choose and has_lost_cuda()


class _WithoutSecrets(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


@contextlib.contextmanager
def verbose_log(command: str) -> Generator[None]:
    """Send our log to stderr at DEBUG, and tell how long the command took."""
    logger, started = logging.getLogger("ctk"), time.monotonic()
    handler, level = logging.StreamHandler(sys.stderr), logger.level
    handler.setFormatter(_WithoutSecrets("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        tell_line(f"ctk: {command} took {time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Redirect stdout to stderr: of Python, of C++ and of child processes."""
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()
    with contextlib.redirect_stdout(sys.stderr), keep_standard_streams():  # also of stderr
        os.dup2(2, 1)
        yield
