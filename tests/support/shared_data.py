"""Real data beside the project: not part of it, so tests that want it skip where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: HULLCAST_DATA says where it is; else beside the checkout.
FOLDER = Path(os.environ.get("HULLCAST_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")).resolve()


def shared(name: str) -> Path:
    """A file of the real data, or the test is skipped."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no real data: {name} is not in ../shared/data (HULLCAST_DATA names another folder)")
    return path
