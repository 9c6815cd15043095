"""What a document tells its reader to type works: commands parse, Python compiles, settings and variables are there.

SDK.md, OPERATING.md and FIRST_STEPS.md also run: tests/clients/sdk/test_document.py,
tests/system/test_operating_document.py, tests/system/test_up.py.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.cli import main
from hullcast.network.node.settings import NodeSettings
from tests.support.documents import DOCUMENTS, ROOT, sources, text_of

CURRENT = [document for document in DOCUMENTS if document != "CHANGELOG.md"]


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    return main._parser(words)[0]


def blocks(text: str) -> Iterator[str]:
    """Blocks of code: those between fences that are not Python or bytes, and those that are indented."""
    yield from re.findall(r"^```(?:sh|text)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    fenceless = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?:^    .*\n?)+", fenceless, re.MULTILINE)


def commands(document: str) -> Iterator[list[str]]:
    """The words of every `hullcast` in a block, without comments and what it is piped to."""
    for block in blocks(text_of(document)):
        for line in block.splitlines():
            if re.search(r"(?:^|\s|/)hullcast ", line.split("#")[0]):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&")
                lexer.whitespace_split, lexer.commenters = True, "#"
                words = list(lexer)
                for start, word in enumerate(words):
                    if word.rpartition("/")[2] == "hullcast" and (start == 0 or words[start - 1] in ("|", "&&", ";")):
                        end = next((i for i in range(start, len(words)) if words[i] in ("|", "&&", ";")), len(words))
                        yield words[start + 1 : end]


ALL = [(document, words) for document in CURRENT for words in commands(document)]


def test_there_are_commands_to_check() -> None:
    assert {Path(document).name for document, _ in ALL} >= {"FIRST_STEPS.md", "OPERATING.md", "SIMULATION.md"}
    assert len(ALL) > 25


@pytest.mark.parametrize(
    ("document", "words"), ALL, ids=lambda part: " ".join(part) if isinstance(part, list) else part
)
def test_a_command_parses(document: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parser_of(words).parse_args(words)
    except SystemExit:
        pytest.fail(f"{document}: `hullcast {shlex.join(words)}`\n{capsys.readouterr().err}")


def options(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command and of its subcommands."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for inner in action.choices.values() for option in options(inner)}
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_command_named_in_a_sentence_is_there_with_its_options(document: str) -> None:
    known = {name for name, _ in main.COMMANDS}
    for quoted in re.findall(r"`(?:\.venv/bin/)?hullcast ([^`]+)`", text_of(document)):
        words = quoted.split()
        if words[0] not in ("COMMAND", "--help", "--version"):
            assert words[0] in known, f"{document}: no command `hullcast {words[0]}`"
            missing = {word for word in words if re.match(r"--\w", word)} - options(parser_of(words[:1]))
            assert not missing, f"{document}: `hullcast {words[0]}` has no {', '.join(missing)}"


def python(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text_of(document), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("document", "code"), [(name, code) for name in DOCUMENTS for code in python(name)])
def test_python_compiles(document: str, code: str) -> None:
    compile(f"async def example(hc):\n{textwrap.indent(code, '    ')}", document, "exec")


def setting_names(kind: type) -> set[str]:
    assert is_dataclass(kind)
    names = {field.name for field in fields(kind)}
    for inner in ("link", "security", "log"):
        part = getattr(kind(), inner)
        names |= {field.name for field in fields(part)}
    return names


def test_the_settings_named_in_operating_are_there() -> None:
    known = setting_names(ServerSettings) | setting_names(NodeSettings)
    named = set(re.findall(r"`((?!hullcast_)[a-z]+(?:_[a-z]+)+)`", text_of("OPERATING.md")))
    assert len(named) > 10
    assert named <= known, f"OPERATING.md: no setting {', '.join(sorted(named - known))}"


def test_the_environment_variables_named_in_documents_are_read_somewhere() -> None:
    code = "".join(source.read_text("utf-8") for source in sources() if ROOT / "tests" not in source.parents)
    settings = {f"HULLCAST_{name.upper()}" for kind in (ServerSettings, NodeSettings) for name in setting_names(kind)}
    for document in DOCUMENTS:
        for name in re.findall(r"\bHULLCAST_[A-Z_]+\b", text_of(document)):
            assert name in settings or name in code or f'"{name.removeprefix("HULLCAST_").lower()}"' in code, (
                f"{document}: nothing reads {name}"
            )


def every_parser() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, _ in main.COMMANDS:
        (top,) = [action for action in parser_of([name])._actions if isinstance(action, argparse._SubParsersAction)]
        waiting = [(name, top.choices[name])]
        while waiting:
            path, parser = waiting.pop()
            yield path, parser
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    waiting += [(f"{path} {inner}", choice) for inner, choice in action.choices.items()]


def test_help_states_the_defaults_that_commands_have() -> None:
    stated = 0
    for path, parser in every_parser():
        for action in parser._actions:
            said = re.search(r"\(default:? ([\w.:/*-]*\w)\)", action.help or "")
            if said is not None and isinstance(action.default, int | float | str):
                stated += 1
                default = action.default
                shown = (
                    {str(default), f"{default:,}", f"{default:g}"}
                    if isinstance(default, int | float)
                    else {str(default)}
                )
                assert said[1] in shown, (
                    f"hullcast {path} {action.option_strings}: help says {said[1]}, it is {default}"
                )
    assert stated > 10


def test_the_embedded_engine_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [code for code in python("FIRST_STEPS.md") if "hullcast.Engine()" in code]
    exec(compile(code, "FIRST_STEPS.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
