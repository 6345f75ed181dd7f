"""`ctk explain`: the cause and the remedy of an error, by its code."""

from typing import Annotated

import typer

from ctk.compiler.errors import ConfigError
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, highlight_code, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.error_codes import ERROR_CODES


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="A code of an error, such as CTK104.")
    ] = None,
) -> Answer:
    """Explain an error: its cause, and its remedy.

    Without CODE: list the codes. The pages are part of the installation.
    """
    if code is None:
        rows = table("code", "error", rows=((each.code, each.title) for each in ERROR_CODES))
        data = {"codes": [{"code": each.code, "title": each.title} for each in ERROR_CODES]}
        return Answer(ExitCode.NO_FAILURE, f"{len(ERROR_CODES)} codes of errors", data, (rows,))
    chosen = next((each for each in ERROR_CODES if each.code == code.upper()), None)
    if chosen is None:
        raise ConfigError(f"no error has the code {code!r}; list them: ctk explain")
    page = chosen.page()
    text = page.partition("\n")[2].strip()
    data = {"code": chosen.code, "title": chosen.title, "page": page}
    headline = f"{chosen.code}: {chosen.title}"
    return Answer(ExitCode.NO_FAILURE, headline, data, ("", highlight_code(text, "markdown")))


COMMAND = Command("explain", explain)
