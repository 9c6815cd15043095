"""A stop takes five seconds at most, whatever the process is doing: who may take how much of them.

0      SIGTERM: requests end, child processes are killed, the log is synced, last replies and messages leave
3.0    a checkpoint that would not be whole by now is given up
4.25   the process ends by force, and says what it was busy with; its child processes end with it
4.5    whoever started it (`hullcast up`, `hullcast demo`) kills it
5.0    nothing of it is left
"""

from __future__ import annotations

from dataclasses import dataclass

CHECKPOINT_S, END_S, KILL_S, STOP_S = 3.0, 4.25, 4.5, 5.0


@dataclass(slots=True)
class Stopping:
    """The stop of a server or node."""

    asked_at: float | None = None
    busy: str = "serving"  # with what; in words for people

    def begin(self, now: float) -> float:
        """It is asked for: since when. The first time counts."""
        if self.asked_at is None:
            self.asked_at = now
        return self.asked_at
