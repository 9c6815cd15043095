"""The documents of this repository, and what its code defines, for the tests that compare the two."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSES = ("broker", "clients", "network", "sim")
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", *(f"{house}/**/*.md" for house in HOUSES))
    for path in ROOT.glob(pattern)
)


@cache
def text_of(document: str) -> str:
    """The text of a document, by its path or its name alone: they may move, and there is one of each name."""
    (path,) = [path for path in DOCUMENTS if document in (path, Path(path).name)]
    return (ROOT / path).read_text("utf-8")


def section(document: str, heading: str) -> str:
    """The text under a heading, up to the next one of the same rank or a higher one."""
    level = heading.split(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}.*?\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text_of(document), re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"{document} has no heading `{heading}`; a test reads what is under it"
    return found[1]


@cache
def defined(path: Path) -> frozenset[str]:
    """The functions and classes of a file, and `Class.member`, be it a method or an attribute."""
    names: set[str] = set()
    for item in ast.parse(path.read_text("utf-8")).body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(item.name)
        if isinstance(item, ast.ClassDef):
            for member in item.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(f"{item.name}.{member.name}")
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    names.add(f"{item.name}.{member.target.id}")
            names |= {
                f"{item.name}.{inner.attr}"
                for inner in ast.walk(item)
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
            }
    return frozenset(names)


@cache
def sources() -> tuple[Path, ...]:
    """All Python files, tests too."""
    return tuple(path for house in (*HOUSES, "hullcast", "tests") for path in sorted((ROOT / house).rglob("*.py")))
