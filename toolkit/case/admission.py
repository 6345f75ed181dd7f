"""Whether a case folder needs trust: its demands, and the refusal that names them.

Reads the manifest and the names in `graph.json`, as JSON; nothing that a case names is imported,
looked up or run.
"""

import contextlib
import shlex
from collections.abc import Collection
from pathlib import Path

from ctk.compiler.errors import CaseError, TrustError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.limits import GRAPH_NBYTES
from ctk.toolkit.case.formats.strict_json import Json, read_json
from ctk.toolkit.case.graphs.callables import names_of_calls
from ctk.toolkit.case.graphs.graph_json import target_names
from ctk.toolkit.case.manifest import GRAPH, Manifest, read_manifest
from ctk.toolkit.case.trust.demands import CodeNames, Demand, UserOverrides, demands_of

_SHOWN = 20
"""How many demands a refusal lists."""

_NEXT = """next: if you trust who made it: --trust (in Python: trust=True)
  or say yourself how to compile it: --target TARGET, --config KEY=VALUE, --allow-import MODULE
  all that it would do: ctk show {folder}"""


def code_names_of(manifest: Manifest, graph: Json) -> CodeNames:
    """Return the names in a case that can refer to code."""
    calls = dict.fromkeys(target_names(graph))
    return CodeNames(manifest.target, manifest.config, manifest.imports, tuple(calls))


def demands_in(folder: Path) -> tuple[Demand, ...]:
    """Return the demands of the case in a folder; a broken graph demands nothing.

    Raises:
        CaseError: Its manifest cannot be read.
    """
    manifest = read_manifest(folder)
    graph: Json = {}
    with contextlib.suppress(CaseError):
        graph = read_json(folder / GRAPH, next_step="", limit=GRAPH_NBYTES)
    return demands_of(code_names_of(manifest, graph))


def check_trust(
    folder: Path,
    words: CodeNames,
    given: UserOverrides,
    *,
    allow_imports: Collection[str],
    alias: str,
) -> None:
    """Refuse a case that would run, import or set anything beyond torch.

    Raises:
        TrustError: The case has demands; the message lists them and how to trust or replace them.
    """
    demands = demands_of(words, given, allow_imports=allow_imports, aliases=(alias,))
    if demands:
        more = len(demands) - _SHOWN
        lines = [*map(str, demands[:_SHOWN]), *([f"and {more} more"] if more > 0 else [])]
        listed = "\n".join(f"  {line}" for line in lines)
        raise TrustError(
            f"{folder} is not trusted, and more than torch's own operators would run:\n{listed}\n"
            f"{_NEXT.format(folder=shlex.quote(str(folder)))}"
        )


def trust_option(subject: Case | Path) -> str:
    """Return ` --trust` for a command on a case that needs it, else an empty string.

    Args:
        subject: A case, or its folder; the command reports an unreadable folder itself.
    """
    try:
        if isinstance(subject, Path):
            demands = demands_in(subject)
        else:
            calls = names_of_calls(subject.graph)
            demands = demands_of(CodeNames(subject.target, subject.config, calls=calls))
    except CaseError:
        return ""
    return " --trust" if demands else ""


def command_on(verb: str, folder: Path, case: Case | None = None) -> str:
    """Return `ctk VERB FOLDER`, as a shell takes it, with `--trust` if the case needs it."""
    return f"ctk {verb} {shlex.quote(str(folder))}{trust_option(case or folder)}"
