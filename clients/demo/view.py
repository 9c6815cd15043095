"""How the demo looks: one frame as a rich renderable, the same in plain lines, and the figures at the end."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from math import log10
from typing import TYPE_CHECKING, Any

from rich import box
from rich.bar import Bar
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hullcast.clients.cli.commands.status import size
from hullcast.clients.demo.scenario import AT_FIRST, CLIENTS, GATEWAYS, PUBLISHER, VICTIM, wanted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hullcast.clients.demo.director import DemoState, Shown
    from hullcast.clients.demo.judge import Verdict
    from hullcast.clients.demo.traffic import DemoTraffic, LinkLoad

#: Lines of a terminal with room for empty ones, and for SQL that needs two; columns with room for the client's name.
ROOMY, TALL, WIDE = 28, 38, 100
COLOURS = {"MIN": "cyan", "MAX": "cyan", "DISTINCT": "magenta", "COUNT": "green", "SUM": "green", "AVG": "green"}
WORDS = re.compile(r"\b(SELECT|DISTINCT|FROM|WHERE|BETWEEN|AND|JOIN|USING|ON|MIN|MAX|COUNT|SUM|AVG)\b")


def frame(state: DemoState, width: int, height: int) -> RenderableType:
    """The whole picture at this moment; before the replay, what has been started."""
    if not state.playing:
        return Group(*(Text(f"✓ {step}", "green") for step in state.steps), Text(f"… {state.phase}", "dim"))
    gap = [Text()] if height >= ROOMY else []
    traffic = (_bars(state.traffic), _update(state.traffic))
    return Panel(
        Group(_answers(state.shown, width, height), _tree(state), *gap, *traffic, *gap, _progress(state)),
        title=f"[bold]{state.title}[/]",
        subtitle=f"[dim]{state.phase or 'every answer will be compared with SQL'}[/]",
        border_style="blue",
        box=box.ROUNDED,
    )


def closing(summary: Summary) -> RenderableType:
    """The figures at the end."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    styles = {"fault": "red", "verdict": "bold green" if summary.is_right else "bold red"}
    for label, text in summary.lines():
        grid.add_row(label, Text(text, styles.get(label, "")))
    return grid


def plain_line(state: DemoState) -> str:
    """The same in one line."""
    traffic = state.traffic
    answers = "; ".join(f"{one.kind} {one.text}" for one in state.shown[:5:2])
    return (
        f"{state.elapsed_s:5.1f} s  {state.published:,} updates ({state.rate:,.0f}/s, {state.told_rate:,.0f} answers/s)"
        f" | sent {size(traffic.hullcast.size_bytes)} (CN: {size(traffic.content.size_bytes)}, "
        f"unicast: {size(traffic.unicast.size_bytes)}) | {answers}"
    )


def news(state: DemoState, told: set[str]) -> list[str]:
    """What happened and is not in `told` yet, which grows by it: starts of processes, the kill, clients that moved."""
    happened: dict[str, str] = {}
    if state.killed_at_s is not None:
        who = ", ".join(name for name, place in AT_FIRST.items() if place == VICTIM)
        happened["killed"] = f"kill -9 {VICTIM}, to which {who} are connected"
    for name, after_ms in state.moved_ms.items():
        happened[name] = f"{name} continues at {state.places[name]} after {after_ms:,.0f} ms"
    happened |= {step: step for step in state.steps}
    lines = [text for key, text in happened.items() if key not in told]
    told.update(happened)
    return lines


# --- answers ---------------------------------------------------------------------------------------------------


