"""What all client commands share: where the server is, bound parameters, connecting and closing."""

from __future__ import annotations

import argparse
import json
import re
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hullcast.clients.cli.commands.arguments import seconds
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import DEFAULT_URL, configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: How long a command waits for a connection, unless --timeout says otherwise: a person is waiting.
CONNECT_S = 3.0

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def add_connection_arguments(parser: argparse.ArgumentParser, json_help: str = "print JSON, for programs") -> None:
    """Where to connect, and with which key and name."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--url",
        help="server or node, or several separated by commas; environment HULLCAST_URL (default " + DEFAULT_URL + ")",
    )
    group.add_argument(
        "--key", metavar="FILE", help="the key pair of this client, a file from `hullcast keygen`; HULLCAST_KEY"
    )
    group.add_argument(
        "--server-key", metavar="KEY", help="the server's public key, or a file that holds it; HULLCAST_SERVER_KEY"
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"seconds to wait for a connection (default {CONNECT_S:g}) and for each reply (default 30)",
    )
    group.add_argument(
        "--name", help="name of this client in the server's logs; HULLCAST_NAME (default host and process)"
    )
    group.add_argument(
        "--insecure", action="store_true", default=None, help="allow an unencrypted connection to another host"
    )
    parser.add_argument("--json", action="store_true", help=json_help)


def add_sql_arguments(parser: argparse.ArgumentParser) -> None:
    """A SELECT and the values of its placeholders."""
    parser.add_argument("sql", metavar="SELECT", help="the statement, in quotes; `?` are placeholders")
    behind = parser.add_argument("misplaced", nargs="*", action=_Misplaced, help=argparse.SUPPRESS)
    behind.required = False  # or the error without a statement names it, too
    parser.set_defaults(parameters=[])
    parser.add_argument(
        "--param",
        action="append",
        type=parameter,
        dest="parameters",
        metavar="V",
        help="value of the next `?`: a number if it looks like one, else text; a negative one as --param=-1e3",
    )
    parser.add_argument(
        "--param-text",
        action="append",
        dest="parameters",
        metavar="TEXT",
        help="value of the next `?`: text, even if it looks like a number",
    )


def add_trigger_arguments(parser: argparse.ArgumentParser) -> None:
    """What makes a subscription conditional."""
    parser.add_argument(
        "--when",
        metavar="WHAT",
        help="make it conditional: print all rows of any SELECT each time WHAT changes. WHAT is a SELECT that you "
        "could subscribe to (its answer changes), or a table, or several with commas (anything in them changes)",
    )
    parser.set_defaults(when_parameters=[])
    parser.add_argument(
        "--when-param",
        action="append",
        type=parameter,
        dest="when_parameters",
        metavar="V",
        help="value of the next `?` of --when: a number if it looks like one, else text",
    )
    parser.add_argument(
        "--when-param-text",
        action="append",
        dest="when_parameters",
        metavar="TEXT",
        help="value of the next `?` of --when: text, even if it looks like a number",
    )
    parser.add_argument(
        "--every",
        metavar="TIME",
        help="make it conditional: print all rows at each multiple of this time by the server's clock, as 10s or 1h",
    )
    parser.add_argument(
        "--at-most-every",
        metavar="TIME",
        help="run the SELECT at most once in this time, as 100ms; changes of --when within it share a result",
    )


def trigger_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_trigger_arguments` found, as the SDK takes it."""
    return {name: getattr(arguments, name) for name in ("when", "when_parameters", "every", "at_most_every")}


class _Misplaced(argparse.Action):
    """Words behind the statement: it is not in quotes, or they are values, where they seem to belong."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, *_: object) -> None:
        if isinstance(values, list) and values:
            first = getattr(namespace, "sql", "")
            if len(first.split()) == 1:
                parser.error(f'put the statement in quotes: hullcast {parser.prog.split()[-1]} "{first} ..."')
            flags = " ".join(f"--param={value}" for value in values)
            parser.error(f"the values of `?` are given with --param, and the statement is in quotes; try {flags}")


def parameter(text: str) -> int | float | str:
    """A number if the whole text is one in decimal notation, else the text itself."""
    if not _NUMBER.fullmatch(text):
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


@asynccontextmanager
async def connected(arguments: argparse.Namespace) -> AsyncIterator[Client]:
    """A client, open; ConnectionLost soon if there is no answer."""
    connection = configure(
        arguments.url,
        name=arguments.name,
        timeout=arguments.timeout,
        key=arguments.key,
        server_key=arguments.server_key,
        insecure=arguments.insecure,
    )
    patience_s = connection.timeout_s if arguments.timeout is not None else min(CONNECT_S, connection.timeout_s)
    client = Client(connection)
    await client.open(timeout=patience_s)
    try:
        yield client
    finally:
        await client.close()


def as_json(value: object) -> str:
    """One line of JSON; a TIMESTAMP is ISO-8601 text, a set a sorted list."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return in_order(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    raise TypeError(f"no JSON for a {type(value).__name__}")


def in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    """The values of a set: NULL first, the rest ascending."""
    return sorted(values, key=lambda value: (value is not None, value if value is not None else 0))


def shown(value: object) -> str:
    """One value as people read it."""
    match value:
        case None:
            return "NULL"
        case datetime():
            return value.isoformat()
        case float():
            return f"{value:.15g}" if value != int(value) or abs(value) >= 1e15 else f"{value:.1f}"
        case _:
            return str(value)


def distinct(names: tuple[str, ...]) -> list[str]:
    """Names as keys of an object: the second X is X_2."""
    found: list[str] = []
    for name in names:
        number, fresh = 1, name
        while fresh in found:
            number += 1
            fresh = f"{name}_{number}"
        found.append(fresh)
    return found
