"""`hullcast bench`: what the engine, a cluster, a frame and idle clients cost, beside baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.progress import bar
from hullcast.clients.cli.commands.sim import ON_SPARK, check_installed
from hullcast.clients.cli.commands.warm import warm_with_bar
from hullcast.network.wire.errors import UsageError
from hullcast.sim import XIE
from hullcast.sim.bench.covers import QUICK_COVERS, CoverSettings, measure_covers
from hullcast.sim.bench.covers import steps as cover_steps
from hullcast.sim.bench.engine import FULL, QUICK, SECTIONS, steps, write_json
from hullcast.sim.bench.engine import run as measure
from hullcast.sim.bench.figures import draw
from hullcast.sim.bench.hop.measure import FULL_HOP, QUICK_HOP, run_hop
from hullcast.sim.bench.hop.measure import STEPS as HOP_STEPS
from hullcast.sim.bench.hop.report import draw_hop, show_hop
from hullcast.sim.bench.idle import run_idle, show_idle
from hullcast.sim.bench.joins.figures import draw_joins
from hullcast.sim.bench.joins.live import FULL_LIVE_JOINS, QUICK_LIVE_JOINS
from hullcast.sim.bench.joins.report import JOIN_SECTIONS, join_steps, run_joins, show_joins
from hullcast.sim.bench.joins.sections import FULL_JOINS, QUICK_JOINS
from hullcast.sim.bench.live.cluster import FULL_LIVE, QUICK_LIVE
from hullcast.sim.bench.live.measure import STEPS as LIVE_STEPS
from hullcast.sim.bench.live.measure import run_live
from hullcast.sim.bench.live.report import show_live
from hullcast.sim.bench.nodes import ROWS, SIZES, measure_nodes
from hullcast.sim.bench.peers.catalogue import PEERS
from hullcast.sim.bench.peers.cells import FULL_PEERS, QUICK_PEERS, chosen
from hullcast.sim.bench.peers.figure import draw_peers
from hullcast.sim.bench.peers.measure import run_peers
from hullcast.sim.bench.peers.measure import steps as peer_steps
from hullcast.sim.bench.peers.report import show_peers
from hullcast.sim.bench.report import show, show_covers
from hullcast.sim.bench.streams import STREAM_SECTIONS
from hullcast.sim.bench.views.figures import draw_views
from hullcast.sim.bench.views.report import (
    FULL_VIEWS,
    QUICK_VIEWS,
    VIEW_SECTIONS,
    run_views,
    show_views,
    view_steps,
)
from hullcast.sim.bench.warehouse.figures import draw_warehouse
from hullcast.sim.bench.warehouse.report import (
    FULL_WAREHOUSE,
    QUICK_WAREHOUSE,
    WAREHOUSE_SECTIONS,
    run_warehouse,
    show_warehouse,
    warehouse_steps,
)
from hullcast.sim.output.charts import pyplot
from hullcast.sim.output.text import plain_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance
    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of all benchmarks."""
    parser.set_defaults(bench=None, parser=parser)
    which = parser.add_subparsers(
        metavar="engine|joins|nodes|covers|live|peers|hop|idle|spark|warehouse|views|streams",
        dest="bench",
        required=True,
    )
    engine = which.add_parser(
        "engine",
        help="messages, time, throughput and memory of the engine",
        description=f"Reproduces Tables 5.2 and 5.3 and Figures 5.6 and 5.7 of {XIE}, and measures throughput. "
        "Times are medians of interleaved rounds, except those of the brute-force baselines and of the single row. "
        "Goals are judged at the end; the exit code is 0 either way.",
    )
    _add_sections(engine, SECTIONS, quick="fewer sizes and rounds: about a minute")
    joins = which.add_parser(
        "joins",
        help="many standing joins: plans, stabbing groups, hotspots, and a cluster",
        description=f"Reproduces Figures 4.7 to 4.16 of {XIE}: select-joins and band joins by several plans, upkeep, "
        "histograms, and a plan per row; then 100,000 joins over a cluster, beside a server that describes every pair. "
        "Claims and goals are judged at the end; the exit code is 0 either way.",
    )
    _add_sections(joins, JOIN_SECTIONS, quick="fewer sizes and rounds: about a minute")
    nodes = which.add_parser(
        "nodes",
        help="node size of the A2B-tree",
        description="Runs the S-CN kernel with several sizes of the tree's nodes, each in a separate process "
        "with its own copy of the package.",
    )
    nodes.add_argument("--sizes", type=whole(4), nargs="+", default=list(SIZES), help="entries of an inner node")
    nodes.add_argument("--rows", type=whole(1), nargs="+", default=list(ROWS), help="table sizes")
    nodes.add_argument("--updates", type=whole(1), default=50_000, help="updates a round (default 50000)")
    covers = which.add_parser(
        "covers",
        help="routing state and needless messages of the network",
        description="Splits the subscriptions of Table 5.1 over gateways, at random and by content, and routes real "
        "messages to them: by every point, by covers of several sizes, and without pruning.",
    )
    covers.add_argument("--quick", action="store_true", help="fewer subscriptions, sizes and rounds: some seconds")
    covers.add_argument("--subscriptions", type=whole(1), help="subscriptions in total (default 100000, quick: 20000)")
    covers.add_argument("--gateways", type=whole(1), default=4, help="gateways below the root (default 4)")
    covers.add_argument("--budgets", type=whole(1), nargs="+", help="boxes that a cover may have (`cover_budget`)")
    live = which.add_parser(
        "live",
        help="throughput, latency and cost of a cluster of processes",
        description="Starts a server, a root, two gateways, four clients with 25,000 MIN subscriptions each and a "
        "publisher, and measures updates/s with every answer checked, latency, CPU by the number of subscriptions, "
        "installation and durable publishes; beside a bare ZeroMQ chain, the same ranges as intervals, and a server "
        "that does not prune. Goals are judged at the end; the exit code is 0 either way.",
    )
    live.add_argument("--quick", action="store_true", help="shorter phases: about half a minute")
    peers = which.add_parser(
        "peers",
        help="the same job done by Hullcast, NATS, Redis, PostgreSQL and others",
        description="Keeps personal MIN subscriptions up to date while rows change, with Hullcast and with each other "
        "system that is installed here: updates/s, CPU of all processes, latency, bytes and memory, every answer "
        "checked. Peers take turns. Goals are judged at the end; the exit code is 0 either way.",
        epilog="Peers: " + ", ".join(PEERS) + ". Cells: " + ", ".join(cell.name for cell in FULL_PEERS.cells) + ".",
    )
    peers.add_argument("--quick", action="store_true", help="the main cells, and short: about two minutes")
    peers.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures there, and a PNG beside it (needs hullcast[bench])"
    )
    peers.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these peers and cells only; see below for their names"
    )
    hop = which.add_parser(
        "hop",
        help="the cost of a frame in each process it passes, stage by stage",
        description="Times decoding, link session, routing, encoding, sending and wake-ups of a frame in publisher, "
        "node, server and subscriber, with 1 and 100 rows a frame, beside bare ZeroMQ for the same bytes, a thread's "
        "wake-up and a sync of the disk; then CPU and context switches of a cluster of processes. Each stage has a "
        "budget, in hops of bare ZeroMQ; the exit code is 0 either way.",
    )
    hop.add_argument("--quick", action="store_true", help="fewer frames, shorter phases: about half a minute")
    hop.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures there, and a PNG beside it (needs hullcast[bench])"
    )
    idle = which.add_parser(
        "idle",
        help="the CPU of a gateway with idle clients",
        description="Connects clients to a gateway, and measures the CPU of all processes while nothing happens, "
        "for each number of clients. The exit code is 0 either way.",
    )
    idle.add_argument(
        "--clients",
        type=whole(0),
        nargs="+",
        default=[0, 100, 1_000, 10_000],
        metavar="N",
        help="numbers of clients, measured one after the other (default 0 100 1000 10000)",
    )
    spark = which.add_parser(
        "spark",
        help="rows a second that Spark writes to and reads from a table",
        description='Writes rows into a table with df.write.format("hullcast"), and reads the table, its changes and a '
        "stream of them; beside the SDK alone, and Spark without a server. Goals are judged at the end; the exit code "
        "is 0 either way.",
    )
    spark.add_argument("--quick", action="store_true", help="fewer rows: about half a minute")
    warehouse = which.add_parser(
        "warehouse",
        help="one-time queries while tables are loaded, and their effect on subscriptions",
        description="Measures loads, all policies under one load, the push path with the warehouse idle and busy, "
        "point queries, and the effect of the first query on a large table on others; with real servers on disk. Goals "
        "are judged at the end; the exit code is 0 either way.",
    )
    _add_sections(warehouse, WAREHOUSE_SECTIONS, quick="fewer rows and rounds: about two minutes")
    views = which.add_parser(
        "views",
        help="the cost of keeping views almost ready, and whether promises are kept",
        description="Measures the CPU to maintain a four-way join in three ways, refreshes within the promise under "
        "load, a view beside its SELECT, the push path without and with views, and how long plans take; with real "
        "servers on disk. Goals are judged at the end; the exit code is 0 either way.",
    )
    _add_sections(views, VIEW_SECTIONS, quick="fewer rows and rounds: about two minutes")
    streams = which.add_parser(
        "streams",
        help="tuples a second through operators and joins, policies and their cost, and live streams",
        description="Measures a path and window joins in the engine, decisions of HEEB and of schedulers, queue memory "
        "on bursts, many filters over a stream and a join of two streams; the last two with real servers on disk. "
        "Goals are judged at the end; the exit code is 0 either way.",
    )
    _add_sections(streams, STREAM_SECTIONS, quick="fewer tuples and rounds: about two minutes")
    for one in (covers, live, idle, spark):
        one.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    for one in (engine, joins, nodes, covers, live, peers, warehouse, views, streams):
        one.add_argument("--seed", type=int, default=0, help="another seed is another workload (default 0)")


