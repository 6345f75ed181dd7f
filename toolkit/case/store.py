"""Save and load cases: a folder that can be opened without running foreign code.

    manifest.json          settings of the case; lists every other file with its hash
    graph.json             the graph (`graph_json`)      graph.py   the same for people
    constants.safetensors  values of its constants
    inputs.json            the inputs: numbers, and how tensors lie in memory (`tensors`)
    inputs.safetensors     values of the inputs that were stored
    places.json            lines of the program, and modules, of its nodes (`places`)
    sources/               the user's own passes or backend, as they were

Repros and dumps of passes put their files beside these.
"""

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import cast, get_args

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError, count_of, nearest
from ctk.compiler.options.choices import InputsMode
from ctk.toolkit.case.admission import check_trust, code_names_of
from ctk.toolkit.case.carried_sources import (
    SourcePlan,
    absolute_files,
    absolute_references,
    copies_of_modules,
    copy_sources,
    plan_sources,
    resolve_references,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_replacement import replace_case, whole_case
from ctk.toolkit.case.formats.files import atomic_folder, is_partial, replace_file, write_text
from ctk.toolkit.case.formats.folder_walk import require_folder
from ctk.toolkit.case.formats.limits import GRAPH_NBYTES
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.safetensors_file import load_arrays, save_arrays
from ctk.toolkit.case.formats.schema import convert, read_document, write_document
from ctk.toolkit.case.formats.strict_json import Json, dump_json, read_json
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.graphs.callables import is_file, load_imports, module_of_target
from ctk.toolkit.case.graphs.graph_json import graph_from_json, graph_to_json, target_names
from ctk.toolkit.case.graphs.places import PLACES, Places, read_places
from ctk.toolkit.case.graphs.process_groups import groups_of, replace_missing
from ctk.toolkit.case.graphs.python_source import graph_to_python
from ctk.toolkit.case.inputs import (
    Inputs,
    choose_stored_values,
    pack_inputs,
    symbols_of,
    unpack_inputs,
)
from ctk.toolkit.case.linked_case import linked_arrays
from ctk.toolkit.case.manifest import (
    GRAPH,
    INPUTS,
    MANIFEST,
    Manifest,
    check_files,
    file_record,
    make_provenance,
    read_manifest,
    write_manifest,
)
from ctk.toolkit.case.roles import roles_in
from ctk.toolkit.case.trust.demands import NO_OVERRIDES, UserOverrides

TEXT, CONSTANTS = "graph.py", "constants.safetensors"
VALUES = "inputs.safetensors"

_NEXT = "copy the folder again, or capture again with CTK_DUMP=DIR"


# --- saving -------------------------------------------------------------------------------------


def save_case(
    case: Case,
    folder: str | Path,
    *,
    inputs: str = "recipe",
    overwrite: bool = False,
    portable: bool = True,
) -> Path:
    """Write a case and return its folder, which appears when it is complete.

    Args:
        case: Only read. Fake tensors among its inputs become synthetic ones.
        folder: It must not exist, or be empty.
        inputs: `full`: store every value. `recipe`: store small buffers, constants and inputs, and
            those of `case.synthetic`; give the others synthetic values of the same statistics.
            `none`: no values and no statistics.
        overwrite: Write into a folder that may hold other files, which stay, and replace the case
            in it, if any.
        portable: Copy the user's own files into the folder and refer to the copies, so that it can
            be moved. False, for a child process: name the files where they are, and write every
            text as it is (a case for others is scrubbed of secrets and home paths).

    Raises:
        CaseError: The folder is occupied, or the case holds a value that cannot be saved.
        StorageError: It cannot be written; a case to be replaced is still whole.
    """
    if inputs not in get_args(InputsMode):
        modes = get_args(InputsMode)
        raise CaseError(f"inputs={inputs!r} is none of {', '.join(modes)}{nearest(inputs, modes)}")
    folder = Path(folder)
    if overwrite and folder.is_dir():
        with replace_case(folder) as partial:
            _write_case(case, partial, inputs, portable)
        return folder
    with atomic_folder(folder) as partial:
        _write_case(case, partial, inputs, portable)
    return folder


def _write_case(case: Case, folder: Path, inputs: str, portable: bool) -> None:
    keep, measure = choose_stored_values(case, inputs), inputs != "none"
    graph, constants = graph_to_json(case.graph, keep=keep, measure=measure)
    values, arrays = pack_inputs(case, keep=keep, measure=measure)
    plan = plan_sources(case) if portable else SourcePlan(*absolute_references(case), {})
    manifest = Manifest(
        name=case.name,
        target=plan.target,
        config=plan.config,
        modes=case.modes,
        signature=case.signature,
        inputs=cast("InputsMode", inputs),
        dynamic=case.dynamic,
        symbols=symbols_of(case),
        synthetic=_synthetic_names(case, graph, values),
        roles=roles_in(case.graph, case.roles),
        imports=_imports(case, graph, plan, portable=portable),
        sources=plan.listed,
        files={},
        provenance=make_provenance(),
        groups=groups_of(case.graph),
    )
    copy_sources(plan, folder)
    write = write_text if portable else _write_exact
    write(folder / GRAPH, dump_json(graph))
    write(folder / INPUTS, write_document(values))
    for name, stored in ((CONSTANTS, constants), (VALUES, arrays)):
        if stored:
            save_arrays(folder / name, stored)
    write(folder / TEXT, _text(case, manifest))
    if (places := Places.of(case.graph)).nodes:
        write(folder / PLACES, write_document(places))
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): file_record(path) for path in written}
    manifest = dataclasses.replace(manifest, files=files)
    write_manifest(manifest, folder, exact=not portable)


