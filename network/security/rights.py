"""Rights: which key may do what with which tables. A value that the service asks before it acts.

The allow list is a TOML file::

    [[key]]
    name = "ticker"                       # in logs, and in what a refused client reads
    public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    publish = ["STOCK"]                   # write rows: publish, delete
    subscribe = ["STOCK", "NEWS"]         # subscribe; "*" is every table
    query = ["*"]                         # one-time SELECTs
    admin = true                          # create and drop tables, and see the status of the server
    node = true                           # join as a node: it speaks for its clients, so it is trusted to name them

What is not there is not allowed, and no right includes another. Names of tables compare as in SQL: A to Z without
regard to case. Without an allow list (`Rights.everything()`) everybody who can connect may do everything. A server
without a key listens on loopback only, unless set otherwise, so these are the users of this host; one with a key and
without a list has to be asked for (`--open`).
"""

from __future__ import annotations

import json
import string
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from hullcast.network.wire.errors import BadSetting, NotPermitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Action = Literal["publish", "subscribe", "query", "admin", "node"]
TABLE_ACTIONS: tuple[Action, ...] = ("publish", "subscribe", "query")
SWITCHES: tuple[Action, ...] = ("admin", "node")
EVERY_TABLE = "*"

_FIELDS = ("public", "name", *get_args(Action))
_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_Z85 = frozenset(string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#")
KEY_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody, and what they may do: tables by action, folded."""

    name: str
    public: str
    tables: Mapping[Action, frozenset[str]] = field(default_factory=dict, hash=False)
    switches: frozenset[Action] = frozenset()
    known: bool = True  # False: on no list, so it may do nothing

    @property
    def node(self) -> bool:
        """Whether it may join as a node."""
        return "node" in self.switches

    @property
    def admin(self) -> bool:
        """Whether it may change the catalogue."""
        return "admin" in self.switches

    def may_at_all(self, action: Action) -> bool:
        """Whether this is allowed at least on some table."""
        return action in self.switches or bool(self.tables.get(action))

    @property
    def powerless(self) -> bool:
        """Whether nothing is allowed."""
        return not self.switches and not any(self.tables.values())

    def may(self, action: Action, table: str = "") -> bool:
        """Whether this is allowed; `table` counts for publish, subscribe and query only."""
        if action in SWITCHES:
            return action in self.switches
        tables = self.tables.get(action, frozenset())
        return EVERY_TABLE in tables or fold(table) in tables


@dataclass(frozen=True, slots=True)
class Rights:
    """Everybody's rights at one moment; a changed file is a new `Rights`, taken over in one assignment."""

    _by_key: Mapping[str, Identity] | None  # None: no list, everything is allowed

    @classmethod
    def everything(cls) -> Rights:
        """What holds without an allow list: everybody may do everything."""
        return cls(None)

    @classmethod
    def load(cls, path: Path | str | None) -> Rights:
        """Read the allow list; without one, `everything()`. Raises BadSetting, and then the rights before stay."""
        if path is None:
            return cls.everything()
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "this is not UTF-8"
            raise BadSetting("allow", str(path), f"cannot read it: {reason}") from error
        return cls.read(text, str(path))

    @classmethod
    def read(cls, text: str, where: str = "allow list") -> Rights:
        """The same from the file's text."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadSetting("allow", where, f"this is not TOML: {error}") from error
        return cls.parse(content, where)

    @classmethod
    def parse(cls, content: Mapping[str, object], where: str = "allow list") -> Rights:
        """The same from the file's content."""
        _refuse_unknown(content, ("key",), where)
        entries = content.get("key", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BadSetting(where, "key", "each key needs its own section, headed [[key]]")
        found: dict[str, Identity] = {}
        for position, entry in enumerate(entries, 1):
            identity = _identity(entry, f"{where}, key {position}")
            if identity.public in found:
                raise BadSetting(f"{where}, key {position}", identity.public, "this key is listed twice")
            found[identity.public] = identity
        return cls(found)

    @property
    def names(self) -> frozenset[str]:
        """The names on the list."""
        return frozenset(identity.name for identity in (self._by_key or {}).values())

    def knows(self, key: str | None) -> bool:
        """Whether the holder of this public key may connect at all."""
        return self._by_key is None or key in self._by_key

    def who(self, key: str | None, name: str = "") -> Identity:
        """The holder of a key. The list's name counts; the `name` a client gave itself only where there is no list.

        A key on no list is an identity without rights, rather than None: forgetting to check allows nothing.
        """
        if self._by_key is None:
            return _anybody(name, key or "")
        found = self._by_key.get(key) if key is not None else None
        return found or Identity("a key on no list" if key else "somebody without a key", key or "", known=False)

    def check(self, identity: Identity, action: Action, tables: Iterable[str] = ()) -> None:
        """Let it pass, or raise NotPermitted for the first table that is not allowed."""
        tables = tuple(tables)
        if not identity.known or (action in SWITCHES and not identity.may(action)):
            raise NotPermitted(identity.name, action, tables[0] if tables else "")
        if action in TABLE_ACTIONS:
            if not tables and not identity.tables.get(action):  # a SELECT without a table costs as much as any
                raise NotPermitted(identity.name, action, "")
            for table in tables:
                if not identity.may(action, table):
                    raise NotPermitted(identity.name, action, table)


def entry(name: str, public: str, tables: Mapping[Action, Iterable[str]], switches: Iterable[Action]) -> str:
    """The lines of one key in an allow list."""
    lists = [f"{action} = [{', '.join(map(_quoted, tables.get(action, ())))}]" for action in TABLE_ACTIONS]
    flags = [f"{action} = {'true' if action in switches else 'false'}" for action in SWITCHES]
    return "\n".join(("[[key]]", f"name = {_quoted(name)}", f"public = {_quoted(public)}", *lists, *flags)) + "\n"


def _quoted(text: str) -> str:
    """As a TOML string: JSON's are such."""
    return json.dumps(text, ensure_ascii=False)


def fold(table: str) -> str:
    """A table's name as names are compared."""
    return table.lower() if table.isascii() else table.translate(_FOLDED)


def is_public_key(text: str) -> bool:
    """Whether this is a CURVE key as text: 40 characters of Z85."""
    return len(text) == KEY_CHARACTERS and _Z85.issuperset(text)


_ALL_TABLES: Mapping[Action, frozenset[str]] = dict.fromkeys(TABLE_ACTIONS, frozenset({EVERY_TABLE}))


@lru_cache(maxsize=1024)
def _anybody(name: str, public: str) -> Identity:
    """Somebody where there is no list. Asked for with each request, and costly to make."""
    return Identity(name or "anybody", public, _ALL_TABLES, frozenset(SWITCHES))


def _identity(entry: Mapping[str, object], where: str) -> Identity:
    _refuse_unknown(entry, _FIELDS, where)
    public, name = entry.get("public"), entry.get("name")
    if not isinstance(public, str) or not is_public_key(public):
        raise BadSetting(f"{where}, public", public, f"must be the {KEY_CHARACTERS} characters of a .pub file")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise BadSetting(f"{where}, name", name, "must be a name")
    switches = []
    for action in SWITCHES:
        switch = entry.get(action, False)
        if not isinstance(switch, bool):
            raise BadSetting(f"{where}, {action}", switch, "must be true or false")
        if switch:
            switches.append(action)
    tables = {action: _tables(entry.get(action, []), f"{where}, {action}") for action in TABLE_ACTIONS}
    return Identity(name, public, tables, frozenset(switches))


def _tables(given: object, where: str) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(table, str) and table for table in given):
        raise BadSetting(where, given, 'must be a list of tables: ["STOCK"], or ["*"] for every table')
    for table in given:
        if EVERY_TABLE in table and table != EVERY_TABLE:
            raise BadSetting(where, table, "a `*` stands alone, for every table; patterns are not supported")
    return frozenset(fold(table) for table in given)


def _refuse_unknown(content: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise BadSetting(f"{where}, {key}", content[key], f"there is no such field; {hint}")
