"""How the demo looks: one frame in colour, the same in plain lines, and the figures at the end."""

from __future__ import annotations

import io
import re
from dataclasses import asdict, dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

from rich import box
from rich.bar import Bar
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hullcast.clients.demo.scenario import AT_FIRST, CLIENTS, GATEWAYS, PUBLISHER, VICTIM
from hullcast.network.wire.durations import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hullcast.clients.demo.director import DemoState, Shown
    from hullcast.clients.demo.judge import Verdict
    from hullcast.clients.demo.traffic import DemoTraffic

#: Lines of a terminal with room for empty ones, and for SQL that needs two; columns with room for the client's name.
ROOMY, TALL, WIDE = 28, 38, 100
#: Columns and lines of a screen on a picture.
PICTURE = 110, 30
#: Where rich would have a viewer load fonts from; without them it takes its own.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
#: Who is at the gateway that is killed.
AFFECTED = [name for name, place in AT_FIRST.items() if place == VICTIM]
COLOURS = {"MIN": "cyan", "MAX": "cyan", "DISTINCT": "magenta", "COUNT": "green", "SUM": "green", "AVG": "green"}
#: What is compared: Hullcast, CN and unicast (traffic.py), each with its colour.
WAYS = (
    ("Hullcast", "green"),
    ("rows by range, clients re-run their SQL", "yellow"),
    ("one message per changed answer", "red"),
)
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
    """What one would show a friend: what was killed, what was lost, what it took."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for label, text in summary.lines():
        good = summary.is_right and label in ("lost", "wrong")
        facts.add_row(label, Text(text, "red" if label == "fault" else "bold green" if good else ""))
    note = (
        "Rows by range is content-based routing: a changed row goes to every client with a range that holds it, and "
        f"the client runs the SQL of that range again. SQLite took {1e6 * summary.range_s:.0f} µs a range in this run."
    )
    return Group(Text(summary.headline, "bold"), Text(), facts, Text(), _costs(summary), Text(), Text(note, "dim"))


def _costs(summary: Summary) -> Table:
    """Bytes and CPU time, beside those of the other ways."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", Text("bytes", "dim"), "", Text("CPU", "dim"), "")
    traffic, cpu_s, sql_s = summary.traffic, summary.cpu_s, summary.sql_s
    others = ((traffic.content, sql_s), (traffic.unicast, None))
    (ours, style), *names = WAYS
    cpu = "" if isnan(cpu_s) else f"{cpu_s:,.1f} s"
    table.add_row(
        Text(ours, f"bold {style}"), Text(size_text(traffic.hullcast.size_bytes), "bold"), "", Text(cpu, "bold")
    )
    for (name, style), (load, taken_s) in zip(names, others, strict=True):
        known = taken_s is not None and not isnan(cpu_s)
        table.add_row(
            Text(name, style),
            size_text(load.size_bytes),
            Text(f"{traffic.against(load):,.1f}x", "bold"),
            f"{taken_s:,.1f} s" if known else "",
            Text(f"{(taken_s or 0) / max(cpu_s, 1e-9):,.1f}x" if known else "", "bold"),
        )
    return table


def picture(state: DemoState, summary: Summary) -> str:
    """The last screen and the figures below it, as SVG."""
    console = Console(width=PICTURE[0], record=True, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text("$ make demo", "bold"))
    console.print(frame(state, *PICTURE))
    console.print(Padding(closing(summary), (1, 2, 0, 2)))
    return FONTS.sub("", console.export_svg(title="hullcast demo"))


def plain_line(state: DemoState) -> str:
    """The same in one line."""
    traffic = state.traffic
    answers = "; ".join(f"{one.kind} {one.text}" for one in state.shown[:5:2])
    return (
        f"{state.elapsed_s:5.1f} s  {state.published:,} updates ({state.rate:,.0f}/s, {state.told_rate:,.0f} answers/s)"
        f" | sent {size_text(traffic.hullcast.size_bytes)} (rows: {size_text(traffic.content.size_bytes)}, "
        f"each answer: {size_text(traffic.unicast.size_bytes)}) | {answers}"
    )


