"""Figures of papers, reproduced: a folder for each paper with its figures and claims; what all of them need is here.

A run makes its figures from steps (steps.py) in one Spark session (run.py), judges what a paper says (claims.py) and
writes a report (report.py). A paper is a `Paper` (figures.py): which sections there are and how they are measured. Its
folder has `figures.py` with `PAPER`, and in `__init__.py` ABOUT and SECTIONS, because help must not wait for numba.
"""

from pkgutil import iter_modules


def papers() -> list[str]:
    """Names of the papers: the folders here."""
    return [module.name for module in iter_modules(__path__) if module.ispkg]
