"""What a source shows or claims, item by item, and where each item is answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperItem:
    """A table, figure, theorem or example of a source.

    `where` names places, with spaces between them: `STUDY:PART`, `figures:SECTION` or `joins` for what measures it;
    `tests/..py::test_..` for a test that checks it; any other file for what draws or implements it.
    """

    name: str
    says: str  # what the source shows or claims, in a sentence
    where: str = ""
    why: str = ""  # what there is to know beside these places, or why there are none
    needs: str = ""  # what a run may lack that measures it
    fails: str = ""  # why it does not hold as it is stated, where a test shows that

    @property
    def runs(self) -> list[tuple[str, str]]:
        """What measures it: the name of a run, and the part of it."""
        found = [place.partition(":") for place in self.where.split() if "/" not in place]
        return [(name, part) for name, _, part in found]

    @property
    def tests(self) -> list[tuple[str, str]]:
        """What checks it: a file, and the name of a test in it."""
        found = [place.partition("::") for place in self.where.split() if "::" in place]
        return [(file, name) for file, _, name in found]

    @property
    def files(self) -> list[str]:
        """What draws or implements it."""
        return [place for place in self.where.split() if "/" in place and "::" not in place]


@dataclass(frozen=True, slots=True)
class PaperSource:
    """A paper or thesis, and all its items in their order."""

    name: str  # what `--only` takes
    cited: str  # as sections cite it
    title: str
    items: tuple[PaperItem, ...]
