"""Pages of the site that have their source elsewhere: mkdocs calls these hooks (`make docs`).

- The documents in the root of the repository (`ROOT_PAGES`).
- `commands.md`: the help of each command, from the golden files.
- `documents.md`: the JSON Schemas of `docs/schemas/`.
- `errors.md`: the list of the pages in `docs/errors/`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
HELP = ROOT / "tests" / "golden" / "cli_help"
ROOT_PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "vulnerabilities.md": "SECURITY.md",
}
ERRORS_HEAD = """# Errors

The last line of a message has the code; `ctk explain CODE` prints its page.
"""


def on_config(config: Any) -> None:
    """Complete the sections of the navigation; a page in none of them stands under How-to."""
    docs = Path(config.docs_dir)
    tasks, pages = (
        [f"{folder}/{path.name}" for path in sorted((docs / folder).glob("*.md"))]
        for folder in ("how-to", "errors")
    )
    tasks += [path.name for path in sorted(docs.glob("*.md")) if path.name not in str(config.nav)]
    sections = {"How-to": tasks, "Errors": ["errors.md", *pages]}
    config.nav = [complete(entry, sections) for entry in config.nav]


def complete(entry: Any, sections: dict[str, list[str]]) -> Any:
    """Return an entry of the navigation with the pages of its empty sections."""
    ((title, pages),) = entry.items()
    if isinstance(pages, list):
        pages = [complete(page, sections) for page in pages] or sections[title]
    return {title: pages}


def on_files(files: Files, config: Any) -> None:
    """Add the generated pages."""
    pages = {page: from_root(source) for page, source in ROOT_PAGES.items()}
    pages["commands.md"] = "\n".join(commands())
    pages["documents.md"] = "\n".join(documents())
    pages["errors.md"] = "\n".join(errors(Path(config.docs_dir)))
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))


def from_root(name: str) -> str:
    """Return a document of the root with links that start in `docs/`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = text.replace("](docs/", "](").replace("[LICENSE](LICENSE)", "`LICENSE`")
    for page, source in ROOT_PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text


def commands() -> Iterator[str]:
    """Yield the page of the commands, the overview first."""
    yield "# Commands\n"
    for path in sorted(HELP.glob("*.txt"), key=lambda path: (path.stem != "ctk", path.stem)):
        text = path.read_text(encoding="utf-8")
        usage = re.match(r"Usage: ((?:ctk|[a-z][a-z-]*| )+)", text)
        yield f"## `{usage[1].strip() if usage else path.stem}`\n"
        yield f"```text\n{text.rstrip()}\n```\n"


def documents() -> Iterator[str]:
    """Yield the page of the JSON documents: description and keys of each."""
    yield "# JSON documents\n"
    for path in sorted((ROOT / "docs" / "schemas").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        yield f"## {path.name.removesuffix('.schema.json')}\n"
        yield f"```text\n{schema.get('description', '').strip()}\n```\n"
        required = set(schema.get("required", ()))
        keys = (f"`{key}`" if key in required else f"`{key}`?" for key in schema["properties"])
        yield f"Keys (`?`: may be absent): {', '.join(keys)}. [Schema](schemas/{path.name}).\n"


def errors(docs: Path) -> Iterator[str]:
    """Yield the list of error codes."""
    yield ERRORS_HEAD
    for path in sorted((docs / "errors").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{title}](errors/{path.name})"
