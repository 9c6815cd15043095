"""What to say when somebody interrupts a run that can be continued."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def continuable(out: Path) -> Iterator[None]:
    """Tell in a line how an interrupted run goes on; `clients/cli/main.py` makes the exit code of the interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (out / "run.json").exists()  # a run that finished no step takes it away
        told = "run the same command with --resume to continue" if begun else "no step was finished, so nothing is left"
        sys.stderr.write(f"hullcast: interrupted; {told}\n")
        raise
