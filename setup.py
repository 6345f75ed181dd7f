"""Map `ctk.compiler`, `ctk.toolkit` and `ctk.repro_templates` to the folders of the repository.

The links in `ctk/` serve checkouts only. Wheels, editable installs and the sdist take the folders
themselves, so that each file has one path and an sdist has the layout of the repository.
"""

from setuptools import find_packages, setup

# The pages of errors (`ctk explain`) are documents, and data of the installed package.
PAGES = "ctk.error_pages"
TOPS = ("compiler", "toolkit", "repro_templates")
INNER = find_packages(include=[name for top in TOPS for name in (top, f"{top}.*")])

setup(
    py_modules=["ctk_pytest"],
    packages=["ctk", PAGES, *(f"ctk.{name}" for name in INNER)],
    package_dir={PAGES: "docs/errors", **{f"ctk.{top}": top for top in TOPS}},
    package_data={PAGES: ["*.md"]},
)
