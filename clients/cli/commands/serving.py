"""What `hullcast server` and `hullcast node` do before they serve: read settings, keys and rights, or show them."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.cli.processes import logs
from hullcast.clients.cli.processes.running import stop_when_input_ends
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import load_pair, load_public
from hullcast.network.security.rights import Rights
from hullcast.network.settings.flags import example, from_arguments, report

if TYPE_CHECKING:
    import argparse

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=ServerSettings | NodeSettings)


class Prepared(NamedTuple, Generic[Kind]):
    """What a process serves with; `parent_curve` is for those who dial one."""

    settings: Kind
    rights: Rights
    curve: Curve | None
    parent_curve: Curve | None


def prepare(kind: type[Kind], arguments: argparse.Namespace) -> Prepared[Kind] | None:
    """Read and check everything, and set up the logs; None if only the settings were asked for, and shown."""
    if arguments.print_config:
        sys.stdout.write(example(kind))
        return None
    loaded = from_arguments(kind, arguments)
    settings, security = loaded.settings, loaded.settings.security
    rights = Rights.load(security.allow)
    curve = parent_curve = None
    if security.key is not None:
        pair = load_pair(security.key)
        curve = Curve(pair.public, pair.secret)
        expected = settings.parent_key if isinstance(settings, NodeSettings) else ""
        server = load_public(expected, setting="parent_key") if expected else pair.public
        parent_curve = Curve(pair.public, pair.secret, server=server)
    if arguments.check_config:
        sys.stdout.write(report(loaded))
        return None
    logs.configure(settings.log.level, settings.log.format)
    if security.open:
        log.warning("every client that connects may do everything (--open); --allow FILE would limit that")
    if arguments.until_input_ends:
        stop_when_input_ends()
    return Prepared(settings, rights, curve, parent_curve)
