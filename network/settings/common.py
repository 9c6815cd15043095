"""Settings that servers and nodes share: [link], [security], [log] and a few more."""

# ruff: noqa: RUF009  `option` and `part` make fields, as `dataclasses.field` does

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hullcast.network.link.endpoints import PROCESS_REMEDY, check_endpoint, parse_address, parse_endpoint
from hullcast.network.link.limits import ACK_BYTES, LinkLimits
from hullcast.network.settings.declaring import SettingsBase, option, part
from hullcast.network.wire.errors import BadSetting

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
EVERY_ADDRESS = ("*", "0.0.0.0", "::")
UNGUARDED = (
    "give an allow list of the keys that may connect (--allow FILE; `hullcast keygen --allow FILE` adds keys to it), "
    "or --open to let every client do everything"
)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_LINK = LinkLimits()


@dataclass(frozen=True, kw_only=True)
class LinkSettings(SettingsBase):
    """Limits of each link between a parent and a child; of heartbeat and silence, a child takes its parent's."""

    section: ClassVar[str] = "link"

    heartbeat_s: float = option(
        _LINK.heartbeat_s,
        "time between two heartbeats on an idle link",
        raised="less traffic, but a lost peer is noticed later",
        least=0.01,
        most=600,
    )
    silence_s: float = option(
        _LINK.silence_s,
        "time without a heartbeat after which a peer counts as lost; until then it may reconnect and keep its session",
        raised="links survive longer pauses and cuts, but a dead node's children move later",
        least=0.03,
        most=3600,
    )
    window_bytes: int = option(
        _LINK.window_bytes,
        "unacknowledged bytes on their way to one peer",
        raised="more throughput over long distances, but more memory per peer, and more to send again after a cut",
        least=ACK_BYTES,
        most=4 * GIB,
    )
    queue_bytes: int = option(
        _LINK.queue_bytes,
        "bytes that may wait for one peer, window included, before it is closed as too slow",
        raised="slow peers survive longer bursts, but each may take that much memory",
        least=ACK_BYTES,
        most=64 * GIB,
    )
    queue_frames: int = option(
        _LINK.queue_frames,
        "messages that may wait for one peer, large or small, before it is closed as too slow",
        raised="slow peers survive longer bursts, but each may take more memory",
        least=_LINK.window_frames,
        most=1 << 30,
    )
    message_bytes: int = option(
        _LINK.message_bytes,
        "largest message a peer may send",
        raised="larger batches and snapshots pass, but a hostile peer may claim that much memory",
        least=64 * KIB,
        most=2 * GIB,
    )

    def check(self) -> None:
        """What only makes sense together."""
        self.limits(_LINK.peers)

    def limits(self, peers: int) -> LinkLimits:
        """The same as the link takes it."""
        return LinkLimits(
            heartbeat_s=self.heartbeat_s,
            silence_s=self.silence_s,
            window_bytes=self.window_bytes,
            queue_bytes=self.queue_bytes,
            queue_frames=self.queue_frames,
            message_bytes=self.message_bytes,
            peers=peers,
        )


