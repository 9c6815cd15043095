"""`hullcast sim topology`: make, read, write, measure and compare network topologies."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import number, whole
from hullcast.clients.cli.commands.progress import bar
from hullcast.clients.cli.commands.sim import add_columns_argument, columns_from
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.sim.topology.graph import Topology


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Makes a network like the Internet of autonomous systems (by the formulas of J. Winick and S. Jamin, "
        '"Inet-3.0: Internet Topology Generator", 2002) or reads one, and measures it, '
        "writes it, finds the shortest paths between brokers, or compares it with real graphs."
    )
    parser.epilog = (
        "Formats by the name's ending: .graphml, .inet (INET's own), .txt or .edges (lines 'a b latency'); each also "
        ".gz. Edge lists as SNAP and CAIDA publish them are read too, and others with --columns. Examples: "
        "'hullcast sim topology --nodes 20000 --seed 1 --out net.graphml'; "
        "'hullcast sim topology --read net.graphml --measure --json'; "
        "'hullcast sim topology --compare --data graphs --out page'."
    )
    parser.add_argument("--nodes", type=whole(1), metavar="N", help="nodes to make (default 20000)")
    parser.add_argument("--seed", type=int, default=0, help="number that decides all random choices (default 0)")
    parser.add_argument(
        "--degree-one",
        type=number,
        metavar="SHARE",
        help="share of nodes with one link, 0 to 1 (default INET's: 0.315 for 20000 nodes)",
    )
    parser.add_argument("--plane", type=number, metavar="SIDE", help="side of the square nodes lie in (default 10000)")
    parser.add_argument("--read", type=Path, metavar="FILE", help="read a topology instead of making one")
    add_columns_argument(parser, "with --read")
    parser.add_argument("--largest", action="store_true", help="with --read: keep the largest component of several")
    parser.add_argument(
        "--measure", action="store_true", help="show its figures (the default without --out and --brokers)"
    )
    parser.add_argument(
        "--sources",
        type=whole(1),
        default=200,
        metavar="K",
        help="nodes from which mean paths are measured (default 200)",
    )
    parser.add_argument("--brokers", type=whole(1), metavar="B", help="find all shortest paths between B random nodes")
    parser.add_argument("--compare", action="store_true", help="write a page beside INET's own and real AS graphs")
    parser.add_argument("--data", type=Path, metavar="DIR", help="with --compare: the folder with those graphs")
    parser.add_argument("--json", action="store_true", help="print figures as JSON, for programs")
    parser.add_argument("--out", type=Path, metavar="PATH", help="write the topology there; with --compare a folder")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Do what is asked for."""
    _check(arguments)
    if arguments.compare:
        return _compare(arguments, console)
    from hullcast.sim.topology.files import write_topology

    topology, notes = _topology(arguments)
    figures: dict[str, Any] = {"name": topology.name, "notes": notes}
    if arguments.out is not None:
        write_topology(topology, arguments.out)
        figures["written"] = str(arguments.out)
    if arguments.brokers is not None:
        figures["paths"] = _paths(topology, arguments, console)
    if arguments.measure or (arguments.out is None and arguments.brokers is None):
        from hullcast.sim.topology.measures import measure

        measures = measure(topology, sources=arguments.sources, root=arguments.seed)
        figures["measures"] = _jsonable(asdict(measures))
        if not arguments.json:
            _show([(topology.name, measures)], console)
    if arguments.json:
        print(json.dumps(figures))  # for programs: never wrapped, whatever the terminal's width
        return 0
    for note in notes:
        console.print(note, soft_wrap=True)
    if "paths" in figures:
        console.print(
            "paths between {brokers:,} brokers: {mean_links:.2f} links and latency {mean_latency:,.0f} on average, "
            "{total_links:,} links in all; found in {seconds:.1f} s".format(**figures["paths"])
        )
    if arguments.out is not None:
        console.print(f"written: {arguments.out} ({topology.nodes:,} nodes, {topology.links:,} links)", soft_wrap=True)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    made = [name for name in ("nodes", "degree_one", "plane") if getattr(arguments, name) is not None]
    if arguments.read is not None and (made or arguments.compare):
        names = ", ".join("--" + name.replace("_", "-") for name in made) or "--compare"
        raise UsageError(f"--read reads a topology, and {names} is for making one: give only one of the two")
    if arguments.largest and arguments.read is None:
        raise UsageError("--largest needs a topology to read: --read FILE")
    if arguments.columns is not None and arguments.read is None:
        raise UsageError("--columns needs a topology to read: --read FILE")
    if arguments.compare and arguments.out is None:
        raise UsageError("--compare writes a page and pictures; say where with --out DIR")
    if arguments.compare and arguments.data is None:
        raise UsageError("--compare needs the graphs to compare with; name their folder with --data DIR")
    if arguments.compare and arguments.brokers is not None:
        raise UsageError("--brokers and --compare cannot be combined; run them one after the other")
    if arguments.compare and arguments.plane is not None:
        raise UsageError("--compare does not use places of nodes; leave out --plane")
    if arguments.data is not None and not arguments.compare:
        raise UsageError("--data is for --compare; to read one graph say --read FILE")


