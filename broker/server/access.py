"""Who asks, and what they may do: the one place where the server asks for rights.

Rights are those in force at the moment of the question, however long a request has waited: nothing here is remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, get_args

from hullcast.network.security.rights import TABLE_ACTIONS, Action, is_public_key
from hullcast.network.wire.bodies import Body
from hullcast.network.wire.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hullcast.network.security.rights import Identity, Rights
    from hullcast.network.wire.frames import Request

B = TypeVar("B", bound=Body)
#: What something needs the right to: actions, each on all of some tables; without tables, on any at all.
Needs: TypeAlias = "tuple[tuple[Action, tuple[str, ...]], ...]"


class Access:
    """What the sender of a request may do. `owner` is whom its work is charged to: the sender's key or, where there are
    no keys, its connection; `public` is that key, or empty."""

    __slots__ = ("_key", "_name", "_rights", "owner", "public")

    def __init__(self, rights: Callable[[], Rights], request: Request) -> None:
        assert request.origin is not None, "Children fills it in"
        self._rights = rights
        self._key, self._name = request.origin
        self.public = self._key or ""
        self.owner = self._key or "/".join(map(str, request.route))

    @property
    def _sender(self) -> Identity:
        return self._rights().who(self._key, self._name)

    @property
    def keyed(self) -> bool:
        """Whether the sender has a key, by which it is known on any connection."""
        return self._key is not None

    def check(self, action: Action, tables: Iterable[str] = ()) -> None:
        """NotPermitted unless the sender may do this with all of these tables; without tables, with any at all."""
        rights = self._rights()
        rights.check(rights.who(self._key, self._name), action, tables)

    def allow(self, needs: Needs) -> None:
        """NotPermitted unless the sender has all of these rights."""
        for action, tables in needs:
            self.check(action, tables)

    def check_one_of(self, actions: tuple[Action, ...]) -> None:
        """NotPermitted unless the sender may do one of these (none are named: anything) at least, on some table."""
        sender, actions = self._sender, actions or get_args(Action)
        if not any(map(sender.may_at_all, actions)):
            raise NotPermitted(sender.name, actions[0])

    def sees(self, table: str) -> bool:
        sender = self._sender
        return sender.admin or any(sender.may(action, table) for action in TABLE_ACTIONS)

    def reads(self, tables: Iterable[str]) -> bool:
        """Whether the sender may know what is computed from tables: it may read each of them, one way or another."""
        sender = self._sender
        return sender.admin or all(sender.may("query", table) or sender.may("subscribe", table) for table in tables)


class Asked(NamedTuple, Generic[B]):
    """What somebody asks for: the body of a request, the request itself, what its sender may do, and needs for it."""

    body: B
    request: Request
    access: Access
    needs: Callable[[B], Needs]  # as its row in broker/server/requests.py says

    def allow(self) -> None:
        """NotPermitted unless the sender may have what it asks for."""
        self.access.allow(self.needs(self.body))


def whole_owner(owner: str, route: tuple[int, ...]) -> str:
    """The owner that a node names its clients by, as the whole server knows it: a key, or the connection behind it."""
    return owner if is_public_key(owner) else "/".join(map(str, (owner, *route)))
