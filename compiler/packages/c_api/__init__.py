"""The C API: `ctk.h` and `ctk.c`, which a program compiles into itself to call packages."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder of the two files."""

HEADER = FOLDER / "ctk.h"
SOURCE = FOLDER / "ctk.c"

ABI_VERSION = 1
"""`CTK_ABI_VERSION` of ctk.h."""

LIBRARY_MEMBER = "c/package.so"
"""The member of a package that holds its library for C programs."""
