"""What the demo says at the end: in a few lines, or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.status_screen import size
from hullcast.clients.demo.scenario import CLIENTS, VICTIM, wanted

if TYPE_CHECKING:
    from hullcast.clients.demo.state import State
    from hullcast.clients.demo.traffic import Load, Traffic
    from hullcast.clients.demo.verdict import Verdict


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
    traffic: Traffic
    killed_at_s: float
    moved_ms: dict[str, float]
    verdict: Verdict

    @classmethod
    def of(cls, state: State, verdict: Verdict, total_s: float) -> Summary:
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

    def _against(self, load: Load) -> str:
        return f"{size(load.size_bytes)} ({self.traffic.against(load):,.1f}x)"


def _moved(moved_ms: dict[str, float]) -> str:
    if not moved_ms:
        return "no client reconnected"
    return "connected to another gateway: " + ", ".join(
        f"{name} in {after:,.0f} ms" for name, after in sorted(moved_ms.items())
    )
