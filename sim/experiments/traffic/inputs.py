"""The traces that experiments replay: each made once in a run, as a step of its own."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.traffic.replays import Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.market import market, market_columns
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.table51 import Mix
from hullcast.sim.traces.trace import read_info, write_columns
from hullcast.sim.traces.yahoo import yahoo_trace

#: What `--data` must hold.
PRICES = "pystock_open_close_20150320_20170331.csv.gz"
FUNDAMENTALS = "finviz_20130128.csv.gz"
AS_GRAPH = "as-22july06.edges.txt"
FIRST_DAY = datetime.date(2015, 4, 1)
#: RECO is published to 0.1; the share of ignorable updates in Xie (2007) needs two decimals.
FINER = 0.01


@dataclass(frozen=True, slots=True)
class Input:
    """A trace, and what there is to say about it."""

    name: str  # in names of steps
    workload: str  # in charts and tables
    trace: Place
    domain: tuple[float, float]
    stocks: int
    about: str
    note: str = ""


def check_data(folder: Path) -> None:
    """UsageError if the real data is not there: better said before than after an hour."""
    missing = [name for name in (PRICES, FUNDAMENTALS, AS_GRAPH) if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"--data {folder}: {', '.join(missing)} not found; leave out --data to run without real data")


def table_trace(replays: Replays, name: str, rows: int, events: int, mix: Mix) -> Place:
    """A trace of Table 5.1's workload."""

    def make(path: Place) -> None:
        table51_trace(path.local, rows=rows, updates=events, mix=mix, root=replays.settings.seed)

    settings = {"rows": rows, "events": events, "mix": asdict(mix)}
    return replays.run.step(f"trace-{name}", settings, make, what=f"trace {name}")


def market_step(replays: Replays, stocks: int, days: int, what: str = "trace market") -> Place:
    """A trace of the calibrated market. It is made in memory: there is nothing dirty in it for the ETL to find."""

    def make(path: Place) -> None:
        info, events = market_columns(market(stocks, days, root=replays.settings.seed))
        write_columns(path, info, events)

    return replays.run.step("trace-market", {"stocks": stocks, "days": days}, make, what=what)


def market_trace(replays: Replays, settings: FigureSettings) -> Input:
    """The market calibrated to the figures of Xie (2007)."""
    path = market_step(replays, settings.stocks, settings.days)
    about = f"Calibrated market: two prices a day of {settings.stocks:,} synthetic stocks on {settings.days} days."
    return Input("market", "calibrated market", path, read_info(path).domain, settings.stocks, about)


def real_traces(replays: Replays, settings: FigureSettings, data: Path) -> list[Input]:
    """Real prices, EPS and recommendations: as published, and with RECO spread inside its cell to two decimals."""
    found = []
    for name, spread in (("real-0.1", None), ("real-0.01", FINER)):
        sizes = [(data / file).stat().st_size for file in (PRICES, FUNDAMENTALS)]
        step = {"days": settings.days, "spread": spread, "bytes": sizes}

        def make(path: Place, spread: float | None = spread) -> None:
            days, root = settings.days, replays.settings.seed
            files = (data / PRICES, data / FUNDAMENTALS)
            yahoo_trace(replays.run.spark, *files, path.local, first=FIRST_DAY, days=days, spread=spread, root=root)

        path = replays.run.step(f"trace-{name}", step, make, what=f"trace {name}")
        info = read_info(path)
        grid = "on the file's grid of 0.1" if spread is None else f"spread inside its cell and rounded to {spread}"
        about = (
            f"Real prices from {FIRST_DAY} on, RECO {grid}: {info.notes.get('distinct RECO', 0):,} distinct RECO; "
            f"{sum(info.refused.values()):,} prices refused."
        )
        workload, stocks = f"real prices, RECO to {spread or 0.1:g}", int(info.notes.get("stocks", 0))
        found.append(Input(name, workload, path, info.domain, stocks, about, _caveat(spread)))
    return found


def _caveat(spread: float | None) -> str:
    if spread is None:
        return "Prices are of 2015, EPS and RECO of January 2013: the real workload mixes two dates."
    return (
        f"RECO to {spread} is not in the data: it is drawn inside the published cell, because the share of "
        "ignorable updates in Xie (2007) implies two decimals."
    )
