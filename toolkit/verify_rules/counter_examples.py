"""Counter-examples as Python text, and kept in a folder: a script and a case for each.

    DIR/my_pass-0/counter_example.py    both graphs and the inputs; needs torch only; exits 1
    DIR/my_pass-0/case/                 the graph before the rule and its inputs, for `ctk check`

Only the script shows an error in a write in place, or in the sign of a zero: a compile makes graphs
functional and judges by tolerances.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import CtkError
from ctk.compiler.rewriting.stage_passes import SLOTS
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.python_source import graph_to_python
from ctk.toolkit.case.store import save_case
from ctk.toolkit.execution.execute import Outcome
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.repro.tensor_source import literal_source
from ctk.toolkit.verify_rules.graphs import build_graph, run_inputs
from ctk.toolkit.verify_rules.judge import results_of
from ctk.toolkit.verify_rules.subjects import WHOLE
from ctk.toolkit.verify_rules.verify import CounterExample, RuleFinding

SCRIPT = '''

def seen(module, inputs):
    """Return everything that a caller can observe of a run, as lines."""
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


def inputs_text(counter: CounterExample) -> str:
    """Return the inputs as a Python list."""
    tensors = run_inputs(counter.draw)
    lines = "".join(f"    {literal_source(tensor)},\n" for tensor in tensors)
    return f"inputs = [\n{lines}]\n"


def graph_text(graph: GraphModule | None, name: str) -> str:
    """Return a graph as the source of a module class; as nodes if it has no source."""
    if graph is None:
        return f"# {name}: the rule raised"
    try:
        return graph_to_python(graph, name).strip().removeprefix("import torch").strip()
    except CtkError:
        return "\n".join(f"# {line}" for line in str(graph.graph).strip().splitlines())


def outcome_lines(runs: Sequence[Outcome]) -> list[str]:
    """Return one line per run: its results, or its exception."""
    lines: list[str] = []
    for when, run in zip(("before", "after"), runs, strict=False):
        plain = [v.tolist() if isinstance(v, Tensor) else v for v in results_of(run)]
        lines.append(f"{when}: {plain if run.error is None else run.error}")
    return lines


def _declaration(finding: RuleFinding) -> list[str]:
    """Return how to declare the numerics of a plain function, if only values differ."""
    step, counter = finding.subject.step, finding.counter
    difference = counter.trial.difference if counter is not None else None
    is_plain = isinstance(step, FunctionPass) and not hasattr(step.function, "numerics")
    is_value = difference is not None and difference.kind == "value"
    if not is_plain or finding.subject.name != WHOLE or not is_value:
        return []
    return [
        f'# bits are compared; if it may round otherwise: {step.name}.numerics = "reassociates"'
    ]


def render_counter_example(finding: RuleFinding) -> str:
    """Return a counter-example as Python: both graphs, the inputs, both results."""
    counter = finding.counter
    assert counter is not None
    subject, trial = finding.subject, counter.trial
    parts = [
        f"# {subject} is refuted: {counter.summary}",
        graph_text(trial.before, "Before"),
        graph_text(trial.after, "After"),
        inputs_text(counter).strip(),
        *(f"# {line}" for line in outcome_lines(trial.runs)),
        *_declaration(finding),
    ]
    return "\n\n".join(parts)


def keep_counter_examples(findings: Sequence[RuleFinding], folder: Path) -> list[Path]:
    """Write the counter-example of each refuted rule; return the folders."""
    refuted = [finding for finding in findings if finding.counter is not None]
    return [_keep(each, folder, number) for number, each in enumerate(refuted)]


def _keep(finding: RuleFinding, folder: Path, number: int) -> Path:
    assert finding.counter is not None
    name = re.sub(r"[^\w]+", "_", finding.subject.pass_name)
    kept = folder / f"{name}-{number}"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "counter_example.py").write_text(render_script(finding), encoding="utf-8")
    _keep_case(finding, finding.counter, kept / "case")
    return kept


def render_script(finding: RuleFinding) -> str:
    """Return a script that shows a counter-example with torch alone."""
    counter = finding.counter
    assert counter is not None
    text = render_counter_example(finding)
    if counter.trial.after is None:
        return f"{text}\n\nraise SystemExit(125)  # the rule raised: no graph\n"
    head, body = text.split("\n", 1)
    graphs = [each for each in (counter.trial.before, counter.trial.after) if each is not None]
    buffers = {name: tensor for graph in graphs for name, tensor in graph.named_buffers()}
    constants = "".join(
        f"        {name!r}: {literal_source(tensor)},\n" for name, tensor in buffers.items()
    )
    functions = f"def constants():\n    return {{\n{constants}    }}\n"
    body = body.replace("inputs = [", "def make_inputs():\n    return [").replace("\n]", "\n    ]")
    return f"{head}\n\nimport sys\n\nimport torch\n\n{body}\n\n\n{functions}{SCRIPT}"


def _keep_case(finding: RuleFinding, counter: CounterExample, folder: Path) -> None:
    if folder.exists():
        return
    place = finding.subject.place
    slot = SLOTS.get(finding.subject.stage, ("joint",))[0]
    drawn = build_graph(counter.draw)
    case = Case(
        drawn.graph,
        run_inputs(counter.draw),
        config={"custom_passes": {slot: [place]}} if place else {},
        sources=(Path(place.rpartition(":")[0]),) if place else (),
        name=folder.parent.name,
    )
    with contextlib.suppress(CtkError):  # a graph that cannot be judged is kept without a failure
        case = replace(case, signature=judge(case).signature)
    save_case(case, folder, inputs="full")
