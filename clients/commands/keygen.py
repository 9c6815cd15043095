"""`hullcast keygen`: make a CURVE key pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from network.security.keys import make_pair, write_pair

if TYPE_CHECKING:
    import argparse

    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Makes a CURVE key pair: NAME.key, which stays where it is used and which only its owner may read, "
        "and NAME.pub, which is no secret."
    )
    parser.epilog = (
        "A server or node takes the pair with --key NAME.key. What a client's key may do stands in the allow list "
        "(--allow FILE); the command prints the lines to begin with."
    )
    parser.add_argument("--name", default="hullcast", help="name of the pair and of its files (default hullcast)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder for them (default: here)")
    parser.add_argument("--force", action="store_true", help="replace a pair of that name; the old one is gone")
    parser.add_argument("--json", action="store_true", help="print the paths and the public key as JSON")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Make the pair and say where it is; the secret is never printed."""
    pair = make_pair(arguments.name)
    secret_path, public_path = write_pair(pair, arguments.out, force=arguments.force)
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
    console.out("\nFor the allow list of a server, with rights to be chosen:\n", highlight=False)
    console.out(f'[[key]]\nname = "{pair.name}"\npublic = "{pair.public}"', highlight=False)
    console.out('publish = []\nsubscribe = ["*"]\nquery = ["*"]\nadmin = false\nnode = false', highlight=False)
    return 0
