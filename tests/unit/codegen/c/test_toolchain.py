"""What is told where the C compiler fails without a word."""

from pathlib import Path

import pytest

from ctk.compiler.codegen.c.toolchain import compile_files
from ctk.compiler.errors import CodegenUnsupported


@pytest.mark.parametrize(
    ("script", "ending"),
    [("exit 4", r"\(exit 4\)"), ("kill -XFSZ $$", r"\(killed by SIGXFSZ\)")],
)
def test_a_compiler_that_says_nothing(script: str, ending: str, tmp_path: Path) -> None:
    command = ["sh", "-c", script]
    told = rf"the kernels add, mul {ending}:\nit printed nothing.*disk is full"
    with pytest.raises(CodegenUnsupported, match=told):
        compile_files([tmp_path / "kernels.c"], command, [["add", "mul"]])
