"""docs/schemas holds the JSON Schema of what ctk writes, made from the declarations."""

import json
from collections.abc import Callable
from pathlib import Path

import fastjsonschema
import pytest

from ctk.toolkit.bisect.culprit import Search
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import json_schema
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.manifest import MANIFEST, Manifest
from ctk.toolkit.case.store import save_case
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.compile_log.trace.document import Trace
from ctk.toolkit.operations.report.as_json import Record, write_json
from ctk.toolkit.operations.report.certificate_file import CertificateRecord
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from tests.helpers.case_folders import linear_case
from tests.helpers.project import ROOT

SCHEMAS = {
    "manifest": Manifest,
    "diagnosis": Record,
    "certificate": CertificateRecord,
    "outcome": Outcome,
    "trace": Trace,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_in_the_docs_is_the_declaration(
    name: str, golden: Callable[[str, str], None]
) -> None:
    text = json.dumps(json_schema(SCHEMAS[name]), indent=2)
    golden(f"../../docs/schemas/{name}.schema.json", f"{text}\n")


def check(name: str, document: dict[str, object]) -> None:
    schema = json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8"))
    fastjsonschema.validate(schema, document)


@pytest.mark.parametrize("signature", [None, Signature("accuracy", output="out0")])
def test_a_manifest_is_valid(signature: Signature | None, tmp_path: Path) -> None:
    source = tmp_path / "my.py"
    source.write_text("def backend(gm, example_inputs): ...\n")
    case = linear_case(target=f"{source}:backend", config={"a": [1, None]}, signature=signature)
    document = json.loads((save_case(case, tmp_path / "case") / MANIFEST).read_text())
    check("manifest", document)
    for damage in ({"schema": 1}, {"inputs": "some"}, {"new": 1}, {"files": {"a": {}}}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check("manifest", document | damage)


def test_a_diagnosis_is_valid(tmp_path: Path) -> None:
    passes = Diagnosis(linear_case(), Search(Judgement(Verdict.PASSES)), 0.5)
    document = json.loads(write_json(passes, tmp_path).read_text())
    check("diagnosis", document)
    for damage in ({"state": "done"}, {"seconds": "1"}, {"culprit": {}}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check("diagnosis", document | damage)