def news(state: DemoState, told: set[str]) -> list[str]:
    """What happened and is not in `told` yet, which grows by it: starts of processes, the kill, clients that moved."""
    happened: dict[str, str] = {}
    if state.killed_at_s is not None:
        happened["killed"] = f"kill -9 {VICTIM}, with {len(AFFECTED) - 1} clients and the publisher"
    if len(state.moved_ms) == len(AFFECTED):
        happened["moved"] = f"all of them went on at other gateways within {max(state.moved_ms.values()):,.0f} ms"
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
    table.add_column("answer now", ratio=2, no_wrap=True, overflow="ellipsis")
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
    """The overlay, and a dot for each client at its gateway."""
    grid = Table.grid(padding=(0, 1))
    for i, gateway in enumerate(GATEWAYS):
        branch = "server ─ root ┬" if i == 0 else "              └" if i == len(GATEWAYS) - 1 else "              ├"
        line = Text.assemble((branch, "dim"))
        if state.alive[gateway]:
            line.append(f" {gateway}  ", style="bold")
            here = (name for name, place in state.places.items() if place == gateway)
            for name in sorted(here, key=lambda name: (name == PUBLISHER, name in state.moved_ms)):
                line.append("●", style=_style(state, name))
                if name == PUBLISHER:
                    line.append(f" {name} ", style=_style(state, name))
        else:
            line.append(" ")
            line.append(gateway, style="bold red strike")
            line.append(f"  kill -9 at {state.killed_at_s or 0:.1f} s", style="red")
            if state.moved_ms:
                line.append(
                    f"; {len(state.moved_ms)} moved within {max(state.moved_ms.values()):,.0f} ms", style="yellow"
                )
        if i == len(GATEWAYS) - 1:
            line.append("   ● a client", style="dim")
        grid.add_row(line)
    return grid


def _style(state: DemoState, name: str) -> str:
    if name in state.moved_ms or not state.connected[name]:
        return "yellow"
    return "blue" if name == PUBLISHER else "green"


# --- traffic ---------------------------------------------------------------------------------------------------


def _bars(traffic: DemoTraffic) -> Table:
    """Bytes on all links, three ways."""
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    loads = (traffic.hullcast, traffic.content, traffic.unicast)
    table.add_row(Text("bytes on all links", "dim"), "", "", "")
    most = max(load.size_bytes for load in loads)
    for (name, style), load in zip(WAYS, loads, strict=True):
        ratio = f"{traffic.against(load):,.1f}x" if load is not traffic.hullcast and most else ""
        bar = Bar(max(1, most), 0, load.size_bytes, color=style, bgcolor="grey23")
        table.add_row(Text(name, f"bold {style}"), size_text(load.size_bytes), ratio, bar)
    return table


def _update(traffic: DemoTraffic) -> Text:
    """What one update leads to on average."""
    sent, told = map(traffic.per_update, (traffic.left_server, traffic.told))
    return Text.assemble(
        "an update: ",
        (f"{sent:,.1f}", "bold green"),
        " messages leave the server; ",
        (f"{told:,.0f}", "bold red"),
        " answers change",
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
    cpu_s: float  # of server, nodes and clients; NaN where it cannot be read
    range_s: float  # CPU time that SQLite takes for a range
    verdict: Verdict

    @classmethod
    def of(cls, state: DemoState, verdict: Verdict, range_s: float, total_s: float) -> Summary:
        """From how things are at the end."""
        return cls(
            updates=state.traffic.updates,
            play_s=state.elapsed_s,
            total_s=total_s,
            subscriptions=state.subscriptions,
            traffic=state.traffic,
            killed_at_s=state.killed_at_s or 0.0,
            moved_ms=dict(state.moved_ms),
            cpu_s=state.cpu_s,
            range_s=range_s,
            verdict=verdict,
        )

    @property
    def is_right(self) -> bool:
        """Whether everything was as it should be."""
        return not self.verdict.wrong

    @property
    def sql_s(self) -> float:
        """The CPU time that SQLite would have taken where clients get rows, at the price it had here."""
        return self.traffic.asked * self.range_s

    @property
    def headline(self) -> str:
        """What it was."""
        return (
            f"{self.updates:,} updates in {self.play_s:.0f} s to {self.subscriptions:,} SQL subscriptions, "
            f"{len(CLIENTS)} clients, {len(GATEWAYS)} gateways"
        )

    def lines(self) -> list[tuple[str, str]]:
        """What a line is about, and the line."""
        verdict = self.verdict
        gaps = verdict.resyncs["gap"] + verdict.resyncs["overflow"]
        lost = f"nothing: {verdict.events:,} events of the watched subscriptions, none missing, none twice"
        wrong = f"nothing: {verdict.final:,} final answers and {verdict.rebuilt:,} rebuilt from events equal SQLite's"
        if gaps:
            lost = f"{gaps:,} gaps in {verdict.events:,} events, each announced by a Resync"
        elif not self.is_right:
            lost = f"see the faults; {verdict.events:,} events"
        return [
            ("killed", f"{VICTIM} (kill -9) after {self.killed_at_s:.1f} s; {_back(self.moved_ms)}"),
            ("lost", lost),
            *(("fault", text) for text in verdict.faults),
            ("wrong", wrong if self.is_right else f"{verdict.wrong:,} faults"),
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        facts = asdict(self)
        facts["verdict"]["resyncs"] = dict(self.verdict.resyncs)
        return {**facts, "killed": VICTIM, "right": self.is_right}


def _back(moved_ms: dict[str, float]) -> str:
    if len(moved_ms) < len(AFFECTED):
        return f"{len(moved_ms)} of its {len(AFFECTED)} clients came back"
    return f"its {len(AFFECTED) - 1} clients and the publisher were back within {max(moved_ms.values()):,.0f} ms"
