"""Endpoints: where a process listens or dials, checked, and where to dial if a parent is gone.

    tcp://127.0.0.1:7600    tcp://[::1]:7600    tcp://db.example.org:7600
    tcp://*:7600            listening only: every address of this host
    tcp://127.0.0.1:0       listening only: the system chooses the port (`tcp://127.0.0.1:*` is the same)
    inproc://name           inside one process

ZeroMQ's own complaint about a bad address is "Invalid argument"; ours says which part, and what to write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hullcast.network.wire.frames import NodeEntry

Path = tuple[tuple[bytes, str], ...]

ACCEPTED = "write tcp://HOST:PORT, tcp://[IPv6]:PORT or inproc://NAME"
#: What a client, and a server or node, can do about links to other hosts in plain text.
CLIENT_REMEDY = (
    "a connection to another host must be encrypted: give --key and --server-key (from Python, key and server_key), or "
    "allow plain text with --insecure (insecure=True)"
)
PROCESS_REMEDY = "other hosts can reach this, and links are plain text; use a key (`hullcast keygen`), or --insecure"

_HOST = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked address. `host` is without brackets; `port` 0 means that the system chooses."""

    transport: str
    host: str = ""
    port: int = 0
    name: str = ""  # of inproc

    def __str__(self) -> str:
        if self.transport != "tcp":
            return f"{self.transport}://{self.name}"
        return f"tcp://{bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this host can reach it. Of host names only localhost counts: none is looked up."""
        return self.transport != "tcp" or _is_loopback(self.host)


def parse_endpoint(text: str, *, listening: bool = False, setting: str = "endpoint") -> Endpoint:
    """Read an endpoint, or raise BadSetting that names `setting`."""
    transport, separator, rest = text.partition("://")
    if not separator or transport not in ("tcp", "inproc"):
        raise BadSetting(setting, text, ACCEPTED)
    if transport == "tcp":
        return Endpoint("tcp", *_host_and_port(rest, text, listening, setting))
    if not rest or "\0" in rest or rest != rest.strip():
        raise BadSetting(setting, text, "inproc:// needs a name after it")
    return Endpoint("inproc", name=rest)


def check_endpoint(
    text: str, *, private: bool, listening: bool = False, setting: str = "endpoint", remedy: str = CLIENT_REMEDY
) -> None:
    """BadSetting unless a link may be there. `private`: it is encrypted, or plain text was allowed; else it must not
    leave this host."""
    endpoint = parse_endpoint(text, listening=listening, setting=setting)
    if not private and not endpoint.is_loopback:
        raise BadSetting(setting, text, remedy)


def parse_address(text: str, *, setting: str = "address") -> tuple[str, int]:
    """Host and port of HOST:PORT, to listen there; for the HTTP monitor."""
    return _host_and_port(text, text, True, setting, "HOST:PORT")


def _is_loopback(host: str) -> bool:
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def bracketed(host: str) -> str:
    """The host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def ways_up(configured: Sequence[str], path: Path, may_dial: Callable[[str], bool]) -> tuple[str, ...]:
    """The endpoints a node may dial, best first: those it was given, then its ancestors, nearest first.

    Ancestors only: a node that dialled a sibling's child could end up below itself. What others tell is dialled only
    where our own settings would allow it.
    """
    return _distinct((*configured, *filter(may_dial, (endpoint for _, endpoint in reversed(path)))))


def ways_in(
    configured: Sequence[str], path: Path, nodes: Sequence[NodeEntry], may_dial: Callable[[str], bool]
) -> tuple[str, ...]:
    """The endpoints a client may dial: those it was given, then gateways (deepest and least busy first), then the
    ancestors of the one it had."""
    gateways = sorted(nodes, key=lambda node: (-node.depth, node.children, node.id))
    told = (*(node.endpoint for node in gateways), *(endpoint for _, endpoint in reversed(path)))
    return _distinct((*configured, *filter(may_dial, told)))


def _distinct(endpoints: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(endpoint for endpoint in endpoints if endpoint))


def _host_and_port(
    rest: str, text: str, listening: bool, setting: str, form: str = "tcp://HOST:PORT"
) -> tuple[str, int]:
    host, separator, port = rest.rpartition(":")
    if not separator or not host or host.endswith(":"):
        raise BadSetting(setting, text, f"the port is missing; write {form}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except AddressValueError as error:
            raise BadSetting(setting, text, f"{host!r} is not an IPv6 address") from error
    elif ":" in host:
        raise BadSetting(setting, text, f"write an IPv6 address in brackets: [{host}]:{port}, if {port} is the port")
    elif host == "*":
        if not listening:
            raise BadSetting(setting, text, "`*` is for listening only; to dial, name a host")
    elif not _HOST.fullmatch(host):
        raise BadSetting(setting, text, f"{host!r} is not a host name or address")
    elif re.fullmatch(r"[0-9.]+", host) and not _is_address(host):
        raise BadSetting(setting, text, f"{host!r} is not an IPv4 address")
    return host, _port(port, text, listening, setting)


def _port(port: str, text: str, listening: bool, setting: str) -> int:
    number = 0 if port == "*" else int(port) if re.fullmatch("[0-9]{1,5}", port) else -1
    if not 0 <= number <= 65535:
        raise BadSetting(setting, text, f"{port!r} is not a port; use 1 to 65535" + (", or 0" if listening else ""))
    if number == 0 and not listening:
        raise BadSetting(setting, text, "port 0 is for listening only; to dial, name the port")
    return number


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