@dataclass(frozen=True, kw_only=True)
class SecuritySettings(SettingsBase):
    """Who may connect, and what they may do.

    Without a key, links are plain text: allowed on loopback, elsewhere only with `insecure`. With a key there must
    be an allow list, unless `open` says that everybody is welcome.
    """

    section: ClassVar[str] = "security"

    key: Path | None = option(
        None, "file with this process's CURVE key pair (`hullcast keygen`); with it, every link is encrypted"
    )
    allow: Path | None = option(None, "allow list: which keys may connect, and what each may do with which tables")
    open: bool = option(
        False,
        "no allow list: every client that connects may do everything",
        raised="no list to maintain, but everyone who knows the public key can read, write and drop tables",
    )
    insecure: bool = option(
        False,
        "accept plain text from other hosts too",
        raised="no keys to hand out, but everyone on the network can read, write and pretend to be someone else",
    )

    def check(self) -> None:
        """An allow list names keys, so it needs them; and keys alone keep nobody out, so they need a list."""
        if self.allow is not None and self.key is None:
            raise BadSetting(
                "allow",
                str(self.allow),
                "an allow list needs a key (--key): without encryption clients cannot prove which key they have",
            )
        if self.allow is not None and self.open:
            raise BadSetting("open", True, f"there is an allow list too ({self.allow}); use one of the two")
        if self.key is not None and self.allow is None and not self.open:
            raise BadSetting("key", str(self.key), UNGUARDED)

    def check_plain(self, setting: str, endpoint: str, *, listening: bool) -> None:
        """Refuse an endpoint beyond loopback when links are plain text."""
        private = self.key is not None or self.insecure
        check_endpoint(endpoint, private=private, listening=listening, setting=setting, remedy=PROCESS_REMEDY)


@dataclass(frozen=True, kw_only=True)
class LogSettings(SettingsBase):
    """What the process says on its standard error."""

    section: ClassVar[str] = "log"

    level: str = option("info", "lowest level that is logged", choices=LEVELS, flag="log-level")
    format: str = option("text", "one line per event, as text or as JSON", choices=FORMATS, flag="log-format")


def _check_listen(endpoint: str) -> None:
    parse_endpoint(endpoint, listening=True)


def _check_advertise(endpoint: str) -> None:
    if endpoint:
        parse_endpoint(endpoint)


def _check_monitor(address: str) -> None:
    if address:
        parse_address(address)


def _check_name(name: str) -> None:
    if not (name.isprintable() and len(name) <= 64 and name == name.strip()):
        raise BadSetting("name", name, "must be at most 64 printable characters, without a space at either end")


def listen_option(default: str, whom: str) -> str:
    """Where a process listens."""
    about = f"endpoint for {whom}; port 0 lets the system choose"
    return option(default, about, metavar="ENDPOINT", check=_check_listen)


def name_option(default: str) -> str:
    """What a process is called."""
    unset = "" if default else "; empty: host and port of its endpoint"
    return option(default, f"name in logs and `hullcast status`{unset}", check=_check_name)


@dataclass(frozen=True, kw_only=True)
class ProcessSettings(SettingsBase):
    """What servers and nodes have in common."""

    listen: str = listen_option("tcp://127.0.0.1:0", "children")
    advertise: str = option(
        "",
        "endpoint that others should connect to; empty: the one it listens on (needed when that is tcp://*)",
        metavar="ENDPOINT",
        check=_check_advertise,
    )
    name: str = name_option("")
    monitor: str = option(
        "",
        "HTTP address of /healthz, /readyz, /metrics and /status; empty: none",
        metavar="HOST:PORT",
        check=_check_monitor,
    )
    max_children: int = option(
        10_000,
        "clients and nodes that may be connected at the same time; more are refused",
        raised="more fit on one process, but each takes memory and a socket",
        least=1,
        most=1_000_000,
    )
    cover_budget: int = option(
        256,
        "boxes that describe the interests of one child node in one channel",
        raised="fewer needless messages, but matching and memory cost more",
        least=1,
        most=1_000_000,
    )
    link: LinkSettings = part(LinkSettings)
    security: SecuritySettings = part(SecuritySettings)
    log: LogSettings = part(LogSettings)

    def check(self) -> None:
        """Others can connect, and no plain text leaves this host unless asked for."""
        # `*` is every address of this host, so not one that others could dial; they need one for when a node dies.
        if not self.advertise and parse_endpoint(self.listen, listening=True).host in EVERY_ADDRESS:
            reason = "others cannot connect to this; give an address that they can use: --advertise tcp://HOST:PORT"
            raise BadSetting("listen", self.listen, reason)
        self.security.check_plain("listen", self.listen, listening=True)
