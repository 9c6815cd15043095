"""The publisher's own record: what was acknowledged, with its sequence numbers, a line of JSON for each call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.sim.stocks import Removal, Upsert

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.sim.stocks import Action


@dataclass(frozen=True, slots=True)
class Entry:
    """One acknowledged call. `moment`: a micro-batch ends here, at which answers can be judged."""

    first: int
    last: int
    action: Action
    moment: bool

    def line(self) -> str:
        """As it is written."""
        action = self.action
        what = {"rows": action.rows} if isinstance(action, Upsert) else {"keys": action.keys}
        facts = {"first": self.first, "last": self.last, "moment": self.moment, "table": action.table, **what}
        return json.dumps(facts) + "\n"

    @classmethod
    def read(cls, line: str) -> Entry:
        """From such a line."""
        facts = json.loads(line)
        table = facts["table"]
        action = Upsert(table, tuple(facts["rows"])) if "rows" in facts else Removal(table, tuple(facts["keys"]))
        return cls(facts["first"], facts["last"], action, facts["moment"])


class RecordReader:
    """Follows a record while it is written; gives whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> list[Entry]:
        """What was added since last asked."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._at += len(whole) + 1
        return [Entry.read(line) for line in whole.decode().split("\n")]
