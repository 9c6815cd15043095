"""Looks at the files of tables and views: how far each is, and what it still lacks.

A look takes moments, and no connection stays open after it: a fork would share it.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.warehouse.loader import Loader
from hullcast.broker.warehouse.view_loader import ViewLoader
from hullcast.network.wire.errors import HullcastError
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hullcast.broker.log.history import Life
    from hullcast.broker.warehouse.files import FileState
    from hullcast.broker.warehouse.view_file import LearnedCosts, ViewLife

log = logger(__name__)

#: Seconds in all for which this process counts updates that were released before it began. Meanwhile all others wait.
COUNTING_S = 1.0


class FoundView(NamedTuple):
    """The file of a view: how far it has each table (folded name), and what it keeps of costs."""

    tables: Mapping[str, int]
    learned: LearnedCosts


class FileLooks:
    """Looks at the files of one data directory. `horizon` gives the last sequence number that is known: what is behind
    it in a file is of another course of events."""

    def __init__(self, directory: Path, horizon: Callable[[], int]) -> None:
        self._directory, self._horizon = directory, horizon
        self._counting_s = COUNTING_S  # left

    def table(self, life: Life) -> FileState | None:
        """How far a table is loaded; None if there is no file that can be used."""
        with closing(Loader(self._directory)) as loader:
            try:
                return loader.state(life, self._horizon())
            except HullcastError as error:  # a load will say it
                log.warning("file of a table cannot be read", extra={"table": life.table.name, "why": str(error)})
                return None

    def view(self, life: ViewLife) -> FoundView | None:
        """What the file of a view has; None if there is none that can be used."""
        with closing(ViewLoader(self._directory)) as loader:
            try:
                states = loader.state(life, self._horizon())
                if states is None:
                    return None
                return FoundView({name: state.current for name, state in states.items()}, loader.learned(life))
            except HullcastError as error:  # a refresh will say it
                log.warning("file of a view cannot be read", extra={"view": life.table.name, "why": str(error)})
                return None

    def missing(self, life: Life, after: int, through: int) -> int | None:
        """How many updates a table has behind a sequence number; None if the log cannot tell, or not soon."""
        began = time.monotonic()
        with closing(Loader(self._directory)) as loader:
            try:
                return loader.count(life, after, through, within_s=self._counting_s)
            except HullcastError as error:
                log.warning("updates cannot be counted", extra={"table": life.table.name, "why": str(error)})
                return None
            finally:
                self._counting_s = max(0.0, self._counting_s - (time.monotonic() - began))
