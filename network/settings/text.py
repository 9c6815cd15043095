"""Settings as text: the report of `--check-config`, and the example file, both made from the declarations."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.settings.declaring import declared as settings_of
from hullcast.network.settings.values import shown

if TYPE_CHECKING:
    from hullcast.network.settings.declaring import Declared, S, Settings
    from hullcast.network.settings.loading import Loaded
    from hullcast.network.settings.values import Value

WIDTH = 120


def report(loaded: Loaded[S]) -> str:
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
        lines += ["", f"# set, but without meaning here: {', '.join(loaded.unused)}"]
    return "\n".join(lines) + "\n"


def as_json(loaded: Loaded[S]) -> dict[str, dict[str, dict[str, object]]]:
    """The same for programs: section, key, and there `value` and `source`."""
    result: dict[str, dict[str, dict[str, object]]] = {}
    for setting in loaded.values:
        value = str(setting.value) if isinstance(setting.value, Path) else setting.value
        section = result.setdefault(setting.declared.section, {})
        section[setting.declared.name] = {"value": value, "source": setting.source}
    return result


def example(*kinds: type[Settings]) -> str:
    """A TOML file with every setting at its default, commented out, and what it does; sections in common once."""
    lines = [
        "# Settings of Hullcast. Each stands at its default; remove the # before a key to change it.",
        "# The environment wins over this file, flags over both: heartbeat_s is HULLCAST_HEARTBEAT_S, --heartbeat-s.",
        '# Sizes and durations may have a unit, in quotes: "64MiB", "500ms". Relative paths start where this file is.',
    ]
    done: set[str] = set()
    for kind in kinds:
        ours: set[str] = set()
        for each in settings_of(kind):
            if each.section in done:
                continue
            if each.section not in ours:
                ours.add(each.section)
                lines += ["", f"[{each.section}]"]
            lines += ["", *_described(each), f"# {each.name} = {toml(each.default)}"]
        done |= ours
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