def _topology(arguments: argparse.Namespace) -> tuple[Topology, list[str]]:
    """The topology made or read, and what there is to say about it."""
    from hullcast.sim.topology.files import read_topology
    from hullcast.sim.topology.graph import PLANE
    from hullcast.sim.topology.inet import inet

    notes: list[str] = []
    if arguments.read is not None:
        read = read_topology(
            arguments.read,
            root=arguments.seed,
            largest=arguments.largest,
            columns=columns_from(arguments),
            tell=notes.append,
        )
        return read, notes
    plane = PLANE if arguments.plane is None else arguments.plane
    nodes = 20_000 if arguments.nodes is None else arguments.nodes
    return inet(nodes, root=arguments.seed, degree_one=arguments.degree_one, plane=plane), notes


def _paths(topology: Topology, arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    from time import perf_counter

    from hullcast.sim.overlay.placement import choose_brokers
    from hullcast.sim.topology.paths import CHUNK, routes

    sites = choose_brokers(topology, arguments.brokers, root=arguments.seed)
    begun = perf_counter()
    with bar(console, -(-len(sites) // CHUNK)) as tick:
        tick("shortest paths")
        found = routes(topology, sites, lambda done: tick(f"shortest paths from {done:,} of {len(sites):,} brokers"))
    pairs = max(len(sites) * (len(sites) - 1), 1)
    return {
        "brokers": len(sites),
        "mean_links": len(found.links) / pairs,
        "mean_latency": float(found.latency.sum()) / pairs,
        "total_links": len(found.links),
        "seconds": perf_counter() - begun,
    }


def _compare(arguments: argparse.Namespace, console: Console) -> int:
    from hullcast.sim.topology.comparison import STEPS, compare
    from hullcast.sim.topology.page import write_page

    with bar(console, STEPS + 1) as tick:
        comparison = compare(
            arguments.data,
            tick,
            nodes=20_000 if arguments.nodes is None else arguments.nodes,
            root=arguments.seed,
            degree_one=arguments.degree_one,
        )
        tick("pictures and page")
        written = write_page(comparison, arguments.out)
    if arguments.json:
        figures = {one.label: _jsonable(asdict(one.measures)) for one in comparison.listed()}
        print(json.dumps({"measures": figures, "written": [str(path) for path in written]}))
        return 0
    _show([(one.label, one.measures) for one in comparison.listed()], console)
    for file in comparison.missing:
        console.print(f"not found in {arguments.data}: {file}", soft_wrap=True)
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _show(lines: list[tuple[str, Any]], console: Console) -> None:
    from rich import box
    from rich.table import Table

    from hullcast.sim.topology.page import COLUMNS, row

    table = Table(box=box.SIMPLE_HEAD)
    for number_of_column, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number_of_column else "left")
    for label, measures in lines:
        table.add_row(*row(label, measures))
    console.print(table)


def _jsonable(figures: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what there was nothing to measure for is null."""
    return {name: None if isinstance(value, float) and isnan(value) else value for name, value in figures.items()}
