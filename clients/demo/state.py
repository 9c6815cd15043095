"""What the demo knows at a moment: everything the screen shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from hullcast.clients.demo.scenario import AT_FIRST, CLIENTS, GATEWAYS
from hullcast.clients.demo.traffic import Load, Traffic

NO_TRAFFIC = Traffic(0, 0, 0, 0, Load(), Load(), Load())


@dataclass(slots=True)
class Shown:
    """A subscription on the screen."""

    client: str
    kind: str
    sql: str
    text: str = ""
    number: float | None = None
    before: float | None = None  # the number that was there before this one
    changes: int = 0

    def look(self, text: str, number: float | None, changes: int) -> None:
        """Take what its process says."""
        if number != self.number:
            self.before = self.number
        self.text, self.number, self.changes = text, number, changes


@dataclass(frozen=True, slots=True)
class Settings:
    """How large, how long."""

    seconds: float
    rows: int
    updates: int
    subscriptions: int
    seed: int


@dataclass(slots=True)
class State:
    """The show so far. `moved_ms`: who had to go elsewhere, and how long after the kill all was subscribed again."""

    settings: Settings
    shown: list[Shown]
    subscriptions: int = 0
    elapsed_s: float = 0.0
    published: int = 0
    rate: float = 0.0  # updates a second, lately
    told_rate: float = 0.0  # new answers a second, lately
    traffic: Traffic = NO_TRAFFIC
    places: dict[str, str] = field(default_factory=lambda: dict(AT_FIRST))
    connected: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(AT_FIRST, True))
    alive: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(GATEWAYS, True))
    killed_at_s: float | None = None
    moved_ms: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    steps: list[str] = field(default_factory=list)  # what has been started
    playing: bool = False  # or over

    @property
    def title(self) -> str:
        """What this is."""
        stocks, clients = self.settings.rows, len(CLIENTS)
        return f"Hullcast: {stocks:,} stocks, {self.subscriptions:,} SQL subscriptions in {clients} processes"
