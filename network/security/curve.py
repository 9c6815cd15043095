"""The keys one end of an encrypted link uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hullcast.network.wire.errors import BadSetting


@dataclass(frozen=True, slots=True)
class Curve:
    """CURVE keys as ZeroMQ's Z85 texts of 40 characters; the secret one never shows in a `repr`.

    A dialer also needs the key of the parent it expects: `servers` by endpoint, else `server`.
    """

    public: str
    secret: str = field(repr=False)
    server: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, key in (("public", self.public), ("secret", self.secret), ("server", self.server)):
            if key is not None and not (len(key) == 40 and key.isascii()):
                raise BadSetting(f"{name} key", f"{len(key)} characters", "a CURVE key has 40 characters (Z85)")

    def server_key(self, endpoint: str) -> str:
        """The key a dialer expects at `endpoint`."""
        key = self.servers.get(endpoint, self.server)
        if key is None:
            raise BadSetting("server key", None, f"dialing {endpoint} with CURVE needs the public key expected there")
        return key
