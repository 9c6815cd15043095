"""Settings on the command line: a flag for each, and what `--check-config` and `--print-config` show.

All of it is made from the declarations.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.network.settings.declaring import declared
from hullcast.network.settings.loading import CONFIG_VARIABLE, load
from hullcast.network.settings.values import ValueType, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.settings.declaring import Declared, S, SettingsBase
    from hullcast.network.settings.loading import LoadedSettings
    from hullcast.network.settings.values import Value

WIDTH = 120  # of the file that --print-config prints

_METAVARS = {ValueType.WHOLE: "N", ValueType.NUMBER: "NUMBER", ValueType.FILE: "PATH"}  # others: TEXT


def add_flags(parser: argparse.ArgumentParser, kind: type[SettingsBase]) -> None:
    """Give the parser a flag for each setting."""
    about = parser.add_argument_group("configuration")
    about.add_argument(
        "--config", type=Path, metavar="FILE", help=f"TOML file with any of these settings (or {CONFIG_VARIABLE})"
    )
    about.add_argument(
        "--check-config", action="store_true", help="print each setting and where it comes from, and exit"
    )
    about.add_argument("--print-config", action="store_true", help="print a TOML file with all defaults, and exit")
    groups: dict[str, Any] = {}
    for each in declared(kind):
        if each.section not in groups:
            groups[each.section] = parser.add_argument_group(f"[{each.section}]")
        groups[each.section].add_argument(each.flag, dest=each.destination, default=None, **_form(each))


def from_arguments(
    kind: type[S], arguments: argparse.Namespace, environment: Mapping[str, str] | None = None
) -> LoadedSettings[S]:
    """The settings that file, environment (of this process, unless given) and flags come to."""
    return load(
        kind,
        file=getattr(arguments, "config", None),
        environment=os.environ if environment is None else environment,
        flags=vars(arguments),
    )


def _form(each: Declared) -> dict[str, Any]:
    known = each.option
    raised = f"; {each.when_raised}: {known.raised}" if known.raised else ""
    text = f"{known.about}{raised} (default {_default(each)})".replace("%", "%%")
    if each.kind is ValueType.YES_OR_NO:
        return {"action": argparse.BooleanOptionalAction, "help": text}
    metavar = known.metavar or ("|".join(known.choices) if known.choices else _METAVARS.get(each.kind, "TEXT"))
    return {
        "action": "append" if each.kind is ValueType.TEXTS else "store",
        "metavar": metavar,
        "help": text + ("; may be repeated" if each.kind is ValueType.TEXTS else ""),
    }


def _default(each: Declared) -> str:
    if each.kind is ValueType.YES_OR_NO:
        return "on" if each.default else "off"
    if each.default is None or each.default in ("", ()):
        return "none"
    if isinstance(each.default, int | float):
        return shown(each.name, each.default)
    return ", ".join(each.default) if isinstance(each.default, tuple) else str(each.default)


# --- as text ------------------------------------------------------------------------------------------------


def report(loaded: LoadedSettings[S]) -> str:
    """Each value and where it comes from; itself a TOML file that would give the same settings."""
    lines: list[str] = []
    section = ""
    cells = [(f"{setting.declared.name} = {toml(setting.value)}", setting) for setting in loaded.values]
    width = min(60, max(len(text) for text, _ in cells))
    for text, setting in cells:
        if setting.declared.section != section:
            section = setting.declared.section
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        lines.append(f"{text:<{width}}  # {setting.source}")
    if loaded.unused:
        lines += ["", f"# set, but not used by this process: {', '.join(loaded.unused)}"]
    return "\n".join(lines) + "\n"


def example(kind: type[SettingsBase]) -> str:
    """A TOML file with every setting at its default, commented out, and what it does."""
    lines = [
        "# Settings of Hullcast. Each stands at its default; remove the # before a key to change it.",
        "# The environment wins over this file, flags over both: heartbeat_s is HULLCAST_HEARTBEAT_S, --heartbeat-s.",
        '# Sizes and durations may have a unit, in quotes: "64MiB", "500ms". Relative paths start where this file is.',
    ]
    section = ""
    for each in declared(kind):
        if each.section != section:
            section = each.section
            lines += ["", f"[{section}]"]
        lines += ["", *_described(each), f"# {each.name} = {toml(each.default)}"]
    return "\n".join(lines) + "\n"


def toml(value: Value) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:_}"
        case float():
            return repr(value)
        case str():
            return _quoted(value)
        case Path():
            return _quoted(str(value))
        case tuple():
            return f"[{', '.join(_quoted(text) for text in value)}]"
        case None:
            return '""'


def _quoted(text: str) -> str:
    # JSON's strings are TOML's basic strings, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _described(each: Declared) -> list[str]:
    known = each.option
    text = known.about[0].upper() + known.about[1:] + "."
    if known.raised:
        text += f" {each.when_raised.capitalize()}: {known.raised}."
    if known.choices:
        text += f" One of {', '.join(known.choices)}."
    elif known.least is not None or known.most is not None:
        low, high = (shown(each.name, end) if end is not None else "" for end in (known.least, known.most))
        text += f" From {low} to {high}." if low and high else f" At least {low}." if low else f" At most {high}."
    text += f" Flag {each.flag}."
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