def _write_exact(path: Path, text: str) -> None:
    """Write a text for a child process, unscrubbed."""
    replace_file(path, text.encode())


def _synthetic_names(case: Case, graph: Json, inputs: Inputs) -> tuple[str, ...]:
    """Return the inputs and constants whose values are not the program's own."""
    constants = convert(TensorIndex, graph["constants"], where=GRAPH)
    return tuple(dict.fromkeys([*case.synthetic, *inputs.tensors.synthetic, *constants.synthetic]))


def _imports(case: Case, graph: Json, plan: SourcePlan, *, portable: bool) -> tuple[str, ...]:
    """Return the imports of a load: modules by name, files by their place in the folder."""
    modules = (module_of_target(name) for name in target_names(graph))
    imports = dict.fromkeys(module for module in modules if module is not None)
    if not portable:
        return absolute_files(case, imports)
    return (*(module for module in imports if not is_file(module)), *plan.registering)


def _text(case: Case, manifest: Manifest) -> str:
    """Return graph.py: for people, with its provenance on the first line."""
    made = manifest.provenance
    calls = sum(node.op.startswith("call") for node in case.graph.graph.nodes)
    name = re.sub(r"[^\w. -]", "_", case.name)
    header = (
        f"{name}: {count_of(calls, 'call')}, captured with torch {made.torch} by ctk {made.ctk}; "
        "for reading, ctk loads graph.json"
    )
    return graph_to_python(case.graph, header=header)


# --- loading ------------------------------------------------------------------------------------


def load_case(
    folder: str | Path,
    *,
    trust: bool = False,
    allow_imports: Collection[str] = (),
    given: UserOverrides = NO_OVERRIDES,
    device: str | None = None,
) -> Case:
    """Read a case; without trust, a case that names code or unsafe options is refused.

    So every `Case` may be judged: its user trusts it, or it is harmless.

    >>> import ctk, torch
    >>> (graph,) = ctk.repro(torch.relu, torch.ones(2)).graphs
    >>> folder = ctk.save_case(graph.case, "relu")
    >>> ctk.load_case(folder).target
    'ctk'

    Args:
        trust: Whether the user trusts the author of the case: then its modules are imported, and
            its target, passes and options are used as they are.
        allow_imports: Modules of the manifest that may be imported: for a case that only calls
            functions or operators of these.
        given: Replaces target and options of the case; needs no trust.
        device: Put all tensors, and every argument that is a device, there instead.

    Raises:
        CaseError: The folder is missing, half-written, damaged or from a newer ctk, or the graph
            calls something that is not allowed.
        TrustError: It would run or set more than torch's own; the message lists it.
    """
    folder = _existing(Path(folder))
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    data = read_json(folder / GRAPH, next_step=_NEXT, limit=GRAPH_NBYTES)
    target, config = resolve_references(manifest, folder)
    words = code_names_of(manifest, data)
    if not trust:
        check_trust(folder, words, given, allow_imports=allow_imports, alias=target)
    allowed = set(manifest.imports) & set(manifest.imports if trust else allow_imports)
    sources = tuple((folder / source).resolve() for source in manifest.sources)
    copies = copies_of_modules(manifest.imports, sources)
    allowed |= load_imports(manifest.imports, allowed, folder.resolve(), set(words.calls), copies)
    replace_missing(manifest.groups)
    graph, inputs = _graph_and_inputs(folder, manifest, data, allowed, trust=trust, device=device)
    return Case(
        graph=graph,
        inputs=inputs,
        target=target,
        config=config,
        modes=manifest.modes,
        signature=manifest.signature,
        name=manifest.name,
        sources=sources,
        dynamic=manifest.dynamic,
        synthetic=manifest.synthetic,
        roles=manifest.roles,
    )


def _graph_and_inputs(
    folder: Path,
    manifest: Manifest,
    data: Json,
    allowed: Collection[str],
    *,
    trust: bool,
    device: str | None,
) -> tuple[GraphModule, tuple[object, ...]]:
    try:
        arrays = _arrays(folder, CONSTANTS, manifest)
        graph = graph_from_json(data, arrays, allow_imports=allowed, trust=trust, device=device)
        if PLACES in manifest.files:
            read_places(folder).restore(graph)
        packed = read_document(Inputs, folder / INPUTS, next_step=_NEXT, limit=GRAPH_NBYTES)
        stored = {**_arrays(folder, VALUES, manifest), **linked_arrays(folder, manifest, packed)}
        return graph, unpack_inputs(packed, stored, graph, device)
    except (CaseError, RecursionError) as error:
        kind = type(error) if isinstance(error, CaseError) else CaseError
        raise kind(one_line(f"{error}, in {folder}")) from error


def _existing(folder: Path) -> Path:
    folder = folder.expanduser()
    folder = folder.parent if folder.name == MANIFEST else folder
    require_folder(folder)
    if is_partial(folder):
        raise CaseError(f"{folder} is half-written: the process that wrote it died; {_NEXT}")
    return whole_case(folder)


def _arrays(folder: Path, name: str, manifest: Manifest) -> dict[str, Tensor]:
    return load_arrays(folder / name) if name in manifest.files else {}
