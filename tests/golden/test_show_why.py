"""What `ctk show --why` prints of a certificate, in a terminal of 80 columns."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ctk.toolkit.case.formats.schema import write_document
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.cli.commands.show_why import show_why
from ctk.toolkit.cli.shell.answer import as_text
from ctk.toolkit.operations.report.certificate_file import (
    CERTIFICATE,
    NEIGHBOUR,
    CertificateRecord,
    Remaining,
    digest_of_case,
)
from ctk.toolkit.reduce.certificate import Refusal
from tests.helpers.case_folders import linear_case

SAME = "equal to eager, bit for bit"
GONE = Refusal("remove", "without mul_5", Verdict.PASSES, SAME, ("mul_5",))
REFUSALS = (
    Refusal("shrink_dimensions", "dimension 0 of x: 17 -> 16", Verdict.PASSES, SAME, ("x",)),
    *(
        Refusal("simplify_values", f"x[{row}, 0] = 0", Verdict.PASSES, SAME, ("x",))
        for row in range(17)
    ),
    GONE,
    Refusal("shortcut", "x in place of mul_5", None, "is not smaller", ("mul_5",)),
    Refusal(
        "remove",
        "without relu",
        Verdict.DIFFERENT,
        "compile-error: TypeError in joint/fold_scale_into_add: unsupported operand",
        ("relu",),
    ),
    Refusal("drop_options", "without epilogue_fusion=False", Verdict.TIMEOUT, "", ("fusion",)),
)
NODES = (
    Remaining("x", "x: float32[17, 1] = input"),
    Remaining("mul_5", "mul_5: float32[17, 1] = aten.mul.Tensor(x, 0.5)"),
    Remaining("relu", "relu: float32[17, 1] = aten.relu.default(mul_5)"),
    Remaining("output", "return (relu,)"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["minimal", "unfinished"])
def test_text(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    folder = save_case(linear_case(), Path("out/case"))
    save_case(linear_case(), folder.parent / NEIGHBOUR)
    record = CertificateRecord(
        digest_of_case(folder), "minimal", (), NODES, REFUSALS, 0, neighbour=GONE
    )
    if name == "unfinished":
        record = CertificateRecord(
            record.digest, "seconds", ("cut", "remove"), NODES, REFUSALS[-3:], 7, neighbour=None
        )
    (folder / CERTIFICATE).write_text(write_document(record))
    text = as_text(show_why(Path("out")), Terminal())
    first, *lines = text.splitlines()
    assert first and max(map(len, lines)) <= 80
    golden(f"texts/why_{name}.txt", text)