def _add_sections(parser: argparse.ArgumentParser, sections: Mapping[str, str], quick: str) -> None:
    """Declare what benchmarks of several sections take; `sections` says what each one shows."""
    parser.epilog = "Sections: " + "; ".join(f"{name} ({about})" for name, about in sections.items()) + "."
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write all figures there, and PNG charts beside it (needs hullcast[bench])",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(sections),
        default=[],
        metavar="SECTION",
        help="one section; may be repeated",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the benchmark that is asked for."""
    benches = {
        "engine": _engine,
        "joins": _joins,
        "nodes": _nodes,
        "covers": _covers,
        "live": _live,
        "peers": _peers,
        "hop": _hop,
        "idle": _idle,
        "spark": _spark,
        "warehouse": _warehouse,
        "views": _views,
        "streams": _streams,
    }
    return benches[arguments.bench](arguments, console)


def _engine(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    settings = replace(QUICK if arguments.quick else FULL, seed=arguments.seed)
    with bar(console, steps(settings, arguments.only)) as tick:
        report = measure(settings, arguments.only, tick)
    show(report, console)
    return _written(report, arguments.json, console, lambda folder: draw(report, folder))


def _joins(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    settings, cluster = (QUICK_JOINS, QUICK_LIVE_JOINS) if arguments.quick else (FULL_JOINS, FULL_LIVE_JOINS)
    settings, cluster = replace(settings, seed=arguments.seed), replace(cluster, seed=arguments.seed)
    with bar(console, join_steps(settings, arguments.only)) as tick:
        report = run_joins(settings, cluster, arguments.only, tick)
    show_joins(report, console)
    return _written(report, arguments.json, console, lambda folder: draw_joins(report, folder))


def _warehouse(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    settings = QUICK_WAREHOUSE if arguments.quick else FULL_WAREHOUSE
    settings = replace(settings, seed=arguments.seed, live=replace(settings.live, seed=arguments.seed))
    with bar(console, warehouse_steps(settings, arguments.only)) as tick:
        report = run_warehouse(settings, arguments.only, tick)
    show_warehouse(report, console)
    return _written(report, arguments.json, console, lambda folder: draw_warehouse(report, folder))


def _views(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    settings, seed = QUICK_VIEWS if arguments.quick else FULL_VIEWS, arguments.seed
    live = replace(settings.live, seed=seed, push=replace(settings.live.push, seed=seed))
    settings = replace(settings, seed=seed, live=live)
    with bar(console, view_steps(settings, arguments.only)) as tick:
        report = run_views(settings, arguments.only, tick)
    show_views(report, console)
    return _written(report, arguments.json, console, lambda folder: draw_views(report, folder))


def _streams(arguments: argparse.Namespace, console: Console) -> int:
    check_installed("bench streams", ON_SPARK)  # its load is that of a study
    from hullcast.sim.bench.streams.figures import draw_streams
    from hullcast.sim.bench.streams.report import (
        FULL_STREAMS,
        QUICK_STREAMS,
        run_streams,
        show_streams,
        stream_steps,
    )

    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    settings, seed = QUICK_STREAMS if arguments.quick else FULL_STREAMS, arguments.seed
    settings = replace(settings, seed=seed, live=replace(settings.live, seed=seed))
    with bar(console, stream_steps(settings, arguments.only)) as tick:
        report = run_streams(settings, arguments.only, tick)
    show_streams(report, console)
    return _written(report, arguments.json, console, lambda folder: draw_streams(report, folder))


def _written(
    report: DataclassInstance,
    path: Path | None,
    console: Console,
    more: Callable[[Path], list[Path]] = lambda folder: [],
) -> int:
    """Write the figures, and more files beside them, where a file is asked for."""
    if path is not None:
        write_json(report, path)
        console.print("written: " + ", ".join(map(str, [path, *more(path.parent)])), soft_wrap=True)
    return 0


def _nodes(arguments: argparse.Namespace, console: Console) -> int:
    with bar(console, 2 * len(arguments.sizes)) as tick:
        found = measure_nodes(
            arguments.sizes, arguments.rows, updates=arguments.updates, seed=arguments.seed, tick=tick
        )
    columns = ("entries of an inner node", *(f"{n:,} rows" for n in arguments.rows))
    table = plain_table("S-CN kernel, ns an update", *columns)
    best = {n: min(size.ns[n] for size in found) for n in arguments.rows}
    for size in found:
        cells = [
            f"[bold]{size.ns[n]:,.0f}[/]" if size.ns[n] == best[n] else f"{size.ns[n]:,.0f}" for n in arguments.rows
        ]
        table.add_row(f"{size.inner}{' (as shipped)' if size.shipped else ''}", *cells)
    console.print(table)
    return 0


def _covers(arguments: argparse.Namespace, console: Console) -> int:
    warm_with_bar(console)
    default = QUICK_COVERS if arguments.quick else CoverSettings()
    settings = replace(
        default,
        subscriptions=arguments.subscriptions or default.subscriptions,
        gateways=arguments.gateways,
        budgets=tuple(arguments.budgets or default.budgets),
        seed=arguments.seed,
    )
    if settings.subscriptions < settings.gateways:
        raise UsageError(f"{settings.subscriptions} subscriptions are too few for {settings.gateways} gateways")
    with bar(console, cover_steps(settings)) as tick:
        report = measure_covers(settings, tick)
    show_covers(report, console)
    return _written(report, arguments.json, console)


def _live(arguments: argparse.Namespace, console: Console) -> int:
    warm_with_bar(console)
    settings = replace(QUICK_LIVE if arguments.quick else FULL_LIVE, seed=arguments.seed)
    with bar(console, LIVE_STEPS) as tick:
        report = run_live(settings, tick)
    show_live(report, console)
    return _written(report, arguments.json, console)


def _peers(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    settings = replace(QUICK_PEERS if arguments.quick else FULL_PEERS, seed=arguments.seed)
    peers, cells = chosen(settings, arguments.only, tuple(PEERS))
    settings = replace(settings, peers=peers, cells=cells)
    warm_with_bar(console)
    with bar(console, peer_steps(settings, peers)) as tick:
        report = run_peers(settings, tick)
    show_peers(report, console)
    return _written(report, arguments.json, console, lambda folder: [draw_peers(report, arguments.json)])


def _hop(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.json is not None:
        pyplot()  # better said before measuring than after
    warm_with_bar(console)
    with bar(console, HOP_STEPS) as tick:
        report = run_hop(QUICK_HOP if arguments.quick else FULL_HOP, tick)
    show_hop(report, console)
    return _written(report, arguments.json, console, lambda folder: [draw_hop(report, arguments.json)])


def _idle(arguments: argparse.Namespace, console: Console) -> int:
    with bar(console, len(arguments.clients)) as tick:
        report = run_idle(arguments.clients, tick)
    show_idle(report, console)
    return _written(report, arguments.json, console)


def _spark(arguments: argparse.Namespace, console: Console) -> int:
    check_installed("bench spark", ON_SPARK)
    from hullcast.sim.bench.spark_source import FULL_ROWS, QUICK_ROWS, run_source, show_source
    from hullcast.sim.bench.spark_source import STEPS as SOURCE_STEPS

    warm_with_bar(console)
    with bar(console, SOURCE_STEPS) as tick:
        report = run_source(QUICK_ROWS if arguments.quick else FULL_ROWS, tick)
    show_source(report, console)
    return _written(report, arguments.json, console)
