"""The program of a repro: the graph as `class Repro(torch.nn.Module)`, and its constants as source.

The class is that of `python_source`, with long lines folded. `inputs` writes the inputs.
"""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_json import constants_of
from ctk.toolkit.case.graphs.python_source import (
    find_computed_sizes,
    graph_to_python,
    only_dynamo_writes,
    signature_names,
)
from ctk.toolkit.repro.tensor_source import Sources, dict_source, tensor_source

_LINE = 100
_NO_BREAK = "\0"
_COMMENT = re.compile(r"  # [^'\"]*$")


@dataclass(frozen=True, slots=True)
class ModuleText:
    """The program of a script.

    Attributes:
        imports: Import statements that the classes need, torch left out.
        classes: Source of the classes, inner ones first; the last is `Repro`.
        constants: Source of the dict of tensors that `Repro(...)` takes.
        arguments: Placeholders that `forward` takes, in order; it computes the others from these.
        handed: For a graph that Dynamo could not capture again, the arguments that are sizes of
            others: position -> (other position, dimension); else None.
    """

    imports: tuple[str, ...]
    classes: str
    constants: str
    arguments: tuple[str, ...]
    handed: Mapping[int, tuple[int, int]] | None = None


def module_text(case: Case, sources: Sources, *, hands_over: bool = False) -> ModuleText:
    """Write the graph of a case and its sub-graphs as classes.

    Args:
        hands_over: Hand the graph to the target without Dynamo, even if Dynamo may capture it.

    Raises:
        CaseError: A part of the graph cannot be written; the message names the node.
    """
    is_handed = hands_over or only_dynamo_writes(case.graph)
    text = graph_to_python(case.graph, "Repro", symbols_from=case.dynamic, as_graphs=is_handed)
    start = re.search(r"^(class|def) ", text, re.MULTILINE)  # builders of sub-graphs come first
    assert start is not None, "graph_to_python writes at least one class"
    constants = {
        name: tensor_source(tensor, f"constant {name}", sources)
        for name, tensor in constants_of(case.graph).items()
    }
    imports = [line for line in text[: start.start()].splitlines() if line.startswith("import ")]
    return ModuleText(
        imports=tuple(line for line in imports if line != "import torch"),
        classes="\n".join(fold(line) for line in text[start.start() :].strip().splitlines()),
        constants=dict_source(constants),
        arguments=tuple(signature_names(case.graph, {} if is_handed else case.dynamic)),
        handed=find_computed_sizes(case.graph, case.dynamic) if is_handed else None,
    )


def fold(line: str) -> str:
    """Break a long line between arguments, its comment above; a line with a string stays."""
    if len(line) <= _LINE:
        return line
    own = line[: len(line) - len(line.lstrip())]
    comment = _COMMENT.search(line)
    code = line[: comment.start()] if comment else line
    above = f"{own}{comment[0].strip()}\n" if comment else ""
    if len(code) <= _LINE or '"' in code or "'" in code:
        return f"{above}{code}"
    folded = textwrap.fill(
        _unbreakable_outside(code.strip()),
        _LINE,
        initial_indent=own,
        subsequent_indent=f"{own}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{above}{folded}".replace(_NO_BREAK, " ")


def _unbreakable_outside(code: str) -> str:
    """Return a statement whose spaces outside of brackets are unbreakable."""
    depth, characters = 0, list[str]()
    for character in code:
        depth += (character in "([{") - (character in ")]}")
        characters.append(_NO_BREAK if character == " " and depth == 0 else character)
    return "".join(characters)
