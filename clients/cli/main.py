"""The command `hullcast`: finds the subcommand, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Exit codes: 0 fine, 1 the command ran and its answer is no, 2 it could not run, 130 interrupted (as shells do).
FINE, NO, FAILED, INTERRUPTED = 0, 1, 2, 130

WIDTH_IN_A_FILE = 120  # where there is no terminal to ask

#: The subcommands, in the order of the help text: a module of `commands`, and one line about it.
#: The module is imported only when its command runs, so that `hullcast --help` does not wait for numba.
COMMANDS: tuple[tuple[str, str], ...] = (
    ("up", "start a cluster on this host: a server, a root node and gateways"),
    ("server", "run the database server, which keeps the rows and the commit log"),
    ("node", "run a node, which routes messages between the server and clients"),
    ("status", "show the server and its nodes: clients, lag, queues, rates"),
    ("tables", "list tables, streams and views"),
    ("execute", "create or drop a table, stream or view"),
    ("publish", "write rows from CSV, JSON lines or Parquet into a table"),
    ("delete", "delete rows by primary key"),
    ("query", "run a SELECT once"),
    ("policy", "show or set the scheduling policy of queries, or of joins over streams"),
    ("subscribe", "print the answer of a SELECT, then each change of it"),
    ("export", "write tables and their change history as Parquet"),
    ("explain", "show how a subscription would be served, and its traffic"),
    ("replay", "publish a recorded or synthetic trace at a given rate, and measure"),
    ("demo", "run a cluster, kill a gateway, check every answer against SQL"),
    ("keygen", "make a key pair for encrypted links and the allow list"),
    ("bench", "measure the engine and a cluster, and compare with baselines"),
    ("sim", "simulate the network traffic of a workload"),
    ("log", "check, show or copy the commit log of a data folder"),
    ("calibrate", "measure the cost of join plans on this machine"),
    ("warm", "compile the kernels now instead of at first use"),
)


class Command(Protocol):
    """What a module of `clients/cli/commands` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Do it; the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_IN_A_FILE
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser, wanted = _parser(words)
        arguments = parser.parse_args(words)
        if wanted is None:
            parser.print_help()
            return FAILED if words else FINE
        return wanted.run(arguments, console)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away (`hullcast ... | head`): not our failure
        sys.stderr.close()  # or Python complains when it flushes at exit
        return FINE
    except Exception as error:
        if not _is_ours(error):
            raise
        sys.stderr.write(f"hullcast: {in_commands(' '.join(str(error).split()))}\n")
        return FAILED


def in_commands(text: str) -> str:
    """An error's text with commands where it names calls of the SDK: what helps is said in the words of this user."""
    for call, instead in _INSTEAD.items():
        text = re.sub(call, instead, text)
    return text


_INSTEAD = {
    r'hc\.subscribe\((".*"), \.\., when="([^"]*)"\)': r'`hullcast subscribe \1 --param .. --when "\2"`',
    r'hc\.subscribe\((".*"), when="([^"]*)"\)': r'`hullcast subscribe \1 --when "\2"`',
    r'hc\.subscribe\((".*"), \.\., every="(\w+)"\)': r"`hullcast subscribe \1 --param .. --every \2`",
    r'hc\.subscribe\((".*"), every="(\w+)"\)': r"`hullcast subscribe \1 --every \2`",
    r'hc\.query\((".*"), \.\.\)': r"`hullcast query \1 --param ..`",
    r'hc\.query\((".*")\)': r"`hullcast query \1`",
    r'\bwhen="([^"]*)"': r'--when "\1"',
    r'--when "(\w+)"': r"--when \1",
    r'every="(\w+)" instead of when=': r"--every \1 instead of --when",
    r'\bevery="(\w+)"': r"--every \1",
    r"\bpublish\(new, \[.* await query\(sql\)\]\)": (
        '`hullcast query "SELECT * FROM old" --json | hullcast publish new --jsonl -`'
    ),
    r"\bdelete\(table, \[.* await query\(.*\)\]\)": (
        '`hullcast query "SELECT key FROM table WHERE .." --csv | hullcast delete table --file -`'
    ),
    r'\bpublish\(\.\., nan="null"\)': "`hullcast publish --nan null`",
    r"\bsubscribe\(sql, \*values\)": "--param once for each `?`",
    r"\b(publish|delete|execute|subscribe|query|tables)\((?:table, rows|table, keys|sql)?\)": r"`hullcast \1`",
}


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, Command | None]:
    """The parser, with the arguments of the one command that is asked for, and that command."""
    parser = argparse.ArgumentParser(
        prog="hullcast",
        description="Subscribe to SQL: publish/subscribe whose subscriptions are SQL queries.",
        epilog="`hullcast COMMAND --help` explains a command. Start with `hullcast demo`.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command")
    name = next((word for word in words if not word.startswith("-")), None)
    wanted: Command | None = None
    for command, about in COMMANDS:
        subparser = subparsers.add_parser(command, help=about, description=about[0].upper() + about[1:] + ".")
        if command == name:
            wanted = _load(command)
            wanted.add_arguments(subparser)
    return parser, wanted


def _load(command: str) -> Command:
    return import_module(f"hullcast.clients.cli.commands.{command}")


class _Version(argparse.Action):
    """Prints the version; asks for it only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from hullcast import __version__

        sys.stdout.write(f"hullcast {__version__}\n")
        parser.exit()


def _is_ours(error: Exception) -> bool:
    """Whether an error is one that Hullcast raises on purpose."""
    from hullcast.network.wire.errors import HullcastError

    return isinstance(error, HullcastError)
