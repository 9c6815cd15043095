"""`hullcast sim trace`: makes a trace of events (yahoo, market, table51) as Parquet files."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from hullcast.clients.cli.commands.arguments import number, place, whole
from hullcast.clients.cli.commands.connection import as_json
from hullcast.clients.cli.commands.progress import bar, spark_bar
from hullcast.clients.cli.commands.sim import add_prices_arguments, add_spark_arguments, reading_from, spark_options
from hullcast.network.wire.errors import UsageError
from hullcast.sim import XIE
from hullcast.sim.spark.storage import Place

if TYPE_CHECKING:
    from rich.console import Console

    from hullcast.sim.traces.checking import Classes
    from hullcast.sim.traces.trace import TraceInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of all kinds of traces."""
    parser.epilog = "The format and the rules are in sim/SIMULATION.md; `hullcast replay` plays a trace."
    kinds = parser.add_subparsers(metavar="yahoo|market|table51", dest="kind", required=True)
    yahoo = kinds.add_parser(
        "yahoo",
        help="from daily prices and fundamentals",
        description="Makes two events of each day's prices, open and close: each puts the stock at x = RECO (mean "
        "recommendation of analysts), y = price / EPS (earnings per share). Prices that cannot be used are counted by "
        "reason and kept in OUT/refused with the reason.",
    )
    yahoo.add_argument("prices", type=place, metavar="PRICES", help="a folder of SYMBOL.csv[.gz], or one long file")
    yahoo.add_argument("fundamentals", type=place, metavar="FUNDAMENTALS", help="a CSV with symbol, EPS and RECO")
    add_prices_arguments(yahoo, days="use only N trading days")
    yahoo.add_argument(
        "--spread-reco",
        type=number,
        metavar="STEP",
        help="add a random amount to each RECO, within the 0.1 it was rounded to, and round to STEP (such as 0.01)",
    )
    market = kinds.add_parser(
        "market",
        help="a synthetic stock market of 3,053 stocks",
        description=f"Makes random prices and fundamentals with the figures of the real workload in {XIE}: 3,053 "
        "stocks, 60 days, about 338,000 events, of which about 11.7 % are not ignorable (can change an answer). They "
        "are processed like real prices. With fewer stocks the share is larger.",
    )
    market.add_argument("--stocks", type=whole(1), default=3_053, metavar="N", help="number of stocks (default 3053)")
    market.add_argument("--days", type=whole(1), default=60, metavar="N", help="trading days (default 60)")
    market.add_argument(
        "--csv", type=Path, metavar="DIR", help="also write the prices as CSV files, as `trace yahoo` reads them"
    )
    table51 = kinds.add_parser(
        "table51",
        help="random rows and updates",
        description=f"Makes the workload of Table 5.1 in {XIE}: rows uniform in the plane, and updates of them. "
        "Shares are from 0 to 1 and at most 1 together; all other events change Y of a row. Spark is "
        "needed only to reach an --out elsewhere.",
    )
    table51.add_argument("--rows", type=whole(1), default=50_000, metavar="N", help="rows at the start (default 50000)")
    table51.add_argument("--updates", type=whole(0), default=200_000, metavar="N", help="how many (default 200000)")
    for name, about in (
        ("spikes", "share of drops to the bottom and back, two updates each (0.005)"),
        ("ignorable", "share of updates that change no answer (0)"),
        ("inserts", "share of new rows (0)"),
        ("deletes", "share of deletions (0)"),
    ):
        default = 0.005 if name == "spikes" else 0.0
        table51.add_argument(f"--{name}", type=number, default=default, metavar="SHARE", help=about)
    table51.add_argument(
        "--step", type=number, metavar="Y", help="change Y by random steps of this deviation (default: a new random Y)"
    )
    for kind in (yahoo, market, table51):
        kind.add_argument("--out", type=place, required=True, metavar="DIR", help="folder for the trace, new or empty")
        kind.add_argument("--force", action="store_true", help="replace the trace that is in DIR")
        kind.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
        kind.add_argument("--classify", action="store_true", help="count ignorable events with the engine")
        kind.add_argument("--json", action="store_true", help="print the summary as JSON")
        add_spark_arguments(kind)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Make the trace, and print a summary. The exit code is 1 if no event is left."""
    from hullcast.sim.traces.folders import check_folder

    if arguments.out.is_local:
        check_folder(arguments.out, force=arguments.force)  # before Spark takes its time
    elif arguments.classify:
        raise UsageError(f"--classify reads traces on this machine only, and {arguments.out} is elsewhere")
    info = {"yahoo": _yahoo, "market": _market, "table51": _table51}[arguments.kind](arguments, console)
    classes = None
    if arguments.classify:
        from hullcast.sim.traces.checking import classify
        from hullcast.sim.traces.trace import parts_of

        with bar(console, len(parts_of(arguments.out))) as tick:
            classes = classify(arguments.out, tick)
    if arguments.json:
        ignorable = {"ignorable": classes.ignorable, "messages": classes.messages} if classes is not None else {}
        console.file.write(as_json(asdict(info) | ignorable) + "\n")
    else:
        _show(info, classes, arguments.out, console)
    return 0 if info.events else 1


def _yahoo(arguments: argparse.Namespace, console: Console) -> TraceInfo:
    from hullcast.sim.traces.yahoo import check_input, yahoo_trace

    reading, first = reading_from(arguments)
    files = arguments.prices, arguments.fundamentals
    if all(file.is_local for file in files):
        check_input(*files, reading)  # before Spark takes its time
    places = {"write": [arguments.out], "read": files}
    with spark_bar(console, spark_options(arguments), app="hullcast sim trace yahoo", **places) as (spark, say):
        say("judging and numbering prices")
        return yahoo_trace(
            spark,
            *files,
            arguments.out,
            reading=reading,
            first=first,
            days=arguments.days,
            spread=arguments.spread_reco,
            root=arguments.seed,
            force=arguments.force,
        )


def _market(arguments: argparse.Namespace, console: Console) -> TraceInfo:
    from hullcast.sim.traces.market import market, market_trace, write_csv

    made = market(arguments.stocks, arguments.days, root=arguments.seed)
    if arguments.csv is not None:
        write_csv(made, arguments.csv)
    options, places = spark_options(arguments), {"write": [arguments.out]}
    with spark_bar(console, options, app="hullcast sim trace market", **places) as (spark, say):
        say("judging and numbering prices")
        return market_trace(spark, made, arguments.out, force=arguments.force)


def _table51(arguments: argparse.Namespace, console: Console) -> TraceInfo:
    from hullcast.sim.spark.session import reaching
    from hullcast.sim.traces.synthetic import table51_trace
    from hullcast.sim.traces.table51 import Mix

    mix = Mix(arguments.spikes, arguments.ignorable, arguments.inserts, arguments.deletes, arguments.step)
    options = spark_options(arguments)
    with reaching([arguments.out], options, app="hullcast sim trace table51"), bar(console, None) as tick:
        tick("drawing updates")
        return table51_trace(
            arguments.out,
            rows=arguments.rows,
            updates=arguments.updates,
            mix=mix,
            root=arguments.seed,
            force=arguments.force,
        )


def _show(info: TraceInfo, classes: Classes | None, folder: Place, console: Console) -> None:
    console.print(f"[bold]trace {info.name}[/]: {info.source}", soft_wrap=True, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("events", f"{info.events:,}")
    if info.start:
        table.add_row("rows at the start", f"{info.start:,}")
    few = info.notes.get("first refused", [])
    for name, value in info.notes.items():
        if value is few:
            continue
        if isinstance(value, dict):
            text = ", ".join(f"{key} {item:g}" for key, item in value.items() if item)
        elif isinstance(value, list):
            text = f"{len(value):,} ({', '.join(value[:3])}{' ..' if len(value) > 3 else ''})"
        else:
            text = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name, text)
    if classes is not None:
        table.add_row("ignorable", f"{classes.ignorable:,} ({classes.share:.1%})")
        table.add_row("not ignorable", f"{classes.events - classes.ignorable:,} ({1 - classes.share:.1%})")
    if info.refused:
        table.add_section()
        table.add_row("[bold]prices refused", f"[bold]{sum(info.refused.values()):,}")
        for reason, count in info.refused.items():
            table.add_row(f"  {reason}", f"{count:,}")
    console.print(table)
    if few:
        console.print(
            f"[bold]Most prices are refused[/], such as these (all are in {folder / 'refused'}):", soft_wrap=True
        )
    for row in few:
        cells = ", ".join(
            f"{name} {'(none)' if row[name] is None else repr(row[name])}" for name in row if name != "reason"
        )
        console.print(f"  {row['reason']}: {cells}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"written: {folder}", soft_wrap=True)
