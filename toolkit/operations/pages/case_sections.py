"""The sections of a page about one case: its graph as text, its dump, its environment."""

from pathlib import Path

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.case.admission import demands_in
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.manifest import Manifest, read_manifest
from ctk.toolkit.operations.pages.reduction_sections import read_listing
from ctk.toolkit.page.page import Absent, Block, Code, Facts, Rows, Section, section
from ctk.toolkit.watch.dump import DumpedKernel, DumpedPass, read_dumped

_MOST_DIFFS = 60
_MOST_KERNELS = 20


def environment_section(folder: Path) -> Section:
    """Return the section with the versions and settings of a case."""
    try:
        manifest = read_manifest(whole_case(folder))
    except CaseError as error:
        return section("Environment", (), Absent(one_line(f"The case cannot be read: {error}.")))
    return section("Environment", [Facts(tuple(_facts(manifest)))])


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    made = manifest.provenance
    rows = [("torch", made.torch), ("ctk", made.ctk), ("Python", made.python)]
    rows += [("platform", made.platform), ("written", made.created), ("target", manifest.target)]
    rows += [("option", f"{name} = {value}") for name, value in manifest.config.items()]
    rows += [("variable", f"{name}={value}") for name, value in made.environment.items()]
    rows += [("imports", name) for name in manifest.imports]
    rows += [
        ("inputs", f"{manifest.inputs}; {count_of(len(manifest.synthetic), 'value')} synthetic")
    ]
    return rows


def trust_block(folder: Path) -> tuple[Block, ...]:
    """Return a table of the things that a case would run, if it needs trust."""
    try:
        demands = demands_in(whole_case(folder))
    except CaseError:
        return ()
    rows = tuple((demand.kind, demand.name, demand.where) for demand in demands)
    label = "This case runs code of its own: commands on it need --trust"
    return (Rows(label, ("kind", "name", "where"), rows),) if rows else ()


def event_sections(folder: Path) -> tuple[Section, ...]:
    """Return the sections of the passes and kernels of a dump; none without a dump."""
    try:
        passes, kernels = read_dumped(DumpedPass, folder), read_dumped(DumpedKernel, folder)
    except CaseError as error:
        return (section("Passes", (), Absent(one_line(f"The events cannot be read: {error}."))),)
    return (*_passes(folder, passes), *_kernels(folder, kernels))


def _passes(folder: Path, passes: list[DumpedPass]) -> tuple[Section, ...]:
    if not passes:
        return ()
    rows = tuple(
        (
            str(each.number),
            each.pass_,
            _state(each),
            f"{each.rewrites:,}",
            f"{each.seconds * 1000:.1f}",
        )
        for each in sorted(passes, key=lambda each: (not each.changed, each.number))
    )
    columns = ("number", "pass", "effect", "rewrites", "ms")
    table = Rows(
        f"{count_of(len(passes), 'pass', 'passes')}, those with a change first",
        columns,
        rows[:200],
        numbers=frozenset({0, 3, 4}),
    )
    diffs: list[Block] = []
    for each in [each for each in passes if each.changed][:_MOST_DIFFS]:
        path = next((folder / "passes").glob(f"{each.number:03}_*.diff"), None)
        text = read_listing(folder, f"passes/{path.name}") if path is not None else ""
        if text:
            diffs.append(Code(f"{each.number} {each.pass_}", text, is_diff=True, is_folded=True))
    return (section("Passes", [table, *diffs]),)


def _state(each: DumpedPass) -> str:
    return "vetoed" if each.vetoed else "changed" if each.changed else "none"


def _kernels(folder: Path, kernels: list[DumpedKernel]) -> tuple[Section, ...]:
    if not kernels:
        return ()
    rows = tuple(
        (
            each.kernel,
            ", ".join(each.nodes[:12]) or "all nodes",
            f"{each.seconds * 1000:.1f}",
            each.reason or "",
        )
        for each in kernels
    )
    blocks: list[Block] = [
        Rows(
            count_of(len(kernels), "kernel"),
            ("kernel", "nodes", "ms", "reason"),
            rows[:200],
            numbers=frozenset({2}),
        )
    ]
    for each in [each for each in kernels if each.file][:_MOST_KERNELS]:
        text = read_listing(folder, f"kernels/{Path(each.file or '').name}")
        if text:
            blocks.append(Code(each.kernel, text, is_folded=True))
    return (section("Kernels", blocks),)
