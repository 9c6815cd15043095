"""Makes MAP.md from the first lines of all modules and pages: `make map`."""

from __future__ import annotations

import ast
import textwrap
from functools import cache
from pathlib import Path

from tests.support.documents import HOUSES, ROOT

MAP = ROOT / "MAP.md"
#: A first line stands in one line of its file.
LONGEST = 117
HEAD = """# Map of the files

`make map` writes this page from the first line of each module and page; `tests/documents/test_map.py` keeps it up to
date. ARCHITECTURE.md has the layers, and the walks through them.
"""


@cache
def first_line(path: Path) -> str:
    """The first line of a module's docstring, or the title of a page."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text.partition("\n")[0].removeprefix("# ")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def modules() -> list[Path]:
    """All modules of the package, in the order of the map: a folder's own files, then its folders."""
    found = [path for house in HOUSES for path in (ROOT / house).rglob("*.py") if path.is_file()]
    return sorted(found, key=lambda path: (path.parent.relative_to(ROOT).parts, path.name))


def drawn() -> str:
    """The text of MAP.md."""
    parts = [HEAD]
    for package in (path.parent for path in modules() if path.name == "__init__.py"):
        files = sorted(
            path for path in package.iterdir() if path.suffix in (".py", ".md") and path.name != "__init__.py"
        )
        lines = [f"{'#' * min(3, 1 + len(package.relative_to(ROOT).parts))} {package.relative_to(ROOT)}/", ""]
        lines += textwrap.wrap(first_line(package / "__init__.py"), 120, break_on_hyphens=False)
        lines += [""] if files else []
        for path in files:
            lines += textwrap.wrap(
                f"- `{path.name}`: {first_line(path)}",
                120,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    MAP.write_text(drawn(), "utf-8")
