"""Settings on the command line: a flag for each, and what `--config`, `--check-config` and `--print-config` do."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.network.settings.declaring import declared as settings_of
from hullcast.network.settings.loading import CONFIG_VARIABLE, load
from hullcast.network.settings.text import example, report
from hullcast.network.settings.values import Kind, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hullcast.network.settings.declaring import Declared, S, Settings
    from hullcast.network.settings.loading import Loaded

_METAVARS = {Kind.WHOLE: "N", Kind.NUMBER: "NUMBER", Kind.TEXT: "TEXT", Kind.FILE: "PATH", Kind.TEXTS: "TEXT"}


def add_flags(parser: argparse.ArgumentParser, kind: type[Settings], *, leave_out: Collection[str] = ()) -> None:
    """Give the parser a flag for each setting, but for those `leave_out` names by their keys."""
    about = parser.add_argument_group("configuration")
    about.add_argument(
        "--config", type=Path, metavar="FILE", help=f"TOML file with any of these settings (or {CONFIG_VARIABLE})"
    )
    about.add_argument(
        "--check-config", action="store_true", help="print each setting and where it comes from, and exit"
    )
    about.add_argument("--print-config", action="store_true", help="print a TOML file with all defaults, and exit")
    groups: dict[str, Any] = {}
    for each in settings_of(kind):
        if each.name in leave_out:
            continue
        if each.section not in groups:
            groups[each.section] = parser.add_argument_group(f"[{each.section}]")
        groups[each.section].add_argument(each.flag, dest=each.destination, default=None, **_form(each))


def from_arguments(
    kind: type[S], arguments: argparse.Namespace, environment: Mapping[str, str] | None = None
) -> Loaded[S]:
    """The settings that file, environment (of this process, unless given) and flags come to."""
    return load(
        kind,
        file=getattr(arguments, "config", None),
        environment=os.environ if environment is None else environment,
        flags=vars(arguments),
    )


def loaded_or_text(
    kind: type[S], arguments: argparse.Namespace, environment: Mapping[str, str] | None = None
) -> Loaded[S] | str:
    """The settings to run with; or the text to print instead, when only that was asked for."""
    if arguments.print_config:
        return example(kind)
    loaded = from_arguments(kind, arguments, environment)
    return report(loaded) if arguments.check_config else loaded


def _form(each: Declared) -> dict[str, Any]:
    known = each.option
    raised = f"; {each.when_raised}: {known.raised}" if known.raised else ""
    text = f"{known.about}{raised} (default {_default(each)})".replace("%", "%%")
    if each.kind is Kind.YES_OR_NO:
        return {"action": argparse.BooleanOptionalAction, "help": text}
    metavar = known.metavar or ("|".join(known.choices) if known.choices else _METAVARS[each.kind])
    return {
        "action": "append" if each.kind is Kind.TEXTS else "store",
        "metavar": metavar,
        "help": text + ("; may be repeated" if each.kind is Kind.TEXTS else ""),
    }


def _default(each: Declared) -> str:
    if each.kind is Kind.YES_OR_NO:
        return "on" if each.default else "off"
    if each.default is None or each.default in ("", ()):
        return "none"
    if isinstance(each.default, int | float):
        return shown(each.name, each.default)
    return ", ".join(each.default) if isinstance(each.default, tuple) else str(each.default)