def _answers(shown: list[Shown], width: int, height: int) -> Table:
    style = box.SIMPLE_HEAD if height >= ROOMY else None
    table = Table(box=style, expand=True, padding=(0, 1), pad_edge=False, header_style="dim")
    if width >= WIDE:
        table.add_column("who", no_wrap=True, style="dim")
    table.add_column("subscription", ratio=5, no_wrap=height < TALL, overflow="ellipsis")
    table.add_column("answer now", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("changes", justify="right", no_wrap=True)
    for one in shown:
        who = (one.client,) if width >= WIDE else ()
        table.add_row(*who, _sql(one.sql), _answer(one), f"{one.changes:,}")
    return table


def _sql(sql: str) -> Text:
    text = Text(sql, style="default")
    text.highlight_regex(WORDS, "bold blue")
    return text


def _answer(shown: Shown) -> Text:
    text = Text(shown.text, style=f"bold {COLOURS.get(shown.kind, 'yellow')}")
    if shown.number is not None and shown.before is not None:
        rose = shown.number > shown.before
        text.append(" ▲" if rose else " ▼", style="green" if rose else "red")
    return text


# --- who is where ----------------------------------------------------------------------------------------------


def _tree(state: DemoState) -> Table:
    """The overlay, and the clients at each gateway."""
    grid = Table.grid(padding=(0, 1))
    for gateway, branch in zip(GATEWAYS, ("server ─ root ┬", "              └"), strict=True):
        line = Text.assemble((branch, "dim"))
        if state.alive[gateway]:
            line.append(f" {gateway}", style="bold")
            line.append("  ")
            for name in sorted(name for name, place in state.places.items() if place == gateway):
                line.append_text(_member(state, name))
        else:
            line.append(f" {gateway}", style="bold red strike")
            line.append(f"  kill -9 at {state.killed_at_s or 0:.1f} s", style="red")
            if state.moved_ms:
                line.append(
                    f"; {len(state.moved_ms)} moved within {max(state.moved_ms.values()):,.0f} ms", style="yellow"
                )
        grid.add_row(line)
    return grid


def _member(state: DemoState, name: str) -> Text:
    if name in state.moved_ms or not state.connected[name]:
        return Text(f" {name}", style="yellow")
    return Text(f" {name}", style="blue" if name == PUBLISHER else "green")


# --- traffic ---------------------------------------------------------------------------------------------------


def _bars(traffic: DemoTraffic) -> Table:
    """Bytes on all links, three ways, as bars on a logarithmic scale."""
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    ways: tuple[tuple[str, LinkLoad, str], ...] = (
        ("Hullcast", traffic.hullcast, "green"),
        ("CN, rows only", traffic.content, "yellow"),
        ("unicast", traffic.unicast, "red"),
    )
    table.add_row(Text("on all links", "dim"), Text("bytes", "dim"), Text("messages/update", "dim"), Text("log", "dim"))
    most = log10(1 + max(load.size_bytes for _, load, _ in ways))
    for name, load, style in ways:
        share = log10(1 + load.size_bytes) / most if most else 0.0
        bar = Bar(1.0, 0, share, color=style, bgcolor="grey23")
        table.add_row(
            Text(name, f"bold {style}"), size(load.size_bytes), f"{traffic.per_update(load.messages):,.1f}", bar
        )
    return table


def _update(traffic: DemoTraffic) -> Text:
    """What one update leads to on average."""
    counts = (traffic.left_server, traffic.told, traffic.held)
    sent, told, held = map(traffic.per_update, counts)
    return Text.assemble(
        "an update: ",
        (f"{sent:,.1f}", "bold green"),
        " messages leave the server; ",
        (f"{told:,.1f}", "bold red"),
        " answers change; ",
        (f"{held:,.0f}", "bold yellow"),
        " ranges hold it",
    )


def _progress(state: DemoState) -> Table:
    done = Table.grid(expand=True, padding=(0, 1))
    done.add_column(ratio=1)
    done.add_column(justify="right", no_wrap=True)
    total = state.settings.updates
    done.add_row(
        Bar(max(1, total), 0, state.published, color="blue", bgcolor="grey23"),
        Text.assemble(
            (f"{state.published:,}", "bold"),
            f" of {total:,} updates, ",
            (f"{state.rate:,.0f}", "bold"),
            "/s; ",
            (f"{state.told_rate:,.0f}", "bold"),
            " new answers/s",
        ),
    )
    return done


# --- the figures at the end -----------------------------------------------------------------------------------

WATCHED = len(wanted(CLIENTS[0]))
#: Why CN sends less than Hullcast in a demo.
FEW = (
    f"all subscriptions are in {len(CLIENTS)} processes here, so CN sends a row over a few links only, once each; its "
    "subscribers must keep all rows and compute every answer themselves. With subscribers at many gateways CN sends "
    "far more than Hullcast: run `hullcast sim traffic --quick`."
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run."""

    updates: int
    play_s: float
    total_s: float
    subscriptions: int
    traffic: DemoTraffic
    killed_at_s: float
    moved_ms: dict[str, float]
    verdict: Verdict

    @classmethod
    def of(cls, state: DemoState, verdict: Verdict, total_s: float) -> Summary:
        """From how things are at the end."""
        return cls(
            updates=state.traffic.updates,
            play_s=state.elapsed_s,
            total_s=total_s,
            subscriptions=state.subscriptions,
            traffic=state.traffic,
            killed_at_s=state.killed_at_s or 0.0,
            moved_ms=dict(state.moved_ms),
            verdict=verdict,
        )

    @property
    def is_right(self) -> bool:
        """Whether everything was as it should be."""
        return not self.verdict.wrong

    def lines(self) -> list[tuple[str, str]]:
        """For people: what a line is about, and the line; the last one is the verdict."""
        traffic, verdict = self.traffic, self.verdict
        sent, told = map(traffic.per_update, (traffic.left_server, traffic.told))
        missing = verdict.resyncs["gap"] + verdict.resyncs["overflow"]
        events = f"{verdict.events:,} events of the {len(CLIENTS) * WATCHED} subscriptions followed one by one"
        if missing:
            events += f", with {missing:,} gaps, each announced by a Resync"
        elif self.is_right:
            events += ": none missing, none twice"
        checks = f"{verdict.final:,} final answers and {verdict.rebuilt:,} answers rebuilt from events alone"
        return [
            ("updates", f"{self.updates:,} in {self.play_s:.0f} s, to {self.subscriptions:,} subscriptions"),
            ("each update", f"{sent:,.1f} messages leave the server, and {told:,.0f} answers change (on average)"),
            (
                "on all links",
                f"Hullcast sent {size(traffic.hullcast.size_bytes)}. Unicast (a message for each changed answer) would "
                f"have sent {self._against(traffic.unicast)}, content-based routing of rows (CN) "
                f"{self._against(traffic.content)}.",
            ),
            *([("why CN is low", FEW)] if traffic.against(traffic.content) < 1 else []),
            ("kill -9", f"{VICTIM} after {self.killed_at_s:.1f} s; {_moved(self.moved_ms)}"),
            ("events", events),
            *(("fault", text) for text in verdict.faults),
            (
                "verdict",
                f"{checks} (at {verdict.moments:,} moments): "
                + ("all as in SQL" if self.is_right else f"{verdict.wrong:,} faults"),
            ),
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        facts = asdict(self)
        facts["verdict"]["resyncs"] = dict(self.verdict.resyncs)
        return {**facts, "killed": VICTIM, "right": self.is_right}

    def _against(self, load: LinkLoad) -> str:
        return f"{size(load.size_bytes)} ({self.traffic.against(load):,.1f}x)"


def _moved(moved_ms: dict[str, float]) -> str:
    if not moved_ms:
        return "no client reconnected"
    return "connected to another gateway: " + ", ".join(
        f"{name} in {after:,.0f} ms" for name, after in sorted(moved_ms.items())
    )
