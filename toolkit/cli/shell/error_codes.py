"""The codes of errors: one cause and one remedy each, explained by a page of `docs/errors/`.

    CTK1xx  the command line and its cases      CTK4xx  this machine
    CTK2xx  the user's program                  CTK5xx  packages
    CTK3xx  the compile                         CTK9xx  a bug of ctk

`ctk explain CODE` prints the page, which is part of the installation. Adding a code is a line in
`ERROR_CODES` and a page, whose example a test runs.
"""

from dataclasses import dataclass
from pathlib import Path

import typer

import ctk
from ctk.compiler import errors


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A code, its title, and the exceptions that have it with their subclasses."""

    code: str
    title: str
    raised: tuple[type[BaseException], ...] = ()

    @property
    def help(self) -> str:
        """The line below an error message."""
        return f"help: ctk explain {self.code}"

    def page(self) -> str:
        """Return the page about this error, in Markdown.

        It lies beside the packages of an installation, and in `docs/` of a checkout.

        Raises:
            InstallError: The pages are not installed.
        """
        package = Path(ctk.__path__[0])
        folders = (package / "error_pages", package.parent / "docs" / "errors")
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if folder is None:
            raise errors.InstallError(
                f"the pages about errors are missing: neither {folders[0]} nor {folders[1]} is a "
                "folder; next: install ctk again"
            )
        return (folder / f"{self.code}.md").read_text(encoding="utf-8")


USAGE = ErrorCode("CTK101", "The command line is not understood", (typer.TyperException,))
TORCH = ErrorCode("CTK403", "torch cannot be imported")
ENDED = ErrorCode("CTK408", "A process of ctk has ended", (errors.ChildError,))

ERROR_CODES = (
    USAGE,
    ErrorCode("CTK102", "An option or setting is refused", (errors.ConfigError,)),
    ErrorCode("CTK103", "A target cannot be used", (errors.TargetError,)),
    ErrorCode("CTK104", "There is no such case", (errors.NoSuchCase,)),
    ErrorCode("CTK105", "A case is damaged", (errors.CaseError,)),
    ErrorCode("CTK106", "A file is of another version of ctk", (errors.SchemaError,)),
    ErrorCode("CTK107", "A case cannot hold a part of the program", (errors.NotHeld,)),
    ErrorCode("CTK108", "A case needs trust", (errors.TrustError,)),
    ErrorCode("CTK109", "The folder for the output is taken", (errors.FolderTaken,)),
    ErrorCode("CTK201", "A file is not a program", (errors.ProgramError,)),
    ErrorCode("CTK202", "The program raises while it is built", (errors.BuildError, SystemExit)),
    ErrorCode("CTK203", "The program fails in eager", (errors.EagerError,)),
    ErrorCode("CTK204", "Dynamo gives no graph", (errors.CaptureError,)),
    ErrorCode("CTK205", "The program is not for ahead-of-time compiles", (errors.ExportRefused,)),
    ErrorCode("CTK206", "The predicate raises", (errors.PredicateError,)),
    ErrorCode("CTK301", "The failure does not show", (errors.DoesNotReproduce,)),
    ErrorCode("CTK302", "A compiled graph gives wrong values", (errors.MiscompileError,)),
    ErrorCode("CTK303", "A pass leaves an ill-formed graph", (errors.VerifyError,)),
    ErrorCode("CTK304", "No code generator takes a graph", (errors.CodegenUnsupported,)),
    ErrorCode("CTK401", "The platform is not supported", (errors.UnsupportedPlatform,)),
    ErrorCode("CTK402", "torch lacks a private name", (errors.MissingTorchName,)),
    TORCH,
    ErrorCode("CTK404", "A file cannot be read or written", (errors.StorageError, OSError)),
    ErrorCode("CTK405", "Memory or stack is exhausted", (MemoryError, RecursionError)),
    ErrorCode("CTK406", "A kernel has broken CUDA", (errors.LostAccelerator,)),
    ErrorCode("CTK407", "A package is not installed", (errors.InstallError,)),
    ENDED,
    ErrorCode("CTK501", "A package cannot be made or used here", (errors.ArtifactError,)),
    ErrorCode("CTK502", "An argument does not fit a package", (errors.InputError,)),
    ErrorCode("CTK503", "A package is damaged", (errors.ContainerError,)),
    ErrorCode("CTK504", "A discarded parameter is used", (errors.DiscardedParameterError,)),
    ErrorCode("CTK901", "ctk itself fails", (Exception,)),
)

_BY_CLASS = {each: code for code in ERROR_CODES for each in code.raised}


def code_of(error: type[BaseException]) -> ErrorCode | None:
    """Return the code of an exception: that of its nearest base class; None for Ctrl-C."""
    return next((_BY_CLASS[each] for each in error.__mro__ if each in _BY_CLASS), None)
