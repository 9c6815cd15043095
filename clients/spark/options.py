"""The options of `format("hullcast")`, checked: how to reach the server, what to read, where to write."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hullcast.clients.sdk.blocking import BlockingClient
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import DEFAULT_URL, configure, seconds
from hullcast.network.wire.bodies import MOST_TABLE_PARTS
from hullcast.network.wire.errors import BadSetting

#: What a client is told by; the names are those of `hullcast.connect`.
CONNECTION = ("url", "name", "timeout", "key", "server_key", "insecure")
READ = ("table", "seq", "changes", "after", "through", "partitions")
STREAM = ("table", "changes", "starting_seq", "max_rows_per_trigger", "fail_on_data_loss", "partitions")
EVENTS = ("subscription", "parameters", "starting_seq", "resume", "fail_on_data_loss")
WRITE = ("table", "deleted", "nan")

#: What Spark passes on though it is not for us.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

#: Names of options whose values might be secrets, though none of ours are.
_SECRET = re.compile("key|secret|password|token", re.IGNORECASE)

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How to reach the server, as the driver knows it: workers are sent this, and look at no variable of their own."""

    url: str
    name: str | None
    timeout_s: float
    key: str | None
    server_key: str | None
    insecure: bool

    def client(self) -> Client:
        """A client, not yet open."""
        return Client(
            configure(
                self.url,
                name=self.name,
                timeout=self.timeout_s,
                key=_found(self.key),
                server_key=_found(self.server_key),
                insecure=self.insecure,
            )
        )

    def blocking(self) -> BlockingClient:
        """A client without asyncio, open."""
        return BlockingClient(self.client)


class Options:
    """The options of one read or write. `serverKey`, `server_key` and `server-key` are the same."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
        names = {_bare(name): name for name in (*CONNECTION, *known)}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in SPARKS_OWN:
                continue
            if _bare(name) not in names:
                raise BadSetting(
                    f"option {name}",
                    "(not shown)" if _SECRET.search(name) else value,
                    'name the table with option("table", ..)' if name == "path" else _choice(name, known, what),
                )
            self._values[names[_bare(name)]] = value

    def access(self) -> ServerAccess:
        """How to reach the server; what is not given comes from the driver's HULLCAST_ variables."""

        def found(name: str) -> str | None:
            return self.text(name) or os.environ.get(f"HULLCAST_{name.upper()}")

        access = ServerAccess(
            found("url") or DEFAULT_URL,
            found("name"),
            seconds(found("timeout")),
            found("key"),
            found("server_key"),
            self.flag("insecure", False),
        )
        access.client()  # BadSetting now rather than in a worker
        return access

    def __contains__(self, name: str) -> bool:
        """Whether an option is given."""
        return name in self._values

    def text(self, name: str) -> str | None:
        """An option's text; None if it is not given, or empty."""
        return self._values.get(name) or None

    def needed(self, name: str, example: str) -> str:
        """An option that must be given."""
        found = self.text(name)
        if found is None:
            raise BadSetting(f"option {shown(name)}", None, f'is needed, such as .option("{shown(name)}", "{example}")')
        return found

    def flag(self, name: str, default: bool) -> bool:
        """An option that is true or false."""
        found = self.text(name)
        if found is None:
            return default
        if found.lower() not in ("true", "false"):
            raise BadSetting(f"option {shown(name)}", found, "must be true or false")
        return found.lower() == "true"

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """An option that is a whole number; None if it is not given."""
        found = self.text(name)
        if found is None:
            return None
        value = _number(found)
        if value is None or value < least:
            raise BadSetting(f"option {shown(name)}", found, f"must be a whole number, {least} or more")
        if most is not None and value > most:
            raise BadSetting(f"option {shown(name)}", found, f"must be a whole number from {least} to {most}")
        return value

    def partitions(self) -> int | None:
        """In how many parts to read; None if it is not given."""
        return self.whole("partitions", 1, MOST_TABLE_PARTS)

    def starting(self) -> int | str:
        """Where a stream begins: EARLIEST, LATEST, or the sequence number after which it does."""
        found = (self.text("starting_seq") or LATEST).lower()
        if found in (EARLIEST, LATEST):
            return found
        seq = _number(found)
        if seq is None:
            reason = "must be earliest, latest, or the sequence number after which to begin"
            raise BadSetting("option startingSeq", found, reason)
        return seq

    def parameters(self) -> tuple[Any, ...]:
        """The values of a subscription's `?`."""
        found = self.text("parameters") or "[]"
        reason = 'must be a JSON list of the values of the `?`, such as [20, 60] or ["TECH"]'
        try:
            values = json.loads(found)
        except ValueError:
            raise BadSetting("option parameters", found, reason) from None
        if not isinstance(values, list):
            raise BadSetting("option parameters", found, reason)
        return tuple(values)


def shown(name: str) -> str:
    """An option's name as the page writes it; those of the connection as `hullcast.connect` does."""
    if name in CONNECTION:
        return name
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _choice(name: str, known: tuple[str, ...], what: str) -> str:
    """What might be meant by a name that is none of these."""
    names = list(dict.fromkeys(map(shown, (*known, *CONNECTION))))  # reads and streams share some
    near = get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"options of {what} are {', '.join(names)}"


def _number(text: str) -> int | None:
    """A whole number as the wire has it, or None."""
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) < 19 else None


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _found(file: str | None) -> str | None:
    """A key file: where it is said to be, or else among the files that Spark ships with the job (`--files`)."""
    if file is None or Path(file).exists():
        return file
    from pyspark import SparkFiles

    try:
        shipped = Path(SparkFiles.get(Path(file).name))
    except Exception:  # noqa: BLE001  outside of a job there are none, and Spark says so in several ways
        return file
    return str(shipped) if shipped.exists() else file
