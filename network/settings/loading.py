"""Settings from outside: defaults, TOML file, HULLCAST_*, flags; each value knows its source.

Later ones override earlier ones, one by one (`LoadedSettings.values`). An unknown key is refused, with a suggestion.
An unknown variable is refused only if it looks misspelt, because other processes of a host have variables of their own
(`LoadedSettings.unused`). Relative paths in a file start from the file's folder.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from hullcast.network.settings.declaring import PREFIX, Declared, S, declared, parts
from hullcast.network.settings.values import Unreadable, read
from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.settings.values import Value

CONFIG_VARIABLE = PREFIX + "CONFIG"  # the file, if no flag names one

#: All sections of all processes: they may share one file, and each reads its own part.
SECTIONS = ("server", "node", "link", "security", "log")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and where it came from: `default`, `node.toml [link]`, `HULLCAST_LISTEN` or `--listen`."""

    declared: Declared
    value: Value
    source: str

    @property
    def label(self) -> str:
        """What to correct, as its writer knows it."""
        own = (self.declared.flag, self.declared.variable)
        return self.source if self.source in own else f"{self.source} {self.declared.name}"


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[S]):
    """The settings, and what an operator may ask about them."""

    settings: S
    values: tuple[Setting, ...]
    file: Path | None = None
    unused: tuple[str, ...] = ()  # HULLCAST_ variables that this process does not use


def load(
    kind: type[S],
    *,
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedSettings[S]:
    """Build the settings; `flags` by destination (`heartbeat_s`), None or absent where not given.

    Raises BadSetting, whose text names the place to correct: the file and section, the variable or the flag.
    """
    environment, flags = environment or {}, flags or {}
    known = declared(kind)
    if file is None:
        file = environment.get(CONFIG_VARIABLE) or None
    path = Path(file) if file is not None else None
    written = _read_file(path, known) if path is not None else {}
    unused = _unused_variables(environment, known)
    settings = []
    for each in known:
        setting = Setting(each, each.default, "default")
        if path is not None and (each.section, each.name) in written:
            setting = _read(each, written[each.section, each.name], f"{path} [{each.section}]", path.parent)
        if each.variable in environment:
            setting = _read(each, environment[each.variable], each.variable)
        if flags.get(each.destination) is not None:
            setting = _read(each, flags[each.destination], each.flag)
        settings.append(setting)
    return LoadedSettings(_build(kind, settings), tuple(settings), path, unused)


# --- building -----------------------------------------------------------------------------------------------


def _build(kind: type[S], settings: list[Setting], path: tuple[str, ...] = ()) -> S:
    depth = len(path)
    given: dict[str, object] = {}
    for setting in settings:
        own = setting.declared.path
        if own[:depth] == path and len(own) == depth + 1:
            given[own[depth]] = setting.value
    for name, inner in parts(kind):
        given[name] = _build(inner, settings, (*path, name))
    try:
        return kind(**given)
    except BadSetting as error:
        # In the words of whoever wrote it: an object built in code knows the field, not the file or the flag.
        for setting in settings:
            if setting.declared.path == (*path, error.setting) and setting.source != "default":
                raise BadSetting(setting.label, error.value, error.reason) from error
        raise


def _read(each: Declared, given: object, source: str, folder: Path | None = None) -> Setting:
    try:
        return Setting(each, read(each.kind, each.name, given, folder), source)
    except Unreadable as error:
        raise BadSetting(Setting(each, None, source).label, given, str(error)) from error


def _read_file(path: Path, known: tuple[Declared, ...]) -> dict[tuple[str, str], object]:
    """The file's values for this process by section and key; sections of other processes are left to those."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadSetting("config", str(path), f"cannot read it: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting("config", str(path), f"not valid TOML: {error}") from error
    ours = {each.section for each in known}
    written: dict[tuple[str, str], object] = {}
    for section, table in content.items():
        if section not in SECTIONS:
            hint = _suggest(section, SECTIONS) or f"; sections are {', '.join(SECTIONS)}"
            raise BadSetting(f"{path} [{section}]", table, f"unknown section{hint}")
        if not isinstance(table, dict):
            raise BadSetting(f"{path} {section}", table, f"{section} is a section; write [{section}] on its own line")
        if section not in ours:
            continue
        names = [each.name for each in known if each.section == section]
        for key, value in table.items():
            name = key.replace("-", "_")
            label = f"{path} [{section}] {key}"
            if name not in names:
                raise BadSetting(label, value, _unknown(name, section, known))
            if (section, name) in written:
                raise BadSetting(label, value, f"{name} is given twice")
            written[section, name] = value
    return written


def _unknown(name: str, section: str, known: tuple[Declared, ...]) -> str:
    for each in known:
        if each.name == name:
            return f"this setting belongs to [{each.section}]"
    names = [each.name for each in known if each.section == section]
    return "unknown setting" + (_suggest(name, names) or f"; [{section}] has {', '.join(names)}")


def _unused_variables(environment: Mapping[str, str], known: tuple[Declared, ...]) -> tuple[str, ...]:
    names = [each.variable.removeprefix(PREFIX) for each in known]
    unused = []
    for variable, value in environment.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or variable == CONFIG_VARIABLE or name in names:
            continue
        if get_close_matches(name, names, n=1, cutoff=0.85):
            raise BadSetting(variable, value, f"unknown setting{_suggest(name, names, PREFIX)}")
        unused.append(variable)
    return tuple(sorted(unused))


def _suggest(word: str, words: list[str] | tuple[str, ...], prefix: str = "") -> str:
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
