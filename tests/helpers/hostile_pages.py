"""A diagnosis whose every text is hostile: markup, scripts, controls, very long lines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctk.toolkit.case.formats.schema import convert, encode
from ctk.toolkit.compile_log.trace.document import FILE as TRACE
from ctk.toolkit.compile_log.trace.document import Trace
from tests.helpers.made_traces import made_trace
from tests.helpers.mutations import DIAGNOSIS

HOSTILE = (
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=2>",
    "<!--<script>",
    "]]><svg onload=window.hit=3>",
    '" onmouseover="window.hit=4',
    "' autofocus onfocus='window.hit=5",
    "{{ 7 * 7 }}{% raw %}${window.hit=6}",
    "javascript:window.hit=7",
    "\u2028\u2029\u202egnp\u2066\u200f",
    "\x1b[2K\rno failure\x07\0",
    "=HYPERLINK(1)&amp;&lt;&#x3c;",
    "x" * 50_000,
)


def poison(value: Any, texts: tuple[str, ...], counter: list[int]) -> Any:
    """Return JSON values in which each text has a hostile one added."""
    if isinstance(value, str):
        counter[0] += 1
        return f"{value}{texts[counter[0] % len(texts)]}"
    if isinstance(value, list):
        return [poison(each, texts, counter) for each in value]
    return value


FREE = {
    "case",
    "name",
    "text",
    "place",
    "module",
    "value",
    "mismatch",
    "node",
    "reason",
    "rule",
    "ir",
}
"""Keys of a trace whose values are free text."""


def hostile_trace() -> Trace:
    """Return a trace whose names, lines, places, rules and reasons are hostile."""
    trace = made_trace(2, 12)
    counter = [0]

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: poison(each, HOSTILE, counter) if key in FREE else change(each)
                for key, each in value.items()
            }
        return [change(each) for each in value] if isinstance(value, list) else value

    made = convert(Trace, change(encode(trace)), where="made")
    return replace(made, cut=HOSTILE)


def write_hostile(folder: Path) -> Path:
    """Write a diagnosis and a trace of a stranger into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = json.loads(json.dumps(DIAGNOSIS))
    counter = [0]
    for key in ("case", "detail", "reason"):
        record[key] = poison(record.get(key) or "", HOSTILE, counter)
    record["problems"] = [*HOSTILE]
    record["excluded"] = [*HOSTILE]
    record["questions"] = 10**18
    (folder / "diagnosis.json").write_text(json.dumps(record))
    (folder / TRACE).write_text(json.dumps(encode(hostile_trace())))
    return folder
