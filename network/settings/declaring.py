"""How settings are declared: one frozen object per process, whose fields carry texts and limits.

A process declares a subclass of `SettingsBase`. Each field is an `option`, which says what it is for, what gets better
and worse when it is raised, and its range; a field whose type is such a class is a section of the file::

    class NodeSettings(SettingsBase):                    node.toml              environment            flag
        section = "node"                                 [node]
        listen: str = option("tcp://..", "..")           listen = "tcp://.."    HULLCAST_LISTEN        --listen
        link: LinkSettings = part(LinkSettings)          [link]
                                                         heartbeat_s = 0.5      HULLCAST_HEARTBEAT_S   --heartbeat-s

An object is always in range, however it was made. `network/settings/loading.py` builds one from all four places.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_type_hints

from hullcast.network.settings.values import ValueType, shown, type_of
from hullcast.network.wire.errors import BadSetting, InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.network.settings.values import Value

PREFIX = "HULLCAST_"

_KEY = "hullcast.option"
T = TypeVar("T")
S = TypeVar("S", bound="SettingsBase")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What is known of a setting besides its name, type and default."""

    about: str
    raised: str = ""  # what gets better and what worse when it is raised (or switched on)
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    flag: str = ""  # only where it differs from the field's name
    metavar: str = ""
    check: Callable[[Any], None] | None = None  # raises BadSetting


def option(
    default: T,
    about: str,
    *,
    raised: str = "",
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    flag: str = "",
    metavar: str = "",
    check: Callable[[Any], None] | None = None,
) -> T:
    """A field of a `SettingsBase` class; typed as its default, as `dataclasses.field` is."""
    known = Option(
        about=about,
        raised=raised,
        least=least,
        most=most,
        choices=choices,
        flag=flag,
        metavar=metavar,
        check=check,
    )
    return field(default=default, metadata={_KEY: known})


def part(kind: type[S]) -> S:
    """A field that is a section of its own."""
    return field(default_factory=kind)


@dataclass(frozen=True, kw_only=True)
class SettingsBase:
    """Base of the settings of a process or of a section. An instance is always in range, however it was made."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for each in _own_options(type(self)):
            _check_range(each, getattr(self, each.name))
        self.check()

    def check(self) -> None:
        """What concerns several fields; raises BadSetting with the field's name."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One setting as declared: where it is in the object, and its names outside."""

    section: str
    path: tuple[str, ...]  # the attributes that lead to it: ("link", "heartbeat_s")
    kind: ValueType
    default: Value
    option: Option

    @property
    def name(self) -> str:
        """The key in the file."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + (self.option.flag or self.name.replace("_", "-"))

    @property
    def destination(self) -> str:
        """The flag's attribute in argparse's namespace, and the end of the variable's name."""
        return self.flag[2:].replace("-", "_")

    @property
    def when_raised(self) -> str:
        """The word before what gets better and worse."""
        return "on" if self.kind is ValueType.YES_OR_NO else "raised"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.destination.upper()


def declared(kind: type[SettingsBase]) -> tuple[Declared, ...]:
    """All settings of a process, its own section first."""
    found = tuple(_declared(kind, (), kind.section))
    if len({each.flag for each in found}) < len(found):
        raise InvariantBroken(f"two settings of {kind.__name__} have one flag")
    return found


def _declared(kind: type[SettingsBase], path: tuple[str, ...], section: str) -> Iterator[Declared]:
    for each in _own_options(kind):
        yield Declared(section, (*path, *each.path), each.kind, each.default, each.option)
    for name, inner in parts(kind):
        yield from _declared(inner, (*path, name), inner.section or name)


def _own_options(kind: type[SettingsBase]) -> Iterator[Declared]:
    hints = get_type_hints(kind)
    for each in fields(kind):
        if each.default_factory is not MISSING:
            continue
        known, value_kind = each.metadata.get(_KEY), type_of(hints[each.name])
        if known is None or value_kind is None:
            raise InvariantBroken(f"{kind.__name__}.{each.name} is not an option, or has an unknown type")
        yield Declared(kind.section, (each.name,), value_kind, cast("Value", each.default), known)


def parts(kind: type[SettingsBase]) -> Iterator[tuple[str, type[SettingsBase]]]:
    """The sections inside, by their fields."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        if each.default_factory is not MISSING:
            yield each.name, hints[each.name]


def _check_range(each: Declared, value: Any) -> None:
    known = each.option
    if known.choices and value not in known.choices:
        raise BadSetting(each.name, value, f"must be one of {', '.join(known.choices)}")
    if known.least is not None and not value >= known.least:  # this way round, NaN is refused too
        raise BadSetting(each.name, value, f"must be {shown(each.name, known.least)} or more")
    if known.most is not None and not value <= known.most:
        raise BadSetting(each.name, value, f"must be {shown(each.name, known.most)} or less")
    if known.check is not None:
        try:
            known.check(value)
        except BadSetting as error:
            raise BadSetting(each.name, value, error.reason) from error
