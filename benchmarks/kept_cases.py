"""How much of what torch can capture can be kept: torch's own test graphs, saved and loaded.

Goes over torch's databases of operators (`op_db`) and higher-order operators (`hop_db`), takes the
first sample in float32, captures its call with `make_fx` and with Dynamo, saves each graph as a
case, loads it, and compares: the graph's JSON must be equal, and so must the results in eager.
Prints how many are kept and the reasons of the rest, grouped. Nothing is compiled.

    PYTHONPATH=. python benchmarks/kept_cases.py [--ops WORD,WORD] [--skip N] [--limit N]
        [--via dynamo|fx] [--dtype bfloat16] [--json FILE]

Needs `expecttest` (torch's databases import it).
"""

import argparse
import json
import os
import platform
import re
import warnings
from collections import Counter
from pathlib import Path

import torch

from ctk.compiler.errors import CtkError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.scalars import dtype_from_name
from tests.helpers.kept import KEPT, how_kept
from tests.helpers.torch_samples import Call, calls, cases

NO_CAPTURE = "not captured"


def outcome(call: Call, via: str) -> str:
    """Return `kept`, or why not, in words that are the same for the same reason."""
    try:
        made = cases(call, via)
    except Exception as error:
        return f"{NO_CAPTURE}: {reason(error)}"
    try:
        found = [how_kept(case) for case in made]
    except CtkError as error:
        return f"refused: {reason(error)}"
    except Exception as error:
        return f"INTERNAL: {reason(error)}"
    return next((each for each in found if each != KEPT), KEPT)


def reason(error: BaseException) -> str:
    """Return an exception's first line without names and numbers of one graph."""
    text = f"{type(error).__name__}: {first_line(error)}"
    text = re.sub(r"/\S*/(?=[\w.]+\.py)", "", text)
    text = re.sub(r"(?<=node )\S+|0x[0-9a-f]+|\b\d+\b", "*", text)
    return text[:230]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="words in names, separated by commas")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--via", choices=("dynamo", "fx"), action="append")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    words = [word for word in options.ops.split(",") if word]
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores")
    found: dict[str, dict[str, str]] = {}
    chosen = list(calls(words, dtype_from_name(options.dtype, "--dtype")))[options.skip :][
        : options.limit
    ]
    for via in options.via or ["fx", "dynamo"]:
        found[via] = {name: outcome(call, via) for name, call in chosen}
        show(via, found[via])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def show(via: str, results: dict[str, str]) -> None:
    """Print the figures of one way of capturing."""
    captured = [each for each in results.values() if not each.startswith(NO_CAPTURE)]
    count = captured.count(KEPT)
    print(f"{via}: {len(results)} calls, {len(captured)} captured, {count} kept and reload equal")
    for why, times in Counter(results.values()).most_common():
        if why != KEPT:
            names = [name for name, each in results.items() if each == why]
            print(f"  {times:4} {why}\n       {', '.join(names[:6])}")


if __name__ == "__main__":
    main()
