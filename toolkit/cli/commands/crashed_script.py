"""The answer of `ctk run` for a script whose process was killed: the compile at work, and its case.

The watched half saves each graph before it is compiled, reports when a compile or a first call
begins and ends, and writes each event of the compile as it comes.
"""

import json
from pathlib import Path

from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.processes.supervise import End


def answer_for_script(ending: str, end: End) -> Answer:
    """Return the answer: a failure when a compile or a first call was at work, else cannot tell.

    Args:
        ending: Description of the end of the process.
        end: The end, with the cases that were at work.
    """
    works = end.notes.works
    dumps = str(Path(next(iter(works))).parent) if works else None
    data: dict[str, object] = {
        "error": {"type": "Killed", "message": ending},
        "graphs": len(works),
        "failures": [],
        "dumps": dumps,
    }
    body = (f"dumps: {dumps}",) if dumps else ()
    case, work = next(((case, work) for case, work in works.items() if work.doing), ("", None))
    if work is None:
        where = f"after {len(works)} graph(s) had been compiled and called" if works else "early"
        headline = f"cannot tell: the script ended {where}: {ending}"
        return Answer(ExitCode.CANNOT_TELL, headline, data, body)
    name = Path(case).name
    summary = f"{ending} while {work.doing}{_after(Path(case))}"
    saved = f"the case is saved in {case}" if work.command else "its case could not be saved"
    return Answer(
        ExitCode.FAILURE,
        f"failure: {name}: {summary}; {saved}",
        data
        | {
            "failures": [
                {"graph": name, "case": case if work.command else None, "summary": summary}
            ]
        },
        (*([work.command] if work.command else []), *body),
    )


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
