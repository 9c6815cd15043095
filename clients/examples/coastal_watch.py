"""A coastal watch: an alarm when a target comes within reach of a unit, and word when it leaves.

Units and targets have positions along the coast, in kilometres. How far a unit reaches, and against what, depends on
its model: each model has one subscription, a band join. COASTAL_WATCH.md says more.

    python -m hullcast.clients.examples.coastal_watch [--url URL] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import hullcast

TABLES = (
    "CREATE TABLE IF NOT EXISTS UNIT (ID TEXT PRIMARY KEY, MODEL TEXT, POS REAL)",
    "CREATE TABLE IF NOT EXISTS TARGET (ID TEXT PRIMARY KEY, TYPE TEXT, POS REAL, SPEED REAL, SEEN TIMESTAMP)",
)
IN_REACH = (
    "SELECT u.ID AS UNIT, t.ID AS TARGET, t.POS, t.SEEN "
    "FROM UNIT u JOIN TARGET t ON t.POS - u.POS BETWEEN ? AND ? "
    "WHERE u.MODEL = ? AND t.TYPE = ? AND t.SPEED >= ? AND t.SEEN >= ?"
)
COAST_KM = 500
#: How far each model reaches to the left and to the right (km), the type of its targets, and their least speed (km/h).
MODELS = {
    "Radar": (-80, 80, "aircraft", 200),
    "Helicopter": (-30, 30, "ship", 20),
    "Cutter": (-10, 15, "ship", 0),
    "Lifeboat": (-5, 5, "yacht", 0),
}
TYPES = {"aircraft": (150, 800), "ship": (10, 60), "yacht": (5, 15)}  # of targets, and how fast they are (km/h)


class Watch:
    """A subscriber: watches for all units of one model."""

    def __init__(self, model: str, since: datetime) -> None:
        low, high, target_type, speed = MODELS[model]
        self.parameters = low, high, model, target_type, speed, since  # what the six `?` are bound to
        self.in_reach: dict[tuple[str, str], Any] = {}  # rows, by unit and target
        self.heard = Counter[str]()
        self.shown = time.monotonic()

    def hear(self, event: hullcast.Event | hullcast.Snapshot) -> None:
        """Act on an event. Here a watch prints some and remembers all; yours would call the unit."""
        if isinstance(event, hullcast.Snapshot | hullcast.Resync):  # all of it: at first, and if events were lost
            self.in_reach = {(row.UNIT, row.TARGET): row for row in event.answer}
        elif isinstance(event, hullcast.Change):
            for row in event.left:
                del self.in_reach[row.UNIT, row.TARGET]
                self.tell("out of reach", row)
            for row in event.entered:
                self.in_reach[row.UNIT, row.TARGET] = row
                self.tell("ALARM", row)
            for _, row in event.changed:  # still in reach, but seen again: follow it
                self.in_reach[row.UNIT, row.TARGET] = row
            self.heard.update({"alarms": len(event.entered), "out of reach": len(event.left)})

    def tell(self, what: str, row: Any) -> None:
        """Print a line, but not more than one a second for each model."""
        if time.monotonic() > self.shown + 1:
            self.shown = time.monotonic()
            print(f"{row.SEEN:%H:%M:%S}  {row.UNIT:15} {what:13} {row.TARGET:13} at km {row.POS:.1f}", flush=True)


class Coast:
    """What sensors report: units on patrol, and targets that come, move and go."""

    def __init__(self, hc: hullcast.Client) -> None:
        self.hc, self.numbers = hc, itertools.count(1)
        places = [COAST_KM * (number + 0.5) / 10 for number in range(10)]
        self.units = [self.unit(model, pos) for model in MODELS for pos in places]
        self.targets = [self.target(random.uniform(0, COAST_KM)) for _ in range(100)]

    def unit(self, model: str, pos: float) -> dict[str, Any]:
        """A unit, named after the place where it begins."""
        return {"ID": f"{model} {pos:.0f}", "MODEL": model, "POS": pos}

    def target(self, pos: float) -> dict[str, Any]:
        """A target that has come to this place."""
        kind = random.choice(list(TYPES))
        name, speed = f"{kind} {next(self.numbers)}", random.uniform(*TYPES[kind])
        return {"ID": name, "TYPE": kind, "POS": pos, "SPEED": speed, "SEEN": datetime.now(UTC)}

    async def open(self) -> None:
        """Create the tables, and report all units and targets."""
        for create in TABLES:
            await self.hc.execute(create)
        await self.hc.publish("UNIT", self.units)
        await self.hc.publish("TARGET", self.targets)

    async def report(self) -> int:
        """A minute passes on the coast, and traffic goes along it; returns the number of changes."""
        for target in self.targets:
            target["POS"] += target["SPEED"] / 60
            target["SEEN"] = datetime.now(UTC)
        gone = [target["ID"] for target in self.targets if target["POS"] > COAST_KM]
        self.targets = [target for target in self.targets if target["POS"] <= COAST_KM] + [self.target(0) for _ in gone]
        patrol = [unit for unit in self.units if unit["MODEL"] == "Cutter"]
        for unit in patrol:
            unit["POS"] += random.uniform(-0.5, 0.5)
        await self.hc.delete("TARGET", gone)
        await self.hc.publish("TARGET", self.targets)  # on the server's disk when it returns
        await self.hc.publish("UNIT", patrol)
        return len(gone) + len(self.targets) + len(patrol)


async def run(url: str | None, seconds: float) -> bool:
    """Watch for a while; returns whether SQL agrees with what the watches heard."""
    timeout = 10 if url else 120  # seconds; a server in this process may have to compile itself first, once
    async with (
        nullcontext(url) if url else hullcast.testing.cluster(nodes=2) as endpoint,  # in this process
        hullcast.connect(endpoint, name="sensors", timeout=timeout) as sensors,
        hullcast.connect(endpoint, name="watch", timeout=timeout) as hc,
    ):
        watches, coast = [Watch(model, since=datetime.now(UTC)) for model in MODELS], Coast(sensors)
        await coast.open()
        for watch in watches:
            await hc.subscribe(IN_REACH, *watch.parameters, overflow="block", snapshot=True, callback=watch.hear)
        print(f"{len(coast.units)} units watch {len(coast.targets)} targets", flush=True)

        begun, changes = time.monotonic(), 0
        while time.monotonic() < begun + seconds:
            changes += await coast.report()
            await asyncio.sleep(0.2)
        await hc.sync()  # now this client has received all events
        await hc.drain()  # and the callbacks have had them all; this also closes it

        heard = sum((watch.heard for watch in watches), Counter[str]())
        print(f"{changes:,} changes; {heard['alarms']:,} alarms, {heard['out of reach']:,} out of reach")
        right = [
            sorted(await sensors.query(IN_REACH, *one.parameters)) == sorted(one.in_reach.values()) for one in watches
        ]
        print(f"checked against SQL: what {sum(right)} of {len(watches)} watches have in reach is right")
        return all(right)


def main() -> int:
    """The exit code: 0 if SQL agrees, 1 if not, 2 if the server cannot be reached or refuses, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="coastal_watch", description="Alarms when targets come within reach.")
    parser.add_argument("--url", default=os.environ.get("HULLCAST_URL"), help="server or node (default: its own)")
    parser.add_argument("--seconds", type=float, default=10, metavar="S", help="end after S seconds (default 10)")
    arguments = parser.parse_args()
    try:
        return 0 if asyncio.run(run(arguments.url, arguments.seconds)) else 1
    except hullcast.HullcastError as error:
        print(f"coastal_watch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
