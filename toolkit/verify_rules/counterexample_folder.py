"""Keep counter-examples in a folder: a script and a case for each.

    DIR/my_pass-0/counter_example.py    both graphs and the inputs; needs torch only; exits 1
    DIR/my_pass-0/case/                 the graph before the rule and its inputs, for `ctk check`

The case adds the user's pass to its compile, where there is one around the rule. A compile makes
graphs functional before most passes run and judges by tolerances: a rule that is wrong about writes
in place, or in the sign of a zero, is shown by the script alone.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ctk.compiler.errors import CtkError
from ctk.compiler.rewriting.stage_passes import SLOTS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import save_case
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.verify_rules.as_text import counter_text, tensor_text
from ctk.toolkit.verify_rules.graphs import build, inputs_of
from ctk.toolkit.verify_rules.verify import CounterExample, Finding

SCRIPT = '''

def seen(module, inputs):
    """Return all that a caller notices of a run, as lines."""
    torch.manual_seed(0)
    storages = {each.untyped_storage().data_ptr(): f"in{at}" for at, each in enumerate(inputs)}
    with torch.no_grad():
        results = module(*inputs)
    lines = [f"in{at} holds {each.tolist()}" for at, each in enumerate(inputs)]
    for at, each in enumerate(results):
        memory = storages.setdefault(each.untyped_storage().data_ptr(), f"out{at}")
        lines.append(
            f"out{at}: {each.dtype} {tuple(each.shape)} {each.stride()} in the memory of {memory}: "
            f"{each.tolist()}"
        )
    return lines


def shown(make):
    try:
        return seen(make(constants()), make_inputs())
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


before, after = shown(Before), shown(After)
print("before", *before, "after", *after, sep="\\n  ")
sys.exit(int(before != after))
'''


def keep(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Write the counter-example of each refuted rule; return their folders."""
    refuted = [each for each in findings if each.counter is not None]
    return [_keep(each, folder, number) for number, each in enumerate(refuted)]


def _keep(finding: Finding, folder: Path, number: int) -> Path:
    assert finding.counter is not None
    name = re.sub(r"[^\w]+", "_", finding.subject.pass_name)
    place = folder / f"{name}-{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "counter_example.py").write_text(script_of(finding), encoding="utf-8")
    _keep_case(finding, finding.counter, place / "case")
    return place


def script_of(finding: Finding) -> str:
    """Return a script that shows a counter-example with torch alone."""
    counter = finding.counter
    assert counter is not None
    if counter.trial.after is None:
        return f"{counter_text(finding)}\n\nraise SystemExit(125)  # the rule raised: no graph\n"
    head, body = counter_text(finding).split("\n", 1)
    constants = "".join(
        f"        {name!r}: {tensor_text(tensor)},\n" for name, tensor in _constants(counter)
    )
    functions = f"def constants():\n    return {{\n{constants}    }}\n"
    body = body.replace("inputs = [", "def make_inputs():\n    return [").replace("\n]", "\n    ]")
    return f"{head}\n\nimport sys\n\nimport torch\n\n{body}\n\n\n{functions}{SCRIPT}"


def _constants(counter: CounterExample) -> list[tuple[str, Tensor]]:
    """Return the constants of the graphs before and after."""
    graphs = (counter.trial.before, counter.trial.after)
    found = {n: t for each in graphs if each is not None for n, t in each.named_buffers()}
    return list(found.items())


def _keep_case(finding: Finding, counter: CounterExample, folder: Path) -> None:
    """Write the graph before the rule as a case, with the failure that a compile of it shows."""
    if folder.exists():
        return
    place = finding.subject.place
    slot = SLOTS.get(finding.subject.stage, ("joint",))[0]
    built = build(counter.draw)
    case = Case(
        built.graph,
        inputs_of(counter.draw),
        config={"custom_passes": {slot: [place]}} if place else {},
        sources=(Path(place.rpartition(":")[0]),) if place else (),
        name=folder.parent.name,
    )
    with contextlib.suppress(CtkError):  # a graph that cannot be judged is kept as it is
        case = replace(case, signature=judge(case).signature)
    save_case(case, folder, inputs="full")
