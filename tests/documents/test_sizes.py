"""Pages that are read from beginning to end stay short, and their lines fit a terminal."""

from __future__ import annotations

import pytest

from tests.support.documents import text_of

#: Pages with the bytes that they may have.
MOST = {"README.md": 7_000, "ARCHITECTURE.md": 30_000, "DECISIONS.md": 32_000, "CHANGELOG.md": 10_240, "MAP.md": None}
WIDTH = 120


@pytest.mark.parametrize("page", MOST)
def test_a_page_is_short_and_its_lines_fit(page: str) -> None:
    text, most = text_of(page), MOST[page]
    wide = [line for line in text.splitlines() if len(line) > WIDTH]
    assert not wide, f"{page}: lines of more than {WIDTH} characters:\n" + "\n".join(wide)
    assert most is None or len(text.encode()) <= most, f"{page} has {len(text.encode())} bytes, {most} is the most"
