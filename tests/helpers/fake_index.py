"""An index of tiny wheels named torch and triton, so that releases install in a second."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

SCRIPT = """
import sys
import torch

sys.exit({codes}.get(torch.__version__, {other}))
"""


def write_wheel(
    folder: Path, name: str, version: str, *, requires: str = "", files: Mapping[str, str] = {}
) -> Path:
    """Write a wheel with some files; `requires` is one requirement."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    text = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    rows = [f"{path},{_digest(content)},{len(content)}\n" for path, content in text.items()]
    record = "".join([*rows, f"{info}/RECORD,,\n"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in (text | {f"{info}/RECORD": record}).items():
            archive.writestr(path, content)
    return wheel


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


def write_triton(folder: Path, version: str) -> Path:
    """Write a wheel of Triton."""
    return write_wheel(
        folder, "triton", version, files={"triton/__init__.py": f"__version__ = {version!r}\n"}
    )


def write_torch(folder: Path, version: str, *, triton: str = "", requires: str = "") -> Path:
    """Write a wheel of torch that brings a release of Triton, or has another requirement."""
    commit = version.replace(".", "") * 4
    files = {
        "torch/__init__.py": "from torch.version import __version__\n",
        "torch/version.py": f"__version__ = {version!r}\ngit_version = {commit!r}\n",
    }
    needs = f"triton=={triton}" if triton else requires
    return write_wheel(folder, "torch", version, requires=needs, files=files)


def script_text(codes: Mapping[str, int], other: int = 0) -> str:
    """Return a script that ends with an exit code by the release of torch."""
    return SCRIPT.format(codes=dict(codes), other=other)
