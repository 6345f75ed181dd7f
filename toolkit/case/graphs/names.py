"""The names that a graph may use: FX pastes them into the program that it generates and runs.

A name is ASCII (Python folds other letters: a fullwidth `torch` would hide the module), no keyword,
hides nothing that such a program reads, and no attribute of a `GraphModule`.

What it does not do: names of functions and operators (`callables`).
"""

import builtins
import keyword

import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.limits import NAME_LENGTH
from ctk.toolkit.case.formats.plain_text import quoted


def check_identifier(name: object, where: str) -> str:
    """Return a name that a variable, an argument or an attribute may have.

    Raises:
        CaseError: It may not.
    """
    if isinstance(name, str) and is_identifier(name):
        return name
    raise CaseError(f"{where}: {quoted(name)} is no name that a graph may use")


def is_identifier(name: str) -> bool:
    """Return whether Python reads a name as it is written: it folds letters beyond ASCII."""
    is_name = len(name) <= NAME_LENGTH and name.isascii() and name.isidentifier()
    return is_name and not keyword.iskeyword(name)


def check_name(name: object, where: str) -> str:
    """Check that a node may have this name: it must not hide what FX's programs read (`torch`).

    Raises:
        CaseError: It may not.
    """
    checked = check_identifier(name, where)
    if hasattr(builtins, checked) or Graph().placeholder(checked).name == checked:
        return checked
    raise CaseError(f"{where}: FX reserves the name {checked!r}; rename that node")


def check_path(path: str, where: str) -> str:
    """Check the path of an attribute: it must not hide something that a GraphModule has itself.

    Raises:
        CaseError: It does, or is no path of names.
    """
    if len(path) > NAME_LENGTH:
        raise CaseError(f"{where}: {quoted(path)} is too long for an attribute")
    for part in path.split("."):
        check_identifier(part, where)
        if part.startswith("__") or hasattr(GraphModule, part) or part in vars(torch.nn.Module()):
            raise CaseError(f"{where}: attribute {path!r} would hide {part!r} of torch.nn.Module")
    return path
