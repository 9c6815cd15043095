"""`hullcast demo`: a synthetic stock market, ten live SQL subscriptions, 100,000 more behind them, and a check."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from rich.live import Live

from clients.commands.arguments import seconds, whole
from clients.commands.warm import warm_with_bar
from clients.demo.judge import Judge
from clients.demo.scenario import WATCHED, Scenario
from clients.demo.screen import TALL, frame, plain_line
from sim.stocks import stock_trace

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sim.stocks import Trace

FRAMES_A_SECOND = 10
LINES = 8  # progress lines in plain form
CHECKPOINTS = 10  # times at which the answers one looks at are judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Replays a synthetic stock market through the embedded engine. Ten SQL subscriptions of all kinds show their "
        "answers live; many more in the background show what it costs to tell them. At the end every answer is "
        "compared with SQLite, which was filled from the same trace. Exit code 0 if all are equal, 1 if not."
    )
    parser.add_argument("--seconds", type=seconds, default=15.0, help="length of the replay (default 15)")
    parser.add_argument("--rows", type=whole(1), default=500, help="stocks at the start (default 500)")
    parser.add_argument("--updates", type=whole(0), default=20_000, help="length of the trace (default 20000)")
    parser.add_argument(
        "--subscriptions",
        type=whole(0),
        default=100_000,
        help="range-MIN subscriptions in the background (default 100000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed is another market (default 0)")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live picture (as without a terminal)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Warm up, play, judge, sum up."""
    plain = arguments.plain or not console.is_terminal
    warm_with_bar(console, plain=plain)
    trace = stock_trace(arguments.rows, arguments.updates, root=arguments.seed)
    title = f"Hullcast: {arguments.rows:,} stocks, {arguments.subscriptions + len(WATCHED):,} SQL subscriptions"
    console.print(f"{title} .." if plain else "[dim]subscribing ..[/]", end="\n" if plain else "\r")
    scenario = Scenario(trace, arguments.subscriptions, arguments.seed)
    judge = Judge(trace.start)
    try:
        if plain:
            checked, wrong = _play(scenario, judge, trace, arguments.seconds, console, None)
        else:
            with Live(console=console, auto_refresh=False) as live:
                checked, wrong = _play(scenario, judge, trace, arguments.seconds, console, live, title)
        wrong += ["a range-MIN of the background"] * judge.count_wrong_minima(
            scenario.low, scenario.high, scenario.background_answers
        )
        checked += len(scenario.low)
    finally:
        judge.close()
    _sum_up(scenario, checked, wrong, console)
    return 1 if wrong else 0


def _play(
    scenario: Scenario,
    judge: Judge,
    trace: Trace,
    duration_s: float,
    console: Console,
    live: Live | None,
    title: str = "",
) -> tuple[int, list[str]]:
    """Play the trace at an even pace; (answers judged, the SQL of those that were wrong)."""
    checked, wrong = 0, list[str]()
    n = len(trace.batches)
    started, drawn = time.perf_counter(), 0.0
    for i, batch in enumerate(trace.batches, 1):
        scenario.play(batch)
        scenario.look()
        judge.apply(batch)
        if _is_time(i, n, CHECKPOINTS):
            wrong += [watched.sql for watched in scenario.watched if not judge.agrees(watched.sql, watched.answer)]
            checked += len(scenario.watched)
        elapsed = time.perf_counter() - started
        if live is None:
            if _is_time(i, n, LINES):
                console.print(plain_line(scenario, trace.updates), markup=False, soft_wrap=True)
        elif i == n or elapsed - drawn > 1 / FRAMES_A_SECOND:
            live.update(frame(scenario, trace.updates, title, tall=console.height >= TALL), refresh=True)
            drawn = elapsed
        time.sleep(max(0.0, i * duration_s / n - (time.perf_counter() - started)))
    if not n:
        wrong += [watched.sql for watched in scenario.watched if not judge.agrees(watched.sql, watched.answer)]
        checked += len(scenario.watched)
    return checked, wrong


def _is_time(i: int, n: int, times: int) -> bool:
    """Whether step i of n (from 1) is one of so many evenly spaced ones, the last among them."""
    return i * times // n > (i - 1) * times // n


def _sum_up(scenario: Scenario, checked: int, wrong: list[str], console: Console) -> None:
    traffic = scenario.traffic()
    say = partial(console.print, soft_wrap=not console.is_terminal)
    if wrong:
        say(f"[bold red]{len(wrong):,} of {checked:,} answers differ from SQLite[/]; the first: {wrong[0]}")
    else:
        say(f"[bold green]{checked:,} answers checked with SQLite: all equal[/]")
    rate = scenario.updates / scenario.busy_s if scenario.busy_s else 0.0
    say(
        f"{scenario.updates:,} updates in {scenario.busy_s:.2f} s of engine time ({rate:,.0f}/s), "
        f"{traffic.subscriptions + len(scenario.watched) - 1:,} subscriptions kept exact"
    )
    say(
        f"messages per update: [bold]{traffic.described:.2f}[/] described (S-CN), [bold]{traffic.unicast:,.1f}[/] "
        f"if each subscription were told by itself (S-UN): [bold]{traffic.ratio:,.0f} times[/] more"
    )
