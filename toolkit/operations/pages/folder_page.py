"""Choose the page of a folder, and write it."""

import os
from pathlib import Path
from urllib.parse import quote

from ctk.compiler.errors import CaseError, ConfigError, CtkError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.formats.files import make_folder, replace_file
from ctk.toolkit.case.formats.folder_walk import require_folder
from ctk.toolkit.case.manifest import MANIFEST
from ctk.toolkit.operations.pages.compile_page import page_of_case
from ctk.toolkit.operations.pages.diagnosis_page import page_of_diagnosis
from ctk.toolkit.operations.pages.index_page import PageLink, find_entries, page_of_entries
from ctk.toolkit.operations.pages.journal_page import page_of_journal
from ctk.toolkit.operations.report.as_json import FILE
from ctk.toolkit.oracle.answers.journal import JOURNAL
from ctk.toolkit.page.page import Page
from ctk.toolkit.page.rendering import frame, is_page, render

REPORT = "report.html"


def write_report(folder: Path, out: Path | None = None) -> tuple[Path, Page]:
    """Write the page of a folder; of a folder of many, also a page into each of its folders.

    Args:
        out: The file; None for `report.html` in the folder.

    Returns:
        The file, and its page.

    Raises:
        CaseError: There is no such folder, it holds nothing to show, or its record is damaged.
        ConfigError: The file exists and is not a page of ctk.
    """
    require_folder(folder, "name the folder of a case, a diagnosis or dumps")
    path = out if out is not None else folder / REPORT
    page = page_of_folder(folder)
    if page is None:
        page = _write_index(folder, path)
    write_page(page, path)
    return path, page


def page_of_folder(folder: Path) -> Page | None:
    """Return the page of a diagnosis, a journal or a case; None for a folder of several."""
    if (folder / FILE).is_file():
        return page_of_diagnosis(folder)
    if (folder / JOURNAL).is_file():
        return page_of_journal(folder)
    if (whole_case(folder) / MANIFEST).is_file():
        return page_of_case(folder)
    return None


def frame_of_folder(folder: Path) -> str | None:
    """Return the page of a folder, framed for a notebook; None where it cannot be read."""
    try:
        page = page_of_folder(folder)
    except CaseError:
        return None
    return frame(page) if page is not None else None


def _write_index(folder: Path, path: Path) -> Page:
    """Write the pages of the folders below; return the index page, or the page of the only one."""
    entries = find_entries(folder)
    if len(entries.folders) == 1 and len(entries.cases) + len(entries.operations) == 1:
        page = page_of_folder(entries.folders[0])
        assert page is not None, "an entry is a case or an operation"
        return page
    pages: dict[Path, PageLink] = {}
    problems: list[str] = []
    for each in entries.folders:
        try:
            _, page = write_report(each)
        except CtkError as error:
            problems.append(f"{each}: {first_line(error)}")
            continue
        link = quote(os.path.relpath(each / REPORT, path.parent).replace(os.sep, "/"))
        pages[each] = PageLink(link, page.tone)
    return page_of_entries(folder, entries, pages, problems)


def write_page(page: Page, path: Path) -> None:
    """Write a page; an earlier page of ctk is replaced, no other file.

    Raises:
        ConfigError: The file exists and is not a page of ctk, or is a folder.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; next: name a file, such as --out {path / REPORT}")
    if path.exists() and not is_page(path):
        raise ConfigError(
            f"{path} exists and is not a report of ctk; next: remove it, or name another file with "
            "ctk report FOLDER --out FILE"
        )
    make_folder(path.parent)
    replace_file(path, render(page).encode("utf-8", "backslashreplace"))
