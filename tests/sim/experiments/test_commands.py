"""The two commands: help without heavy imports, defaults, and settings from arguments."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import sim
from clients.cli import _parser
from clients.commands.sim import figures, traffic
from sim.experiments.settings import FULL, QUICK, SECTIONS
from sim.overlay.placement import PLACEMENTS


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    traffic.add_arguments(parser)
    return parser.parse_args(words)


def test_names_in_the_help_are_those_of_the_simulation() -> None:
    assert tuple(SECTIONS) == figures.SECTIONS
    assert traffic.PLACEMENTS == PLACEMENTS


def test_help_needs_neither_numba_nor_spark() -> None:
    program = "import sys; from clients.commands.sim import traffic, figures; import argparse\n"
    program += "for m in (traffic, figures): p = argparse.ArgumentParser(); m.add_arguments(p); p.format_help()\n"
    program += "print([n for n in ('numba', 'pyspark', 'pandas', 'matplotlib', 'scipy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sizes_are_the_thesis_s_unless_quick_or_given() -> None:
    full, quick = traffic.settings_of(parsed()), traffic.settings_of(parsed("--quick", "--brokers", "9"))
    assert (full.subscriptions, full.network) == (500_000, FULL.network)
    assert (quick.subscriptions, quick.network.nodes, quick.network.brokers) == (50_000, QUICK.network.nodes, 9)


def test_greedy_entry_is_the_can_s_own() -> None:
    settings = traffic.settings_of(parsed("--entry", "greedy", "--placement", "can", "tree-random"))
    assert settings.placements == ("can-greedy", "tree-random")


def test_every_command_in_the_document_is_understood() -> None:
    text = (Path(sim.__path__[0]) / "SIMULATION.md").read_text()
    commands = re.findall(r"^    hullcast (sim .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(commands) >= 7
    for command in commands:
        words = shlex.split(command)
        parser, _ = _parser(words)
        parser.parse_args(words)
