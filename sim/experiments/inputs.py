"""The traces that experiments replay: each made once in a run, as a step of its own."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.market import market, market_columns
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import Columns, read_info, write_columns, write_info
from hullcast.sim.traces.yahoo import yahoo_trace

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.sim.experiments.settings import FigureSettings
    from hullcast.sim.experiments.stage import Stage
    from hullcast.sim.traces.table51 import Mix

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
    trace: Path
    domain: tuple[float, float]
    stocks: int
    about: str
    notes: list[str] = field(default_factory=list)


def check_data(folder: Path) -> None:
    """UsageError if the real data is not there: better said before than after an hour."""
    missing = [name for name in (PRICES, FUNDAMENTALS, AS_GRAPH) if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"--data {folder}: {', '.join(missing)} not found; leave out --data to run without real data")


def table_trace(stage: Stage, name: str, rows: int, events: int, mix: Mix) -> Path:
    """A trace of Table 5.1's workload."""
    stage.progress.begin(f"trace {name}")
    settings = {"rows": rows, "events": events, "mix": asdict(mix)}
    root = stage.settings.seed

    def make(path: Path) -> None:
        table51_trace(path, rows=rows, updates=events, mix=mix, root=root)

    return stage.folder.step(f"trace-{name}", settings, make)


def make_market(path: Path, stocks: int, days: int, seed: int) -> None:
    """A trace of the calibrated market. It is made in memory: there is nothing dirty in it for the ETL to find."""
    info, events = market_columns(market(stocks, days, root=seed))
    write_columns(path, Columns([], np.empty(0), np.empty(0)), events)
    write_info(info, path)


def market_trace(stage: Stage, settings: FigureSettings) -> Input:
    """The market calibrated to the figures of Xie (2007)."""
    stage.progress.begin("trace market")
    sizes = {"stocks": settings.stocks, "days": settings.days}
    seed = settings.network.seed

    def make(path: Path) -> None:
        make_market(path, settings.stocks, settings.days, seed)

    path = stage.folder.step("trace-market", sizes, make)
    info = read_info(path)
    about = f"Calibrated market: two prices a day of {settings.stocks:,} synthetic stocks on {settings.days} days."
    return Input("market", "calibrated market", path, info.domain, settings.stocks, about)


def real_traces(stage: Stage, settings: FigureSettings, data: Path) -> list[Input]:
    """Real prices, EPS and recommendations: as published, and with RECO spread inside its cell to two decimals."""
    found = []
    for name, spread in (("real-0.1", None), ("real-0.01", FINER)):
        stage.progress.begin(f"trace {name}")
        files = [(data / file).stat().st_size for file in (PRICES, FUNDAMENTALS)]
        sizes = {"days": settings.days, "spread": spread, "bytes": files}

        def make(path: Path, spread: float | None = spread) -> None:
            yahoo_trace(
                stage.spark,
                data / PRICES,
                data / FUNDAMENTALS,
                path,
                first=FIRST_DAY,
                days=settings.days,
                spread=spread,
                root=settings.network.seed,
            )

        path = stage.folder.step(f"trace-{name}", sizes, make)
        info = read_info(path)
        grid = "on the file's grid of 0.1" if spread is None else f"spread inside its cell and rounded to {spread}"
        refused = sum(info.refused.values())
        found.append(
            Input(
                name,
                f"real prices, RECO to {spread or 0.1:g}",
                path,
                info.domain,
                int(info.notes.get("stocks", 0)),
                f"Real prices from {FIRST_DAY} on, RECO {grid}: {info.notes.get('distinct RECO', 0):,} distinct RECO; "
                f"{refused:,} prices refused.",
                [_caveat(spread)],
            )
        )
    return found


def _caveat(spread: float | None) -> str:
    if spread is None:
        return "Prices are of 2015, EPS and RECO of January 2013: the real workload mixes two dates."
    return (
        f"RECO to {spread} is not in the data: it is drawn inside the published cell, because the share of "
        "ignorable updates in Xie (2007) implies two decimals."
    )
