"""Real data that a user gives an experiment: prices with fundamentals, a topology, or both."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.columns import CsvReading

#: What `--data` must hold.
PRICES = "pystock_open_close_20150320_20170331.csv.gz"
FUNDAMENTALS = "finviz_20130128.csv.gz"
AS_GRAPH = "as-22july06.edges.txt"
FIRST_DAY = datetime.date(2015, 4, 1)


@dataclass(frozen=True, slots=True)
class Prices:
    """Daily prices with the fundamentals that turn them into places, and which days of them are replayed."""

    files: Place
    fundamentals: Place
    reading: CsvReading = field(default_factory=CsvReading)
    first: datetime.date | None = None  # None: the first there is
    days: int | None = None  # None: as many as the experiment takes
    name: str = ""  # in charts and tables; the name of the files if empty
    dated: str = ""  # of when the fundamentals are, if that is known

    @property
    def is_local(self) -> bool:
        """Whether they can be read without Spark."""
        return self.files.is_local and self.fundamentals.is_local

    @property
    def label(self) -> str:
        """What charts and tables call them."""
        return self.name or self.files.name


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A topology in a file."""

    path: Path
    columns: tuple[str, ...] = ()  # which of its columns are what: see `sim.topology.listings.Columns`
    name: str = ""  # in titles; the name of the file if empty

    @property
    def label(self) -> str:
        """What titles call it."""
        return self.name or self.path.name


@dataclass(frozen=True, slots=True)
class RealData:
    """What there is of it."""

    prices: Prices | None = None
    topology: NetworkFile | None = None


def collected(folder: Path, first: datetime.date | None = None, days: int | None = None) -> RealData:
    """The files that this project was tried with (`--data`); UsageError if they are not there."""
    missing = [name for name in (PRICES, FUNDAMENTALS, AS_GRAPH) if not (folder / name).is_file()]
    if missing:
        raise UsageError(
            f"--data {folder}: {', '.join(missing)} not found; leave out --data to run without real data, or give your "
            "own with --prices, --fundamentals and --topology"
        )
    files = Place(folder / PRICES), Place(folder / FUNDAMENTALS)
    prices = Prices(*files, first=first or FIRST_DAY, days=days, name="real prices", dated="January 2013")
    return RealData(prices, NetworkFile(folder / AS_GRAPH, name="the AS graph of 2006-07-22"))
