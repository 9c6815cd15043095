"""DECISIONS.md: each decision is short, has a number of its own, and every reference to one leads somewhere."""

from __future__ import annotations

import re

from tests.support.documents import DOCUMENTS, ROOT, sources, text_of

BLOCKS = [block for block in text_of("DECISIONS.md").strip().split("\n\n") if not block.startswith("#")][1:]
NUMBERS = [int(re.sub(r"^\*\*(\d+)\. .*", r"\1", block, flags=re.DOTALL)) for block in BLOCKS]


def test_a_decision_has_a_number_of_its_own_and_at_most_eight_lines() -> None:
    assert len(NUMBERS) > 50
    assert len(set(NUMBERS)) == len(NUMBERS)
    for block in BLOCKS:
        assert len(block.splitlines()) <= 8, f"DECISIONS.md: shorten to eight lines:\n{block}"


def test_every_decision_that_is_referred_to_is_there() -> None:
    files = [*(ROOT / document for document in DOCUMENTS), *sources()]
    for file in files:
        for found in re.findall(r"\bdecisions? (\d+)\b(?! to)", file.read_text("utf-8")):
            assert int(found) in NUMBERS, f"{file.relative_to(ROOT)}: DECISIONS.md has no decision {found}"
