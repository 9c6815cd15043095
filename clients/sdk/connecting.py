"""How to reach a server: addresses, keys and times, from arguments, a URL's query and the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from hullcast.network.link.endpoints import parse_endpoint
from hullcast.network.link.limits import LinkLimits
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import load_pair, load_public
from hullcast.network.wire.durations import seconds_of
from hullcast.network.wire.errors import BadSetting

DEFAULT_URL = "tcp://127.0.0.1:7600"
_OPTIONS = ("name", "timeout", "key", "server_key", "insecure")


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's settings, checked. A later endpoint is dialled when the earlier ones do not answer."""

    endpoints: tuple[str, ...]
    name: str
    timeout_s: float
    curve: Curve | None = None
    insecure: bool = False
    limits: LinkLimits = field(default_factory=LinkLimits)


def configure(
    url: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = None,
    key: str | Path | None = None,
    server_key: str | Path | None = None,
    insecure: bool | None = None,
    limits: LinkLimits | None = None,
) -> Connection:
    """The settings of a client. An argument wins over the URL's query, that over the environment, that over defaults.

    `url` is one or several addresses, as a sequence or separated by commas, each perhaps with a query:
    `tcp://a:7600,tcp://b:7600?name=desk&timeout=5&key=desk.key&server_key=server.pub`. The environment: HULLCAST_URL,
    HULLCAST_NAME, HULLCAST_TIMEOUT, HULLCAST_KEY, HULLCAST_SERVER_KEY. `key` is a file that `hullcast keygen` wrote,
    `server_key` the server's public key or a file that holds it.
    """
    given = os.environ.get("HULLCAST_URL", DEFAULT_URL) if url is None else url
    texts = given.split(",") if isinstance(given, str) else list(given)
    endpoints: list[str] = []
    queried: dict[str, str] = {}
    for text in texts:
        if not isinstance(text, str):
            raise BadSetting("url", text, "must be a text such as tcp://127.0.0.1:7600, or several")
        endpoint, _, query = text.strip().partition("?")
        endpoints.append(str(parse_endpoint(endpoint, setting="url")))
        for option, value in parse_qsl(query, keep_blank_values=True):
            if option not in _OPTIONS:
                raise BadSetting("url", text, f"unknown option {option!r}; there are {', '.join(_OPTIONS)}")
            queried[option] = value
    if not endpoints:
        raise BadSetting("url", url, "give at least one address")

    def found(option: str) -> str | None:
        return queried.get(option, os.environ.get(f"HULLCAST_{option.upper()}"))

    key = found("key") if key is None else key
    server_key = found("server_key") if server_key is None else server_key
    if insecure is None:
        insecure = (queried.get("insecure") or "no").lower() in ("yes", "true", "1")
    return Connection(
        tuple(dict.fromkeys(endpoints)),
        _name(name or found("name")),
        seconds(found("timeout") if timeout is None else timeout),
        _curve(key, server_key),
        insecure,
        limits or LinkLimits(),
    )


def _name(given: str | None) -> str:
    return given or f"{socket.gethostname()}:{os.getpid()}"


def seconds(given: float | str | None) -> float:
    """A timeout in seconds, 30 if none is given; BadSetting if it is none."""
    return 30.0 if given is None else positive_seconds("timeout", given)


def positive_seconds(name: str, given: object) -> float:
    """The seconds of a number or a text such as "200ms"; BadSetting if they are not more than 0."""
    try:
        found = seconds_of(given)
    except ValueError as error:
        raise BadSetting(name, given, str(error)) from None
    if not found > 0:
        raise BadSetting(name, given, "must be a positive number of seconds")
    return found


def _curve(key: str | Path | None, server_key: str | Path | None) -> Curve | None:
    if key is None and server_key is None:
        return None
    if key is None or server_key is None:
        missing = "key" if key is None else "server_key"
        reason = (
            "an encrypted connection needs both your key pair (--key; from Python, key) and the server's public key "
            "(--server-key; from Python, server_key)"
        )
        raise BadSetting(missing, None, reason)
    pair = load_pair(key)
    return Curve(pair.public, pair.secret, load_public(server_key, setting="server_key"))
