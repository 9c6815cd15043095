"""`hullcast bench`: what the engine, a cluster, a frame and idle clients cost, beside baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import whole
from hullcast.clients.cli.commands.progress import bar
from hullcast.clients.cli.commands.sim import ON_SPARK, check_installed
from hullcast.clients.cli.commands.warm import warm_with_bar
from hullcast.network.wire.errors import HullcastError
from hullcast.sim.bench.catalogue import BENCHMARKS
from hullcast.sim.bench.frame.report import check_pictures, draw, show, to_json, write_json, write_page

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console

    from hullcast.sim.bench.frame.benchmark import Benchmark, BenchReport

JUDGED = (
    "Goals are judged at the end, unless other programs use too much of the machine; the exit code is 0 either way."
)
ALL, ALL_JSON, ALL_PAGE = "all", Path("bench.json"), Path("bench.html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of all benchmarks, as they follow from what each declares."""
    parser.set_defaults(bench=None, parser=parser)
    which = parser.add_subparsers(metavar="BENCHMARK", dest="bench", required=True)
    for benchmark in BENCHMARKS.values():
        words = f"{benchmark.description} {JUDGED}"
        _declare(which.add_parser(benchmark.name, help=benchmark.about, description=words), benchmark)
    words = f"Runs all of them, one after the other; leaves one page and one file. {JUDGED}"
    every = which.add_parser(ALL, help="all of these in one go, with one page", description=words)
    _add_common(every, "all in their quick form: half an hour or so on an idle machine", ALL_JSON, ALL_PAGE)
    _add_only(every, list(BENCHMARKS), "BENCHMARK")
    every.add_argument("--seed", type=int, default=0, help="another seed is another workload (default 0)")


def _declare(parser: argparse.ArgumentParser, benchmark: Benchmark[Any]) -> None:
    _add_common(parser, benchmark.quick_about)
    if benchmark.choose is not None:
        parser.epilog = benchmark.names
        parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these only; see below for names")
    elif len(benchmark.sections) > 1:
        sections = "; ".join(f"{section.name} ({section.about})" for section in benchmark.sections)
        parser.epilog = f"Sections: {sections}."
        _add_only(parser, [section.name for section in benchmark.sections], "SECTION")
    for option in benchmark.options:
        full, quick = (_words(getattr(settings, option.name)) for settings in (benchmark.full, benchmark.quick))
        default = full if quick == full else f"{full}, quick: {quick}"
        many: dict[str, Any] = {"nargs": "+"} if option.many else {}
        words = f"{option.about} (default {default})"
        parser.add_argument(f"--{option.name}", type=whole(option.least), help=words, metavar="N", **many)
    if hasattr(benchmark.full, "seed"):
        parser.add_argument("--seed", type=int, default=0, help="another seed is another workload (default 0)")


def _add_common(
    parser: argparse.ArgumentParser, quick: str, json: Path | None = None, html: Path | None = None
) -> None:
    parser.add_argument("--quick", action="store_true", help=quick)
    for name, default, words in (
        ("--json", json, "all figures" if json else "all figures, and PNG charts beside it"),
        ("--html", html, "a page with all tables and charts"),
    ):
        words += f" (needs hullcast[bench]{f'; default {default}' if default else ''})"
        parser.add_argument(name, type=Path, metavar="FILE", default=default, help=f"write there {words}")


def _add_only(parser: argparse.ArgumentParser, names: list[str], kind: str) -> None:
    words = f"one {kind.lower()} or several; may be repeated"
    parser.add_argument("--only", action="extend", nargs="+", choices=names, default=[], metavar=kind, help=words)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the benchmark that is asked for, or all."""
    if arguments.json is not None or arguments.html is not None:
        check_pictures()  # better said before measuring than after
    if arguments.bench == ALL:
        return _run_all(arguments, console)
    benchmark = BENCHMARKS[arguments.bench]
    given = {option.name: getattr(arguments, option.name) for option in benchmark.options}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    settings = benchmark.settings(quick=arguments.quick, seed=getattr(arguments, "seed", None), **options)
    only = getattr(arguments, "only", [])
    if benchmark.choose is not None:
        settings, only = benchmark.choose(settings, only), []
    report = _measured(benchmark, settings, only, console)
    written = []
    if arguments.json is not None:
        written.append(write_json(to_json(report), arguments.json))
        written += draw(report, arguments.json.parent, arguments.json.stem)
    if arguments.html is not None:
        written.append(write_page([report], {}, arguments.html))
    return _told(written, console)


def _run_all(arguments: argparse.Namespace, console: Console) -> int:
    """One after the other; one that cannot run here, or fails, is left out, and the page says why."""
    reports, left_out = [], {}
    for name, benchmark in BENCHMARKS.items():
        if arguments.only and name not in arguments.only:
            continue
        console.print(f"\n[bold]{name}[/]: {benchmark.about}")
        seed = arguments.seed if hasattr(benchmark.full, "seed") else None
        try:
            reports.append(_measured(benchmark, benchmark.settings(quick=arguments.quick, seed=seed), (), console))
        except (HullcastError, TimeoutError) as error:  # the others are not in vain
            left_out[name] = str(error) or "it took too long"
            console.print(f"left out: {left_out[name]}", soft_wrap=True)
    content = {report.benchmark.name: to_json(report) for report in reports}
    return _told([write_json(content, arguments.json), write_page(reports, left_out, arguments.html)], console)


def _told(written: Sequence[Path], console: Console) -> int:
    if written:
        console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _measured(benchmark: Benchmark[Any], settings: Any, only: Sequence[str], console: Console) -> BenchReport:
    if benchmark.needs_spark:
        check_installed(f"bench {benchmark.name}", ON_SPARK)
    warm_with_bar(console)
    with bar(console, benchmark.steps(settings, only)) as tick:
        report = benchmark.measure(settings, only, tick)
    show(report, console)
    return report
