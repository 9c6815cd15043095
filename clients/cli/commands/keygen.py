"""`hullcast keygen`: make a CURVE key pair, and say in the allow list what it may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.network.security.keys import make_pair, write_pair
from hullcast.network.security.rights import SWITCHES, TABLE_ACTIONS, Rights, entry
from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hullcast.network.security.rights import Action

ABOUT: dict[Action, str] = {
    "publish": "write and delete rows",
    "subscribe": "subscribe to queries",
    "query": "run one-time queries",
    "admin": "create and drop tables, and see the queries of all clients in `hullcast status`",
    "node": "connect as a node; the server trusts it to say which client sent a request",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Makes a CURVE key pair: NAME.key, which is secret (only its owner can read the file), and NAME.pub, which "
        "is not. With --allow, the key and its rights are added to an allow list."
    )
    parser.epilog = (
        "A server or node takes its pair with --key NAME.key and the allow list with --allow FILE; SIGHUP makes it "
        "read a changed list. A node's key needs the right `node` in its parent's list, even if all share one key. No "
        "right includes another. Without --allow, the command prints the lines for the list."
    )
    parser.add_argument("--name", default="hullcast", help="name of the key and of its files (default hullcast)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder for the files (default: .)")
    parser.add_argument(
        "--force", action="store_true", help="replace an existing pair of this name; the old one is lost"
    )
    parser.add_argument(
        "--allow", type=Path, metavar="FILE", help="add the key to this allow list; it is created if it does not exist"
    )
    rights = parser.add_argument_group("what the key may do")
    for action in TABLE_ACTIONS:
        about = f"{ABOUT[action]} of these tables ('*': every table)"
        rights.add_argument(f"--{action}", nargs="+", default=[], metavar="TABLE", help=about)
    for action in SWITCHES:
        rights.add_argument(f"--{action}", action="store_true", help=ABOUT[action])
    parser.add_argument("--json", action="store_true", help="print the paths and the public key as JSON")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Make the pair and say where it is; the secret is never printed."""
    pair = make_pair(arguments.name)
    tables: dict[Action, list[str]] = {action: getattr(arguments, action) for action in TABLE_ACTIONS}
    switches = [action for action in SWITCHES if getattr(arguments, action)]
    lines = entry(pair.name, pair.public, tables, switches)
    if arguments.allow is not None:
        if not switches and not any(tables.values()):
            rights = ", ".join(f"--{action}" for action in ABOUT)
            raise BadSetting(
                "allow", str(arguments.allow), f"a key without rights cannot do anything; give some of {rights}"
            )
        _check(arguments.allow, pair.name, lines)
    secret_path, public_path = write_pair(pair, arguments.out, force=arguments.force)
    if arguments.allow is not None:
        _append(arguments.allow, lines)
    if arguments.json:
        found = {
            "name": pair.name,
            "public": pair.public,
            "key_file": str(secret_path),
            "public_file": str(public_path),
        }
        console.out(json.dumps(found), highlight=False)
        return 0
    # `out` prints as it is: keys are full of the brackets that `print` would take for markup.
    console.out(f"{secret_path}  the pair; keep it secret", highlight=False)
    console.out(f"{public_path}  the public key", highlight=False)
    if arguments.allow is not None:
        granted = [f"{action} {' '.join(named)}" for action, named in tables.items() if named] + switches
        console.out(f"{arguments.allow}  the allow list; {pair.name} may: {', '.join(granted)}", highlight=False)
    else:
        if not switches and not any(tables.values()):
            lines = entry(pair.name, pair.public, {"subscribe": ["*"], "query": ["*"]}, ())
        console.out("\nFor the allow list of a server, with rights to be chosen:\n", highlight=False)
        console.out(lines.rstrip(), highlight=False)
    return 0


def _check(allow: Path, name: str, lines: str) -> None:
    """Refuse what would leave a list that cannot be read, or two keys of one name in it."""
    text = _text(allow)
    if name in Rights.read(text, str(allow)).names:
        reason = f"it has a key named {name} already; remove that entry first, or choose another --name"
        raise BadSetting("allow", str(allow), reason)
    Rights.read(text + lines, str(allow))


def _append(allow: Path, lines: str) -> None:
    text = _text(allow)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    try:
        with allow.open("a", encoding="utf-8") as file:
            file.write(gap + lines)
    except OSError as error:
        raise BadSetting("allow", str(allow), f"cannot write: {error.strerror}") from error


def _text(allow: Path) -> str:
    try:
        return allow.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting("allow", str(allow), f"cannot read it: {error}") from error
