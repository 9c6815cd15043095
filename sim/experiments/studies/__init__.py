"""Studies, one file or folder each: `hullcast sim NAME` runs the `STUDY` in `NAME.py` (STUDIES.md).

The first sentence of such a file is its help: `hullcast sim --help` reads it without importing the study.
"""

import ast
import re
from pathlib import Path
from pkgutil import iter_modules


def studies() -> dict[str, str]:
    """Their names, each with a line about it."""
    return {module.name: _about(module.name) for module in iter_modules(__path__)}


def parts(name: str) -> list[str]:
    """The names of the parts of a study, if it has several."""
    return re.findall(r"StudyPart\.of\((\w+)", _source(name))


def _source(name: str) -> str:
    folder = Path(next(iter(__path__)))
    path = folder / f"{name}.py"
    return (path if path.exists() else folder / name / "__init__.py").read_text("utf-8")


def _about(name: str) -> str:
    told = ast.get_docstring(ast.parse(_source(name))) or name
    line = told.partition("\n")[0].rstrip(".")
    return line[0].lower() + line[1:]
