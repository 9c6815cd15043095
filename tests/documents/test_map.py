"""MAP.md is what `make map` would write now, and the first line of each module is fit for it."""

from __future__ import annotations

from tests.support.code_map import LONGEST, MAP, drawn, first_line, modules
from tests.support.documents import ROOT


def test_the_map_is_up_to_date() -> None:
    assert MAP.read_text("utf-8") == drawn(), "a module or its first line has changed: run `make map`"


def test_every_module_begins_with_one_line_that_says_what_it_is() -> None:
    assert len(modules()) > 400
    for path in modules():
        line, name = first_line(path), path.relative_to(ROOT)
        assert line.endswith("."), f"{name}: begin with one line that says what it is, not with {line!r}"
        assert len(line) <= LONGEST, f"{name}: its first line has {len(line)} characters, {LONGEST} is the most"
